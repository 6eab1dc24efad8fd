//! Error numbers of nf_tables with what they mean.

use std::fmt;
use std::io;

/// An error number with which the kernel refused something, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The capability or the ownership of a table is missing.
    pub const NOT_PERMITTED: Self = Self(1);
    /// A table, chain, set, rule or element does not exist.
    pub const NOT_FOUND: Self = Self(2);
    /// No memory.
    pub const NO_MEMORY: Self = Self(12);
    /// A rule or an element uses the object.
    pub const IN_USE: Self = Self(16);
    /// It exists with other properties, or overlaps.
    pub const EXISTS: Self = Self(17);
    /// The kernel does not accept the form.
    pub const INVALID: Self = Self(22);
    /// The set has its highest number of elements.
    pub const SET_FULL: Self = Self(23);
    /// Chains lead to each other in a circle, or too deep.
    pub const TOO_DEEP: Self = Self(31);
    /// A value is too long for a message.
    pub const TOO_LONG: Self = Self(90);
    /// The kernel does not have an expression, a hook or a flag.
    pub const UNSUPPORTED: Self = Self(95);

    fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::NOT_PERMITTED => {
                "nf_tables needs CAP_NET_ADMIN (run as root or add the capability), and a table with an owner is \
                 changed only by the socket of its owner (nft list ruleset names the program)"
            }
            Self::NOT_FOUND => {
                "the table, chain, set or element does not exist, or the kernel does not have the expression (nft \
                 list ruleset shows what exists)"
            }
            Self::IN_USE => "a rule or an element uses it (nft list ruleset shows which)",
            Self::EXISTS => {
                "it exists already with other properties or data, or overlaps with an existing interval: delete that \
                 one in the same transaction"
            }
            Self::INVALID => "the kernel did not accept the form of the request",
            Self::SET_FULL => "the set is full: add another one with a larger size",
            Self::TOO_DEEP => "jumps between chains are too deep, or lead back to the chain",
            Self::TOO_LONG => "a value is too long for a message",
            Self::UNSUPPORTED => {
                "the kernel does not support a flag, a hook or an expression, or the flags of the table differ from \
                 those that it has"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{meaning} (error {})", self.0),
            None => io::Error::from_raw_os_error(self.0).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_says_what_to_check() {
        let exists = Errno::EXISTS.to_string();
        assert!(
            exists.contains("delete that one in the same transaction"),
            "{exists}"
        );
        assert!(exists.ends_with("(error 17)"), "{exists}");
        assert_eq!(
            Errno::NO_MEMORY.to_string(),
            "Cannot allocate memory (os error 12)"
        );
    }
}
