//! A range of ports, such as that of node ports (S-222).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// An inclusive port range, written as `30000-32767`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

impl Default for PortRange {
    fn default() -> Self {
        Self {
            first: 30_000,
            last: 32_767,
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The text is not a port range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a port range; write the first and the last port, for example 30000-32767")]
pub struct PortRangeError {
    /// The text as received.
    pub text: String,
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let error = || PortRangeError { text: text.into() };
        let number = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').ok_or_else(error)?;
        let range = number(first).zip(number(last));
        let range = range.filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(error)?;
        Ok(Self { first, last })
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
