//! A duration as in settings: whole milliseconds, written like `1m30s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A duration in whole milliseconds, written as in Kubernetes: `30s`, `1m30s`, `250ms`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    milliseconds: u64,
}

impl Period {
    /// A duration of whole seconds.
    pub const fn seconds(seconds: u32) -> Self {
        // A widening conversion; `u64::from` is not const.
        #[allow(clippy::cast_lossless)]
        Self {
            milliseconds: seconds as u64 * 1000,
        }
    }

    /// A duration of whole milliseconds.
    pub const fn milliseconds(milliseconds: u64) -> Self {
        Self { milliseconds }
    }

    /// The duration in milliseconds.
    pub const fn as_milliseconds(self) -> u64 {
        self.milliseconds
    }

    /// The duration as a standard library value.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.milliseconds)
    }
}

/// Written like a Go duration without its zero parts: `1h`, `1m30s`, `250ms`, `0s`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milliseconds == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.milliseconds;
        for (unit, length) in UNITS {
            let count = rest / length;
            rest %= length;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Units and their lengths in milliseconds, longest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a duration; write whole numbers with units h, m, s or ms, like 30s or 1m30s"
)]
pub struct PeriodError {
    /// The text as received.
    pub text: String,
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let error = || PeriodError { text: text.into() };
        let mut rest = text;
        let mut milliseconds = 0u64;
        if rest.is_empty() {
            return Err(error());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let letters = tail
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let length = match UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, length)) => *length,
                // Go also writes a zero without a unit.
                None if unit.is_empty() && text == "0" => 0,
                None => return Err(error()),
            };
            let count: u64 = number.parse().map_err(|_| error())?;
            milliseconds = count
                .checked_mul(length)
                .and_then(|part| milliseconds.checked_add(part))
                .ok_or_else(error)?;
            rest = tail;
        }
        Ok(Self { milliseconds })
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
