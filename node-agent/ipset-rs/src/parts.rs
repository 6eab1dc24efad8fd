//! Decodes the attributes of a request, for fake kernels and captures.

use netlink_packet_core::{DecodeError, parse_u8, parse_u16_be, parse_u32_be};

use crate::attribute;
use crate::entry::{Entry, PORT, PORT_TO};
use crate::kind::{Family, SetName, SetType};
use crate::options::{
    ALL_PORTS, ATTR_ADT, ATTR_DATA, ATTR_FAMILY, ATTR_FLAGS, ATTR_HASHSIZE, ATTR_MAXELEM,
    ATTR_REVISION, ATTR_SETNAME, ATTR_TIMEOUT, ATTR_TYPENAME, CMD_CREATE, CreateOptions, Detail,
    FLAG_LIST_HEADER, FLAG_LIST_SETNAME,
};

/// The attributes of a request, collected one by one.
pub(crate) struct Parts {
    command: u8,
    pub(crate) name: Option<SetName>,
    pub(crate) second: Option<String>,
    pub(crate) revision: Option<u8>,
    family: Option<u8>,
    flags: u32,
    options: CreateOptions,
    ports: Option<u16>,
    ports_to: Option<u16>,
    pub(crate) entries: Vec<Entry>,
}

impl Parts {
    pub(crate) fn parse(command: u8, attributes: &[u8]) -> Result<Self, DecodeError> {
        let mut parts = Self {
            command,
            name: None,
            second: None,
            revision: None,
            family: None,
            flags: 0,
            options: CreateOptions::default(),
            ports: None,
            ports_to: None,
            entries: Vec::new(),
        };
        for item in attribute::attributes(attributes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                ATTR_SETNAME => parts.name = Some(SetName::parse(value)?),
                ATTR_TYPENAME => parts.second = Some(attribute::text(value)),
                ATTR_REVISION => parts.revision = Some(parse_u8(value)?),
                ATTR_FAMILY => parts.family = Some(parse_u8(value)?),
                ATTR_FLAGS => parts.flags = parse_u32_be(value)?,
                ATTR_DATA => parts.take_data(value)?,
                ATTR_ADT => {
                    for entry in attribute::attributes(value) {
                        parts.take_entry(entry?.value())?;
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    /// Reads the options of a new set, or a single entry.
    fn take_data(&mut self, value: &[u8]) -> Result<(), DecodeError> {
        if self.command != CMD_CREATE {
            return self.take_entry(value);
        }
        for item in attribute::attributes(value) {
            let item = item?;
            match item.kind() {
                ATTR_HASHSIZE => self.options.hash_size = parse_u32_be(item.value())?,
                ATTR_MAXELEM => self.options.max_elements = parse_u32_be(item.value())?,
                ATTR_TIMEOUT => self.options.timeout = Some(parse_u32_be(item.value())?),
                PORT => self.ports = Some(parse_u16_be(item.value())?),
                PORT_TO => self.ports_to = Some(parse_u16_be(item.value())?),
                _ => {}
            }
        }
        Ok(())
    }

    /// The options of a new set.
    pub(crate) fn options(&self) -> Result<CreateOptions, DecodeError> {
        if self.set_type()? != SetType::BitmapPort {
            return Ok(self.options);
        }
        match (self.ports, self.ports_to) {
            (Some(from), Some(to)) if (from, to) == ALL_PORTS => Ok(CreateOptions {
                timeout: self.options.timeout,
                ..CreateOptions::default()
            }),
            range => Err(DecodeError::from(format!(
                "a bitmap of the ports {range:?} is not supported"
            ))),
        }
    }

    fn take_entry(&mut self, value: &[u8]) -> Result<(), DecodeError> {
        let entry = Entry::parse(value)?.ok_or("entry of an unknown kind")?;
        self.entries.push(entry);
        Ok(())
    }

    pub(crate) fn name(&self) -> Result<SetName, DecodeError> {
        Ok(self
            .name
            .clone()
            .ok_or("request without the name of a set")?)
    }

    pub(crate) fn set_type(&self) -> Result<SetType, DecodeError> {
        let name = self.second.as_deref().ok_or("request without set type")?;
        SetType::from_name(name)
            .ok_or_else(|| DecodeError::from(format!("unknown set type {name}")))
    }

    /// The family, if the type has one.
    pub(crate) fn family(&self) -> Result<Option<Family>, DecodeError> {
        let family = self.family.and_then(Family::from_number);
        match (self.set_type()?.has_family(), family) {
            (true, None) => Err(DecodeError::from("request without family")),
            (true, known) => Ok(known),
            (false, _) => Ok(None),
        }
    }

    pub(crate) fn detail(&self) -> Detail {
        if self.flags & FLAG_LIST_SETNAME != 0 {
            Detail::Names
        } else if self.flags & FLAG_LIST_HEADER != 0 {
            Detail::Headers
        } else {
            Detail::Entries
        }
    }
}
