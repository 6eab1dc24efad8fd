//! Requests to the kernel (`IPSET_CMD_*`).

use std::fmt;

use netlink_packet_core::{DecodeError, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

use crate::attribute::{self, EncodeError};
use crate::entry::{Entry, LINENO, PORT, PORT_TO};
use crate::kind::{Family, SetName, SetType};
use crate::message::{self, Envelope, RawMessage};
use crate::parts::Parts;

pub(crate) const CMD_PROTOCOL: u8 = 1;
pub(crate) const CMD_CREATE: u8 = 2;
const CMD_DESTROY: u8 = 3;
const CMD_SWAP: u8 = 6;
pub(crate) const CMD_LIST: u8 = 7;
const CMD_ADD: u8 = 9;
const CMD_DEL: u8 = 10;
pub(crate) const CMD_TYPE: u8 = 13;

pub(crate) const ATTR_PROTOCOL: u16 = 1;
pub(crate) const ATTR_SETNAME: u16 = 2;
/// Type of a set, or the second name of a swap.
pub(crate) const ATTR_TYPENAME: u16 = 3;
pub(crate) const ATTR_REVISION: u16 = 4;
pub(crate) const ATTR_FAMILY: u16 = 5;
pub(crate) const ATTR_FLAGS: u16 = 6;
/// Seconds that entries live; among the attributes of a new set or of its header, as of an entry.
pub(crate) const ATTR_TIMEOUT: u16 = 6;
pub(crate) const ATTR_DATA: u16 = 7;
pub(crate) const ATTR_ADT: u16 = 8;
/// Lowest protocol version or type revision.
pub(crate) const ATTR_MIN: u16 = 10;
pub(crate) const ATTR_HASHSIZE: u16 = 18;
pub(crate) const ATTR_MAXELEM: u16 = 19;

/// First and last port of a bitmap here.
pub(crate) const ALL_PORTS: (u16, u16) = (0, u16::MAX);

pub(crate) const FLAG_LIST_SETNAME: u32 = 2;
pub(crate) const FLAG_LIST_HEADER: u32 = 4;

/// Sizes of a new set, of which a bitmap has none, and how long its entries live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Buckets to begin with; the kernel rounds up to a power of two and grows them by itself.
    pub hash_size: u32,
    /// Most entries; adding more fails.
    pub max_elements: u32,
    /// Seconds after which the kernel removes an entry by itself, 1 to 2,147,483; 0 makes a set whose
    /// entries stay but could have a time each. `None` makes one whose entries stay.
    pub timeout: Option<u32>,
}

impl Default for CreateOptions {
    /// The defaults of the ipset program: 1024 buckets, 65,536 entries that stay.
    fn default() -> Self {
        Self {
            hash_size: 1024,
            max_elements: 65536,
            timeout: None,
        }
    }
}

impl CreateOptions {
    fn put(self, set_type: SetType, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        if set_type == SetType::BitmapPort {
            attribute::put_u16(buffer, PORT, ALL_PORTS.0)?;
            attribute::put_u16(buffer, PORT_TO, ALL_PORTS.1)?;
        }
        if let Some(seconds) = self.timeout {
            attribute::put_u32(buffer, ATTR_TIMEOUT, seconds)?;
        }
        if set_type == SetType::BitmapPort {
            return Ok(());
        }
        attribute::put_u32(buffer, ATTR_HASHSIZE, self.hash_size)?;
        attribute::put_u32(buffer, ATTR_MAXELEM, self.max_elements)
    }
}

/// Revisions of a set type that a kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions {
    /// Oldest.
    pub min: u8,
    /// Newest.
    pub max: u8,
}

impl Revisions {
    /// The oldest revision that has what this crate uses of a type. Not the newest: ipset programs
    /// refuse to list *any* set if one has a revision they do not know, and other containers on a
    /// machine bring old ones.
    #[must_use]
    pub fn choose(self, set_type: SetType) -> u8 {
        set_type.needed_revision().max(self.min).min(self.max)
    }
}

/// How much of sets a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Their names.
    Names,
    /// Names, types and sizes.
    Headers,
    /// Everything.
    Entries,
}

/// A request to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Which protocol versions it speaks.
    Protocol,
    /// Which revisions of a set type it has.
    Type {
        /// The type.
        set_type: SetType,
        /// For sets of this family, if the type has any.
        family: Option<Family>,
    },
    /// Creates a set; fails with `EEXIST` if the name is taken.
    Create {
        /// Its name.
        name: SetName,
        /// Its type.
        set_type: SetType,
        /// Revision of the type.
        revision: u8,
        /// Its family, if its type has any.
        family: Option<Family>,
        /// Its sizes.
        options: CreateOptions,
    },
    /// Destroys a set; fails if a rule uses it.
    Destroy(SetName),
    /// Exchanges the names of two sets of one type; rules follow the name.
    Swap(SetName, SetName),
    /// Lists one set or all.
    List {
        /// The set, or all.
        name: Option<SetName>,
        /// How much of it.
        detail: Detail,
    },
    /// Adds entries; those that are there already are fine.
    Add(SetName, Vec<Entry>),
    /// Deletes entries; those that are not there are fine.
    Delete(SetName, Vec<Entry>),
}

impl Request {
    /// Whether it changes the kernel; the others read.
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
            // Else destroying a set that is not there would succeed.
            Self::Destroy(_) => NLM_F_EXCL,
            // Without NLM_F_EXCL: an entry that is there, or gone, already is no error.
            _ => 0,
        }
    }

    /// Appends the whole netlink message to `buffer`.
    ///
    /// # Errors
    /// There are more entries than fit into one message; `buffer` is then as before.
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

    /// Reads a request; what a fake kernel or a capture needs.
    ///
    /// # Errors
    /// The message is cut short, its command is not one of these, a part is missing, or an entry
    /// is of a kind this crate does not have.
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
                return Err(DecodeError::from(format!(
                    "ipset command {other} is not known"
                )));
            }
        })
    }
}

/// The form that carries many entries. Each has a line number, counted from 1, and the message has
/// one for the kernel to overwrite: that is how it says which entry failed. The kernel only copies
/// the numbers; they are in network order as the ipset program writes them.
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
            Self::Protocol => f.write_str("ask for the protocol version"),
            Self::Type { set_type, family } => {
                write!(f, "ask for type {}", Kind(*set_type, *family))
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

/// A type with its family, if it has any.
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
