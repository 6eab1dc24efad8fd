//! Sets and maps.

use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::{DecodeError, parse_u32_be, parse_u64_be};

use crate::attribute::{self, EncodeError, LIST_ELEMENT, TABLE, text};
use crate::family::TableId;
use crate::field::{self, Field};

pub(crate) const NAME: u16 = 2;
const FLAGS: u16 = 3;
const KEY_TYPE: u16 = 4;
const KEY_LENGTH: u16 = 5;
const DATA_TYPE: u16 = 6;
const DATA_LENGTH: u16 = 7;
const POLICY: u16 = 8;
const DESCRIPTION: u16 = 9;
const ID: u16 = 10;
const TIMEOUT: u16 = 11;
const GC_INTERVAL: u16 = 12;
const USER_DATA: u16 = 13;
const HANDLE: u16 = 16;

const DESCRIPTION_SIZE: u16 = 1;
const DESCRIPTION_CONCATENATION: u16 = 2;
const FIELD_LENGTH: u16 = 1;

const FLAG_ANONYMOUS: u32 = 1;
const FLAG_CONSTANT: u32 = 2;
const FLAG_INTERVAL: u32 = 4;
const FLAG_MAP: u32 = 8;
const FLAG_TIMEOUT: u32 = 0x10;
const FLAG_DYNAMIC: u32 = 0x20;
const FLAG_CONCATENATION: u32 = 0x80;
/// What the fields of a set express.
const FLAGS_KNOWN: u32 = FLAG_ANONYMOUS
    | FLAG_CONSTANT
    | FLAG_INTERVAL
    | FLAG_MAP
    | FLAG_TIMEOUT
    | FLAG_DYNAMIC
    | FLAG_CONCATENATION;

/// Items of `nft` in the user data: how it prints keys and data.
const KEY_ORDER: u8 = 0;
const DATA_ORDER: u8 = 1;
const ORDER_HOST: u32 = 1;
const ORDER_NETWORK: u32 = 2;
/// Of a concatenation: each component has the order of its type.
const ORDER_NONE: u32 = 0;

/// Properties of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetFlags {
    /// Its elements are intervals.
    pub interval: bool,
    /// Its elements can end by themselves.
    pub timeout: bool,
    /// Rules add and delete elements.
    pub dynamic: bool,
    /// Its elements do not change while a rule uses it.
    pub constant: bool,
    /// It belongs to a rule and has no name of its own.
    pub anonymous: bool,
    /// Other properties, as their bits.
    pub other: u32,
}

/// What the kernel chooses a set's form for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SetPolicy {
    /// Fast look-ups.
    #[default]
    Performance,
    /// Little memory.
    Memory,
}

/// A set, or a map if its elements have data. It does not contain its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: Arc<str>,
    /// The components of its keys.
    pub key: Vec<Field>,
    /// The components of its data, which make it a map.
    pub data: Option<Vec<Field>>,
    /// Its properties.
    pub flags: SetFlags,
    /// The highest number of elements. A hash set with a size is a table that is allocated for that number: about 8 to
    /// 16 bytes for each. Another one grows, and its list can be wrong meanwhile, see `Socket::elements`.
    pub size: Option<u32>,
    /// How long an element without a timeout of its own lives. Needs the flag `timeout`.
    pub timeout: Option<Duration>,
    /// How often the kernel looks for elements that ended.
    pub gc_interval: Option<Duration>,
    /// What its form is chosen for.
    pub policy: SetPolicy,
    /// Data of the program that added it, in the form of [`crate::user_data`], without the byte orders that `nft` needs:
    /// those are added on writing and taken away on reading.
    pub user_data: Vec<u8>,
    /// Its number, which no other object of the table has had. The kernel sets it.
    pub handle: Option<u64>,
}

impl Set {
    /// A set.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, key: impl IntoIterator<Item = Field>) -> Self {
        Self {
            name: name.into(),
            key: key.into_iter().collect(),
            data: None,
            flags: SetFlags::default(),
            size: None,
            timeout: None,
            gc_interval: None,
            policy: SetPolicy::default(),
            user_data: Vec::new(),
            handle: None,
        }
    }

    /// A map.
    #[must_use]
    pub fn map(
        name: impl Into<Arc<str>>,
        key: impl IntoIterator<Item = Field>,
        data: impl IntoIterator<Item = Field>,
    ) -> Self {
        Self {
            data: Some(data.into_iter().collect()),
            ..Self::new(name, key)
        }
    }

    /// The same set with intervals as elements.
    #[must_use]
    pub fn with_intervals(mut self) -> Self {
        self.flags.interval = true;
        self
    }

    /// The same set with a highest number of elements.
    #[must_use]
    pub fn with_size(self, size: u32) -> Self {
        Self {
            size: Some(size),
            ..self
        }
    }

    /// The same set, with elements that rules add and that end by themselves.
    #[must_use]
    pub fn dynamic(mut self, size: u32) -> Self {
        self.flags.dynamic = true;
        self.flags.timeout = true;
        self.with_size(size)
    }

    /// The same set without its handle, to compare it with a set that is to be written.
    #[must_use]
    pub fn as_written(self) -> Self {
        Self {
            handle: None,
            ..self
        }
    }

    /// The length of a key in bytes.
    #[must_use]
    pub fn key_bytes(&self) -> u32 {
        field::length(&self.key)
    }

    fn flag_bits(&self) -> u32 {
        // The kernel keeps intervals of a concatenation in another form, and has to know the components.
        let concatenation = self.flags.interval && self.key.len() > 1;
        attribute::bits(&[
            (self.flags.anonymous, FLAG_ANONYMOUS),
            (self.flags.constant, FLAG_CONSTANT),
            (self.flags.interval, FLAG_INTERVAL),
            (self.data.is_some(), FLAG_MAP),
            (self.flags.timeout, FLAG_TIMEOUT),
            (self.flags.dynamic, FLAG_DYNAMIC),
            (concatenation, FLAG_CONCATENATION),
        ]) | self.flags.other
    }

    /// Appends the set. `id` is a number of the set within its transaction, which the kernel demands.
    pub(crate) fn put(
        &self,
        table: &TableId,
        id: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        put_name(table, &self.name, buffer)?;
        if let Some(handle) = self.handle {
            attribute::put_u64(buffer, HANDLE, handle);
        }
        attribute::put_u32(buffer, FLAGS, self.flag_bits());
        attribute::put_u32(buffer, KEY_TYPE, field::kind(&self.key));
        attribute::put_u32(buffer, KEY_LENGTH, field::length(&self.key));
        if let Some(data) = &self.data {
            attribute::put_u32(buffer, DATA_TYPE, field::kind(data));
            attribute::put_u32(buffer, DATA_LENGTH, field::length(data));
        }
        if self.policy == SetPolicy::Memory {
            attribute::put_u32(buffer, POLICY, 1);
        }
        attribute::put_u32(buffer, ID, id);
        self.put_description(buffer)?;
        if let Some(timeout) = self.timeout {
            attribute::put_milliseconds(buffer, TIMEOUT, timeout);
        }
        if let Some(interval) = self.gc_interval {
            let milliseconds = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
            attribute::put_u32(buffer, GC_INTERVAL, milliseconds);
        }
        let mut data = self.orders();
        data.extend_from_slice(&self.user_data);
        attribute::put_slice(buffer, USER_DATA, &data)
    }

    fn put_description(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let is_concatenation = self.flag_bits() & FLAG_CONCATENATION != 0;
        if self.size.is_none() && !is_concatenation {
            return Ok(());
        }
        attribute::put_nested(buffer, DESCRIPTION, |description| {
            if let Some(size) = self.size {
                attribute::put_u32(description, DESCRIPTION_SIZE, size);
            }
            if !is_concatenation {
                return Ok(());
            }
            attribute::put_nested(description, DESCRIPTION_CONCATENATION, |list| {
                self.key.iter().try_for_each(|field| {
                    attribute::put_nested(list, LIST_ELEMENT, |b| {
                        attribute::put_u32(b, FIELD_LENGTH, field.length());
                        Ok(())
                    })
                })
            })
        })
    }

    /// The byte orders with which `nft` prints keys and data.
    fn orders(&self) -> Vec<u8> {
        let mut data = Vec::new();
        put_order(&mut data, KEY_ORDER, &self.key);
        if let Some(fields) = &self.data {
            put_order(&mut data, DATA_ORDER, fields);
        }
        data
    }

    /// Reads a set and the name of its table.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Arc<str>, Self), DecodeError> {
        let mut table = Arc::from("");
        let mut set = Self::new("", []);
        let mut numbers = Numbers::default();
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                TABLE => table = text(value),
                NAME => set.name = text(value),
                FLAGS => numbers.flags = parse_u32_be(value)?,
                KEY_TYPE => numbers.key_type = parse_u32_be(value)?,
                KEY_LENGTH => numbers.key_length = parse_u32_be(value)?,
                DATA_TYPE => numbers.data_type = parse_u32_be(value)?,
                DATA_LENGTH => numbers.data_length = parse_u32_be(value)?,
                POLICY if parse_u32_be(value)? == 1 => set.policy = SetPolicy::Memory,
                DESCRIPTION => set.size = parse_size(value)?,
                // The kernel lists 0 for no timeout.
                TIMEOUT => set.timeout = milliseconds(parse_u64_be(value)?),
                GC_INTERVAL => set.gc_interval = milliseconds(parse_u32_be(value)?.into()),
                USER_DATA => set.user_data = value.to_vec(),
                HANDLE => set.handle = Some(parse_u64_be(value)?),
                _ => {}
            }
        }
        numbers.fill(&mut set);
        let orders = set.orders();
        if set.user_data.starts_with(&orders) {
            set.user_data.drain(..orders.len());
        }
        Ok((table, set))
    }
}

/// Appends the names of a table and of a set.
pub(crate) fn put_name(
    table: &TableId,
    name: &str,
    buffer: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    attribute::put_text(buffer, TABLE, &table.name)?;
    attribute::put_text(buffer, NAME, name)
}

/// Numbers that are understood only together.
#[derive(Default)]
struct Numbers {
    flags: u32,
    key_type: u32,
    key_length: u32,
    data_type: u32,
    data_length: u32,
}

impl Numbers {
    fn fill(&self, set: &mut Set) {
        let has = |bit| self.flags & bit != 0;
        set.key = field::fields(self.key_type, self.key_length);
        set.data = has(FLAG_MAP).then(|| field::fields(self.data_type, self.data_length));
        let mut other = self.flags & !FLAGS_KNOWN;
        if has(FLAG_CONCATENATION) && (set.key.len() < 2 || !has(FLAG_INTERVAL)) {
            other |= FLAG_CONCATENATION;
        }
        set.flags = SetFlags {
            interval: has(FLAG_INTERVAL),
            timeout: has(FLAG_TIMEOUT),
            dynamic: has(FLAG_DYNAMIC),
            constant: has(FLAG_CONSTANT),
            anonymous: has(FLAG_ANONYMOUS),
            other,
        };
    }
}

fn put_order(data: &mut Vec<u8>, kind: u8, fields: &[Field]) {
    let order = match fields {
        [field] if field.is_host_order() => ORDER_HOST,
        [_] => ORDER_NETWORK,
        _ => ORDER_NONE,
    };
    let length = 4;
    data.extend_from_slice(&[kind, length]);
    data.extend_from_slice(&order.to_ne_bytes());
}

fn parse_size(value: &[u8]) -> Result<Option<u32>, DecodeError> {
    for item in attribute::attributes(value) {
        let item = item?;
        if item.kind() == DESCRIPTION_SIZE {
            return Ok(Some(parse_u32_be(item.value())?));
        }
    }
    Ok(None)
}

fn milliseconds(number: u64) -> Option<Duration> {
    (number > 0).then(|| Duration::from_millis(number))
}
