//! Answers of the kernel: versions, revisions, and sets in parts.

use netlink_packet_core::{DecodeError, DefaultNla, Parseable, parse_u8, parse_u32_be};

use crate::attribute::{self, EncodeError};
use crate::entry::Entry;
use crate::kind::{Family, SetType};
use crate::message::{self, Envelope, RawMessage};
use crate::options::{
    ATTR_ADT, ATTR_DATA, ATTR_FAMILY, ATTR_HASHSIZE, ATTR_MAXELEM, ATTR_MIN, ATTR_PROTOCOL,
    ATTR_REVISION, ATTR_SETNAME, ATTR_TIMEOUT, ATTR_TYPENAME,
};
use crate::request::{CMD_LIST, CMD_PROTOCOL, CMD_TYPE, Revisions};

const ELEMENTS: u16 = 24;
const REFERENCES: u16 = 25;
const MEMSIZE: u16 = 26;

/// The properties of a set, without its entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// The kernel's name of its type, which this crate may not know.
    pub type_name: String,
    /// Its family; `None` for types without a family, and if only names were requested.
    pub family: Option<Family>,
    /// Revision of the type.
    pub revision: u8,
    /// Number of buckets (hash types).
    pub hash_size: u32,
    /// Maximum number of entries (hash types).
    pub max_elements: u32,
    /// The timeout of entries in seconds; `None` if entries do not expire.
    pub timeout: Option<u32>,
    /// The number of rules and sets that use it; a set in use cannot be destroyed.
    pub references: u32,
    /// The number of entries; 0 on kernels before 4.9, which do not report it.
    pub elements: u32,
    /// Its size in the kernel's memory, in bytes.
    pub memory_bytes: u32,
    /// Attributes that this crate does not know.
    pub other: Vec<DefaultNla>,
}

impl Header {
    /// Its type, if this crate knows it.
    #[must_use]
    pub fn set_type(&self) -> Option<SetType> {
        SetType::from_name(&self.type_name)
    }
}

/// A set or a part of a set. A large set arrives in several messages, of which the first contains the header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetPart {
    /// Name of the set.
    pub name: String,
    /// Its header.
    pub header: Option<Header>,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Entries of types that this crate does not know, as received.
    pub other_entries: Vec<DefaultNla>,
}

/// An answer of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The oldest and newest protocol version.
    Protocol(Revisions),
    /// The oldest and newest revision of a type.
    Type(Revisions),
    /// A set or a part of a set.
    Set(SetPart),
}

impl Reply {
    /// Decodes an answer that is neither an acknowledgement nor the end of a dump.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, or its command is not one of these.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, attributes) = message::split(message)?;
        match command {
            CMD_PROTOCOL => parse_range(attributes, ATTR_PROTOCOL).map(Self::Protocol),
            CMD_TYPE => parse_range(attributes, ATTR_REVISION).map(Self::Type),
            CMD_LIST => parse_set(attributes).map(Self::Set),
            other => Err(DecodeError::from(format!(
                "ipset answer with unknown command {other}"
            ))),
        }
    }

    /// Appends the whole netlink message as a kernel would send it, for fake kernels and tests.
    ///
    /// # Errors
    /// [`EncodeError`] if there are more entries than fit into one message; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let command = match self {
            Self::Protocol(_) => CMD_PROTOCOL,
            Self::Type(_) => CMD_TYPE,
            Self::Set(_) => CMD_LIST,
        };
        envelope.put(buffer, command, 0, |payload| match self {
            Self::Protocol(range) => {
                attribute::put(payload, ATTR_PROTOCOL, &[range.max])?;
                attribute::put(payload, ATTR_MIN, &[range.min])
            }
            Self::Type(range) => {
                attribute::put(payload, ATTR_PROTOCOL, &[envelope.protocol])?;
                attribute::put(payload, ATTR_REVISION, &[range.max])?;
                attribute::put(payload, ATTR_MIN, &[range.min])
            }
            Self::Set(part) => {
                attribute::put(payload, ATTR_PROTOCOL, &[envelope.protocol])?;
                put_set(payload, part)
            }
        })
    }
}

fn parse_range(attributes: &[u8], max_kind: u16) -> Result<Revisions, DecodeError> {
    let mut max = None;
    let mut min = None;
    for item in attribute::attributes(attributes) {
        let item = item?;
        match item.kind() {
            kind if kind == max_kind => max = Some(parse_u8(item.value())?),
            ATTR_MIN => min = Some(parse_u8(item.value())?),
            _ => {}
        }
    }
    let max = max.ok_or("answer without a version")?;
    Ok(Revisions {
        min: min.unwrap_or(max),
        max,
    })
}

fn parse_set(attributes: &[u8]) -> Result<SetPart, DecodeError> {
    let mut part = SetPart::default();
    let mut header = Header::default();
    let mut has_header = false;
    for item in attribute::attributes(attributes) {
        let item = item?;
        let value = item.value();
        match item.kind() {
            ATTR_SETNAME => part.name = attribute::text(value),
            ATTR_TYPENAME => {
                header.type_name = attribute::text(value);
                has_header = true;
            }
            ATTR_FAMILY => header.family = Family::from_number(parse_u8(value)?),
            ATTR_REVISION => header.revision = parse_u8(value)?,
            ATTR_DATA => parse_header(value, &mut header)?,
            ATTR_ADT => parse_entries(value, &mut part)?,
            _ => {}
        }
    }
    if part.name.is_empty() {
        return Err(DecodeError::from("set without a name"));
    }
    if has_header {
        header.name.clone_from(&part.name);
        part.header = Some(header);
    }
    Ok(part)
}

fn parse_header(value: &[u8], header: &mut Header) -> Result<(), DecodeError> {
    for item in attribute::attributes(value) {
        let item = item?;
        let value = item.value();
        match item.kind() {
            ATTR_HASHSIZE => header.hash_size = parse_u32_be(value)?,
            ATTR_MAXELEM => header.max_elements = parse_u32_be(value)?,
            ATTR_TIMEOUT => header.timeout = Some(parse_u32_be(value)?),
            ELEMENTS => header.elements = parse_u32_be(value)?,
            REFERENCES => header.references = parse_u32_be(value)?,
            MEMSIZE => header.memory_bytes = parse_u32_be(value)?,
            _ => header.other.push(DefaultNla::parse(&item)?),
        }
    }
    Ok(())
}

fn parse_entries(value: &[u8], part: &mut SetPart) -> Result<(), DecodeError> {
    for item in attribute::attributes(value) {
        let item = item?;
        match Entry::parse(item.value())? {
            Some(entry) => part.entries.push(entry),
            None => part.other_entries.push(DefaultNla::parse(&item)?),
        }
    }
    Ok(())
}

fn put_set(buffer: &mut Vec<u8>, part: &SetPart) -> Result<(), EncodeError> {
    attribute::put_text(buffer, ATTR_SETNAME, &part.name)?;
    if let Some(header) = &part.header {
        attribute::put_text(buffer, ATTR_TYPENAME, &header.type_name)?;
        attribute::put(
            buffer,
            ATTR_FAMILY,
            &[header.family.map_or(0, Family::number)],
        )?;
        attribute::put(buffer, ATTR_REVISION, &[header.revision])?;
        attribute::put_nested(buffer, ATTR_DATA, |b| {
            attribute::put_u32(b, ATTR_HASHSIZE, header.hash_size)?;
            attribute::put_u32(b, ATTR_MAXELEM, header.max_elements)?;
            if let Some(seconds) = header.timeout {
                attribute::put_u32(b, ATTR_TIMEOUT, seconds)?;
            }
            attribute::put_other(b, &header.other)?;
            attribute::put_u32(b, REFERENCES, header.references)?;
            attribute::put_u32(b, MEMSIZE, header.memory_bytes)?;
            attribute::put_u32(b, ELEMENTS, header.elements)
        })?;
    }
    if part.entries.is_empty() && part.other_entries.is_empty() {
        return Ok(());
    }
    attribute::put_nested(buffer, ATTR_ADT, |list| {
        for entry in &part.entries {
            attribute::put_nested(list, ATTR_DATA, |b| entry.put(b))?;
        }
        attribute::put_other(list, &part.other_entries)
    })
}
