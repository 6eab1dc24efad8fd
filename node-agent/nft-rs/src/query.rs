//! Requests that only read.

use std::fmt;
use std::sync::Arc;

use netlink_packet_core::NLM_F_DUMP;

use crate::attribute::{self, EncodeError, TABLE};
use crate::family::{Family, TableId};
use crate::message::Envelope;
use crate::operation::{GET_CHAIN, GET_ELEMENTS, GET_RULE, GET_SET, GET_TABLE};
use crate::set;

const GET_GENERATION: u8 = 16;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Query {
    /// The tables of a family, or all.
    Tables(Option<Family>),
    /// The chains of a table. The kernel lists those of all tables of its family.
    Chains(TableId),
    /// The sets of a table.
    Sets(TableId),
    /// The rules of a table.
    Rules(TableId),
    /// The elements of a set.
    Elements(TableId, Arc<str>),
    /// The generation.
    Generation,
}

impl Query {
    fn command(&self) -> u8 {
        match self {
            Self::Tables(_) => GET_TABLE,
            Self::Chains(_) => GET_CHAIN,
            Self::Sets(_) => GET_SET,
            Self::Rules(_) => GET_RULE,
            Self::Elements(..) => GET_ELEMENTS,
            Self::Generation => GET_GENERATION,
        }
    }

    fn family(&self) -> Family {
        match self {
            Self::Tables(Some(family)) => *family,
            Self::Tables(None) | Self::Generation => Family::Other(0),
            Self::Chains(table)
            | Self::Sets(table)
            | Self::Rules(table)
            | Self::Elements(table, _) => table.family,
        }
    }

    /// Whether the answer is a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        !matches!(self, Self::Generation)
    }

    /// Appends the whole netlink message to `buffer`.
    ///
    /// # Errors
    /// [`EncodeError`] if a name is too long; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let flags = if self.is_list() { NLM_F_DUMP } else { 0 };
        envelope.put(
            buffer,
            self.command(),
            self.family(),
            flags,
            |b| match self {
                Self::Tables(_) | Self::Chains(_) | Self::Generation => Ok(()),
                Self::Sets(table) | Self::Rules(table) => {
                    attribute::put_text(b, TABLE, &table.name)
                }
                Self::Elements(table, name) => set::put_name(table, name, b),
            },
        )
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tables(_) => f.write_str("list tables"),
            Self::Chains(table) => write!(f, "list the chains of table {table}"),
            Self::Sets(table) => write!(f, "list the sets of table {table}"),
            Self::Rules(table) => write!(f, "list the rules of table {table}"),
            Self::Elements(table, set) => {
                write!(f, "list the elements of set {set} of table {table}")
            }
            Self::Generation => f.write_str("read the generation"),
        }
    }
}
