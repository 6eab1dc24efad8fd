//! Elements of sets and maps.

use std::fmt;
use std::time::Duration;

use netlink_packet_core::{DecodeError, DefaultNla, Nla as _, parse_u32_be, parse_u64_be};

use crate::attribute::{self, EncodeError, data, put_data};
use crate::bytes::Bytes;
use crate::expression::Expression;

const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const TIMEOUT: u16 = 4;
const EXPIRATION: u16 = 5;
const EXPRESSION: u16 = 7;
const KEY_END: u16 = 10;

const FLAG_INTERVAL_END: u32 = 1;
const FLAG_CATCH_ALL: u32 = 2;

/// An element of a set, or of a map with its data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// Its key; in an interval set, the first key.
    pub key: Bytes,
    /// The last key of an interval (inclusive), in a set whose key is a concatenation.
    pub key_end: Option<Bytes>,
    /// Whether the key is the first one after an interval, in a set whose key has one component.
    pub interval_end: bool,
    /// Whether it matches each key that no other element matches. It has no key.
    pub catch_all: bool,
    /// Its data, in a map.
    pub data: Option<Bytes>,
    /// How long it lives, in a set with a timeout. `None` is the timeout of the set.
    pub timeout: Option<Duration>,
    /// How long it still lives. On writing, the kernel takes it in place of the timeout for the first time.
    pub expiration: Option<Duration>,
    /// Attributes that this crate does not know (a verdict, a comment, a counter), as received.
    pub other: Vec<DefaultNla>,
}

/// The packets that an element has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Their number.
    pub packets: u64,
    /// The number of their bytes.
    pub bytes: u64,
}

impl Element {
    /// An element of a set.
    #[must_use]
    pub fn new(key: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }

    /// An element of a map.
    #[must_use]
    pub fn with_data(key: impl Into<Bytes>, data: impl Into<Bytes>) -> Self {
        Self {
            data: Some(data.into()),
            ..Self::new(key)
        }
    }

    /// An interval of keys that are concatenations, both ends included: each component has its own interval.
    #[must_use]
    pub fn range(first: impl Into<Bytes>, last: impl Into<Bytes>) -> Self {
        Self {
            key_end: Some(last.into()),
            ..Self::new(first)
        }
    }

    /// The element that ends the interval before it, in a set whose key has one component.
    #[must_use]
    pub fn end_of_interval(key: impl Into<Bytes>) -> Self {
        Self {
            interval_end: true,
            ..Self::new(key)
        }
    }

    /// The elements of an interval of keys with one component, both ends included: its start, and its end unless it
    /// reaches the highest key.
    #[must_use]
    pub fn interval(first: &[u8], last: &[u8]) -> Vec<Self> {
        let start = Self::new(first);
        match next(last) {
            Some(after) => vec![start, Self::end_of_interval(after)],
            None => vec![start],
        }
    }

    /// The same element with a timeout.
    #[must_use]
    pub fn living(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// What it has counted; `None` if it does not count, or the kernel lists more than a counter.
    #[must_use]
    pub fn count(&self) -> Option<Count> {
        let counter = self.other.iter().find(|other| other.kind() == EXPRESSION)?;
        let mut value = vec![0; counter.value_len()];
        counter.emit_value(&mut value);
        match Expression::parse(&value) {
            Ok(Expression::Counter { packets, bytes }) => Some(Count { packets, bytes }),
            _ => None,
        }
    }

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.catch_all {
            put_data(buffer, KEY, &self.key)?;
        }
        if let Some(last) = &self.key_end {
            put_data(buffer, KEY_END, last)?;
        }
        let flags = attribute::bits(&[
            (self.interval_end, FLAG_INTERVAL_END),
            (self.catch_all, FLAG_CATCH_ALL),
        ]);
        if flags != 0 {
            attribute::put_u32(buffer, FLAGS, flags);
        }
        if let Some(data) = &self.data {
            put_data(buffer, DATA, data)?;
        }
        if let Some(timeout) = self.timeout {
            attribute::put_milliseconds(buffer, TIMEOUT, timeout);
        }
        if let Some(expiration) = self.expiration {
            attribute::put_milliseconds(buffer, EXPIRATION, expiration);
        }
        attribute::put_other(buffer, &self.other)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut element = Self::default();
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                KEY => element.key = data(value)?.ok_or("key without a value")?,
                KEY_END => element.key_end = data(value)?,
                DATA => match data(value)? {
                    Some(data) => element.data = Some(data),
                    None => element.other.push(attribute::keep(&item)?),
                },
                FLAGS => {
                    let flags = parse_u32_be(value)?;
                    element.interval_end = flags & FLAG_INTERVAL_END != 0;
                    element.catch_all = flags & FLAG_CATCH_ALL != 0;
                }
                TIMEOUT => element.timeout = Some(Duration::from_millis(parse_u64_be(value)?)),
                EXPIRATION => {
                    element.expiration = Some(Duration::from_millis(parse_u64_be(value)?));
                }
                _ => element.other.push(attribute::keep(&item)?),
            }
        }
        if element.catch_all {
            element.key = Bytes::new();
        }
        Ok(element)
    }
}

/// The key after `key`, as a number in network byte order; `None` after the highest one.
fn next(key: &[u8]) -> Option<Bytes> {
    let mut after = key.to_vec();
    for byte in after.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(after.into());
        }
    }
    None
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.catch_all {
            f.write_str("*")?;
        } else if self.interval_end {
            write!(f, "end of interval {}", self.key)?;
        } else {
            self.key.fmt(f)?;
        }
        if let Some(last) = &self.key_end {
            write!(f, " to {last}")?;
        }
        if let Some(data) = &self.data {
            write!(f, " : {data}")?;
        }
        if let Some(timeout) = self.timeout {
            write!(f, " timeout {timeout:?}")?;
        }
        Ok(())
    }
}
