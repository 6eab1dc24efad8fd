//! Expressions that decide about a packet, and those that change sets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Register;
use crate::family::Family;

/// A decision about a packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The packet leaves the hook's chain of this priority and continues.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet continues in the chain from which it came.
    Return,
    /// The packet continues in the next rule.
    Continue,
    /// The packet enters a chain, and comes back at its end.
    Jump(Arc<str>),
    /// The packet enters a chain, and does not come back.
    Goto(Arc<str>),
    /// Another decision, by its number.
    Other(i32),
}

impl Verdict {
    /// Its number in messages.
    #[must_use]
    pub fn number(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Continue => -1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
            Self::Other(number) => *number,
        }
    }

    /// The chain to which it leads.
    #[must_use]
    pub fn chain(&self) -> Option<&Arc<str>> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    pub(super) fn from_number(number: i32, chain: Option<Arc<str>>) -> Self {
        match (number, chain) {
            (0, _) => Self::Drop,
            (1, _) => Self::Accept,
            (-1, _) => Self::Continue,
            (-3, Some(chain)) => Self::Jump(chain),
            (-4, Some(chain)) => Self::Goto(chain),
            (-5, _) => Self::Return,
            (other, _) => Self::Other(other),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Continue => f.write_str("continue"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Other(number) => write!(f, "verdict {number}"),
        }
    }
}

/// How a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reject {
    /// By a reset. The rule must match TCP only.
    TcpReset,
    /// By an ICMP or ICMPv6 message that the destination is unreachable, in a table of one family.
    IcmpUnreachable {
        /// The code of the message, in the numbers of its family.
        code: u8,
    },
    /// By an ICMP or ICMPv6 message, in a table of both families.
    IcmpxUnreachable {
        /// The code of the message, in numbers for both families (1 is the port).
        code: u8,
    },
}

impl Reject {
    /// By a message that the port is unreachable, in a table of this family.
    #[must_use]
    pub fn port_unreachable(family: Family) -> Self {
        match family {
            Family::Ipv4 => Self::IcmpUnreachable { code: 3 },
            Family::Ipv6 => Self::IcmpUnreachable { code: 4 },
            Family::Inet | Family::Bridge | Family::Other(_) => Self::IcmpxUnreachable { code: 1 },
        }
    }
}

/// What a rule does with an element of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetChange {
    /// Adds it if it is missing.
    Add,
    /// Adds it, or starts its timeout again.
    Update,
    /// Deletes it.
    Delete,
}

/// A change of an element of a set by a rule. Ends the rule if the set is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetUpdate {
    /// The name of the set, which must be dynamic.
    pub set: Arc<str>,
    /// The change.
    pub change: SetChange,
    /// The key of the element.
    pub key: Register,
    /// Its data, in a map.
    pub data: Option<Register>,
    /// Its timeout. `None` is the timeout of the set.
    pub timeout: Option<Duration>,
    /// Whether the rule continues only if the set is full.
    pub inverted: bool,
    /// Whether elements that the rule adds count the packets that update them, see [`Element::count`].
    ///
    /// [`Element::count`]: crate::Element::count
    pub counts: bool,
}
