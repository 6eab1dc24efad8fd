//! Requests to the kernel (`IPSET_CMD_*`).

use std::fmt;

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

use crate::attribute::{self, EncodeError};
use crate::entry::{Entry, LINENO};
use crate::kind::{Family, SetName, SetType};
use crate::message::{self, Envelope, RawMessage};
use crate::options::{
    ATTR_ADT, ATTR_DATA, ATTR_FAMILY, ATTR_FLAGS, ATTR_PROTOCOL, ATTR_REVISION, ATTR_SETNAME,
    ATTR_TYPENAME, CMD_CREATE, CreateOptions, Detail, FLAG_LIST_HEADER, FLAG_LIST_SETNAME,
};
use crate::parts::Parts;

pub(crate) const CMD_PROTOCOL: u8 = 1;
const CMD_DESTROY: u8 = 3;
const CMD_SWAP: u8 = 6;
pub(crate) const CMD_LIST: u8 = 7;
const CMD_ADD: u8 = 9;
const CMD_DEL: u8 = 10;
pub(crate) const CMD_TYPE: u8 = 13;

/// The range of protocol versions, or of revisions of a set type, that a kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions {
    /// Oldest.
    pub min: u8,
    /// Newest.
    pub max: u8,
}

impl Revisions {
    /// The oldest revision that has all features used by this crate. It is not the newest because ipset programs
    /// refuse to list *any* set if one has a revision that they do not know, and other containers on a host may
    /// contain old programs.
    #[must_use]
    pub fn choose(self, set_type: SetType) -> u8 {
        set_type.needed_revision().max(self.min).min(self.max)
    }
}

/// A request to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Gets the protocol versions that the kernel supports.
    Protocol,
    /// Gets the revisions of a set type that the kernel supports.
    Type {
        /// The type.
        set_type: SetType,
        /// The family of the sets, if the type has one.
        family: Option<Family>,
    },
    /// Creates a set; fails with `EEXIST` if the name is in use.
    Create {
        /// Its name.
        name: SetName,
        /// Its type.
        set_type: SetType,
        /// Revision of the type.
        revision: u8,
        /// Its family, if its type has one.
        family: Option<Family>,
        /// Its sizes and timeout.
        options: CreateOptions,
    },
    /// Destroys a set; fails if a rule uses it.
    Destroy(SetName),
    /// Exchanges the names of two sets of the same type; rules follow the name.
    Swap(SetName, SetName),
    /// Lists one set or all.
    List {
        /// The set, or all.
        name: Option<SetName>,
        /// The level of detail.
        detail: Detail,
    },
    /// Adds entries; existing ones are not an error.
    Add(SetName, Vec<Entry>),
    /// Deletes entries; missing ones are not an error.
    Delete(SetName, Vec<Entry>),
}

impl Request {
    /// Whether it changes the kernel; otherwise it only reads.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Protocol | Self::Type { .. } | Self::List { .. })
    }

    fn command(&self) -> u8 {
        match self {
            Self::Protocol => CMD_PROTOCOL,
            Self::Type { .. } => CMD_TYPE,
            Self::Create { .. } => CMD_CREATE,
            Self::Destroy(_) => CMD_DESTROY,
            Self::Swap(..) => CMD_SWAP,
            Self::List { .. } => CMD_LIST,
            Self::Add(..) => CMD_ADD,
            Self::Delete(..) => CMD_DEL,
        }
    }

    fn flags(&self) -> u16 {
        match self {
            Self::Create { .. } => NLM_F_CREATE | NLM_F_EXCL,
            Self::List { .. } => NLM_F_DUMP,
            // Without it, destroying a missing set would succeed.
            Self::Destroy(_) => NLM_F_EXCL,
            // Without NLM_F_EXCL, adding an existing entry or deleting a missing one is not an error.
            _ => 0,
        }
    }

    /// Appends the whole netlink message to `buffer`.
    ///
    /// # Errors
    /// [`EncodeError`] if there are more entries than fit into one message; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        envelope.put(buffer, self.command(), self.flags(), |payload| {
            attribute::put(payload, ATTR_PROTOCOL, &[envelope.protocol])?;
            self.put_attributes(payload)
        })
    }

    fn put_attributes(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Protocol => Ok(()),
            Self::Type { set_type, family } => {
                attribute::put_text(buffer, ATTR_TYPENAME, set_type.name())?;
                attribute::put(buffer, ATTR_FAMILY, &[family.map_or(0, Family::number)])
            }
            Self::Create {
                name,
                set_type,
                revision,
                family,
                options,
            } => {
                attribute::put_text(buffer, ATTR_SETNAME, name.as_str())?;
                attribute::put_text(buffer, ATTR_TYPENAME, set_type.name())?;
                attribute::put(buffer, ATTR_REVISION, &[*revision])?;
                attribute::put(buffer, ATTR_FAMILY, &[family.map_or(0, Family::number)])?;
                attribute::put_nested(buffer, ATTR_DATA, |b| options.put(*set_type, b))
            }
            Self::Destroy(name) => attribute::put_text(buffer, ATTR_SETNAME, name.as_str()),
            Self::Swap(from, to) => {
                attribute::put_text(buffer, ATTR_SETNAME, from.as_str())?;
                attribute::put_text(buffer, ATTR_TYPENAME, to.as_str())
            }
            Self::List { name, detail } => {
                if let Some(name) = name {
                    attribute::put_text(buffer, ATTR_SETNAME, name.as_str())?;
                }
                match detail {
                    Detail::Names => attribute::put_u32(buffer, ATTR_FLAGS, FLAG_LIST_SETNAME),
                    Detail::Headers => attribute::put_u32(buffer, ATTR_FLAGS, FLAG_LIST_HEADER),
                    Detail::Entries => Ok(()),
                }
            }
            Self::Add(name, entries) | Self::Delete(name, entries) => {
                put_entries(buffer, name, entries)
            }
        }
    }

    /// Decodes a request, for fake kernels and captures.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, its command is not one of these, a part is missing, or an entry
    /// is of an unsupported kind.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, attributes) = message::split(message)?;
        let parts = Parts::parse(command, attributes)?;
        Ok(match command {
            CMD_PROTOCOL => Self::Protocol,
            CMD_TYPE => Self::Type {
                set_type: parts.set_type()?,
                family: parts.family()?,
            },
            CMD_CREATE => Self::Create {
                name: parts.name()?,
                set_type: parts.set_type()?,
                revision: parts.revision.ok_or("set without revision")?,
                family: parts.family()?,
                options: parts.options()?,
            },
            CMD_DESTROY => Self::Destroy(parts.name()?),
            CMD_SWAP => {
                let second = parts.second.as_deref().ok_or("swap without second name")?;
                Self::Swap(parts.name()?, SetName::parse(second.as_bytes())?)
            }
            CMD_LIST => Self::List {
                detail: parts.detail(),
                name: parts.name,
            },
            CMD_ADD => Self::Add(parts.name()?, parts.entries),
            CMD_DEL => Self::Delete(parts.name()?, parts.entries),
            other => {
                return Err(DecodeError::from(format!("unknown ipset command {other}")));
            }
        })
    }
}

/// Writes the form with many entries. Each entry has a line number, starting at 1, and the message has one that the
/// kernel overwrites to report which entry failed. The kernel only copies the numbers; they are in network byte order
/// as in the ipset program.
fn put_entries(buffer: &mut Vec<u8>, name: &SetName, entries: &[Entry]) -> Result<(), EncodeError> {
    attribute::put_text(buffer, ATTR_SETNAME, name.as_str())?;
    attribute::put_u32(buffer, LINENO, 0)?;
    attribute::put_nested(buffer, ATTR_ADT, |list| {
        for (line, entry) in (1_u32..).zip(entries) {
            attribute::put_nested(list, ATTR_DATA, |b| {
                entry.put(b)?;
                attribute::put_u32(b, LINENO, line)
            })?;
        }
        Ok(())
    })
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => f.write_str("get the protocol version"),
            Self::Type { set_type, family } => {
                write!(f, "get the revisions of type {}", Kind(*set_type, *family))
            }
            Self::Create {
                name,
                set_type,
                family,
                ..
            } => write!(f, "create set {name} {}", Kind(*set_type, *family)),
            Self::Destroy(name) => write!(f, "destroy set {name}"),
            Self::Swap(from, to) => write!(f, "swap sets {from} and {to}"),
            Self::List {
                name: Some(name), ..
            } => write!(f, "list set {name}"),
            Self::List { name: None, .. } => f.write_str("list sets"),
            Self::Add(name, entries) => write!(f, "add {} to set {name}", summary(entries)),
            Self::Delete(name, entries) => write!(f, "delete {} from set {name}", summary(entries)),
        }
    }
}

/// A type with its family, if it has one.
struct Kind(SetType, Option<Family>);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(family) => write!(f, "{} {family}", self.0),
            None => self.0.fmt(f),
        }
    }
}

fn summary(entries: &[Entry]) -> String {
    match entries {
        [entry] => entry.to_string(),
        _ => format!("{} entries", entries.len()),
    }
}
