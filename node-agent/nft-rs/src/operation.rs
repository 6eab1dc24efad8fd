//! Requests that change nf_tables. The kernel accepts them only within a transaction.

use std::fmt;
use std::sync::Arc;

use netlink_packet_core::{DecodeError, NLM_F_APPEND, NLM_F_CREATE, parse_u64_be};

use crate::attribute::{self, EncodeError, TABLE, text};
use crate::chain::{self, Chain};
use crate::elements::Elements;
use crate::family::{Family, TableId};
use crate::message::{self, Envelope, RawMessage};
use crate::rule::{self, Rule};
use crate::set::{self, Set};
use crate::table::Table;

pub(crate) const NEW_TABLE: u8 = 0;
pub(crate) const GET_TABLE: u8 = 1;
const DELETE_TABLE: u8 = 2;
pub(crate) const NEW_CHAIN: u8 = 3;
pub(crate) const GET_CHAIN: u8 = 4;
const DELETE_CHAIN: u8 = 5;
pub(crate) const NEW_RULE: u8 = 6;
pub(crate) const GET_RULE: u8 = 7;
const DELETE_RULE: u8 = 8;
pub(crate) const NEW_SET: u8 = 9;
pub(crate) const GET_SET: u8 = 10;
const DELETE_SET: u8 = 11;
pub(crate) const NEW_ELEMENTS: u8 = 12;
pub(crate) const GET_ELEMENTS: u8 = 13;
const DELETE_ELEMENTS: u8 = 14;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Adds a table. An existing one is not an error.
    AddTable(Table),
    /// Deletes a table with everything in it.
    DeleteTable(TableId),
    /// Adds a chain. An existing one with the same hook is not an error.
    AddChain(TableId, Chain),
    /// Deletes a chain without rules, to which no rule leads.
    DeleteChain(TableId, Arc<str>),
    /// Adds a set. An existing one with the same properties is not an error.
    AddSet(TableId, Set),
    /// Deletes a set that no rule uses, with its elements.
    DeleteSet(TableId, Arc<str>),
    /// Adds a rule at the end of its chain, or after the rule of its position.
    AddRule(TableId, Rule),
    /// Deletes rules.
    DeleteRules {
        /// Their table.
        table: TableId,
        /// Their chain, or all chains of the table.
        chain: Option<Arc<str>>,
        /// One rule, or all.
        handle: Option<u64>,
    },
    /// Adds elements. An existing one with the same data is not an error.
    AddElements(Elements),
    /// Deletes elements. A missing one is an error.
    DeleteElements(Elements),
    /// Deletes all elements of a set.
    FlushSet(TableId, Arc<str>),
}

impl Operation {
    fn command(&self) -> u8 {
        match self {
            Self::AddTable(_) => NEW_TABLE,
            Self::DeleteTable(_) => DELETE_TABLE,
            Self::AddChain(..) => NEW_CHAIN,
            Self::DeleteChain(..) => DELETE_CHAIN,
            Self::AddSet(..) => NEW_SET,
            Self::DeleteSet(..) => DELETE_SET,
            Self::AddRule(..) => NEW_RULE,
            Self::DeleteRules { .. } => DELETE_RULE,
            Self::AddElements(_) => NEW_ELEMENTS,
            Self::DeleteElements(_) | Self::FlushSet(..) => DELETE_ELEMENTS,
        }
    }

    fn flags(&self) -> u16 {
        match self {
            Self::AddTable(_) | Self::AddChain(..) | Self::AddSet(..) | Self::AddElements(_) => {
                NLM_F_CREATE
            }
            // Without it, the rule becomes the first one.
            Self::AddRule(..) => NLM_F_CREATE | NLM_F_APPEND,
            _ => 0,
        }
    }

    /// The family of its table.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::AddTable(table) => table.family,
            Self::DeleteTable(table)
            | Self::AddChain(table, _)
            | Self::DeleteChain(table, _)
            | Self::AddSet(table, _)
            | Self::DeleteSet(table, _)
            | Self::AddRule(table, _)
            | Self::DeleteRules { table, .. }
            | Self::FlushSet(table, _) => table.family,
            Self::AddElements(elements) | Self::DeleteElements(elements) => elements.table.family,
        }
    }

    /// Appends the whole netlink message to `buffer`.
    ///
    /// # Errors
    /// [`EncodeError`] if a value is too long, or if there are more elements than fit into one message; `buffer` is
    /// then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        envelope.put(buffer, self.command(), self.family(), self.flags(), |b| {
            self.put_attributes(envelope.sequence, b)
        })
    }

    fn put_attributes(&self, id: u32, b: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::AddTable(table) => table.put(b),
            Self::DeleteTable(table) => attribute::put_text(b, attribute::NAME, &table.name),
            Self::AddChain(table, chain) => chain.put(table, b),
            Self::DeleteChain(table, name) => chain::put_name(table, name, b),
            Self::AddSet(table, set) => set.put(table, id, b),
            Self::DeleteSet(table, name) | Self::FlushSet(table, name) => {
                set::put_name(table, name, b)
            }
            Self::AddRule(table, rule) => rule.put(table, b),
            Self::DeleteRules {
                table,
                chain,
                handle,
            } => rule::put_name(table, chain.as_deref(), *handle, b),
            Self::AddElements(elements) | Self::DeleteElements(elements) => elements.put(b),
        }
    }

    /// Decodes a change, for errors, fake kernels and captures.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, or its command is not one of these.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, family, attributes) = message::split(message)?;
        let id = |name| TableId::new(family, name);
        Ok(match command {
            NEW_TABLE => Self::AddTable(Table::parse(family, attributes)?),
            DELETE_TABLE => Self::DeleteTable(Table::parse(family, attributes)?.id()),
            NEW_CHAIN => {
                let (table, chain) = Chain::parse(attributes)?;
                Self::AddChain(id(table), chain)
            }
            DELETE_CHAIN => {
                let (table, chain) = Chain::parse(attributes)?;
                Self::DeleteChain(id(table), chain.name)
            }
            NEW_SET => {
                let (table, set) = Set::parse(attributes)?;
                Self::AddSet(id(table), set)
            }
            DELETE_SET => {
                let (table, set) = Set::parse(attributes)?;
                Self::DeleteSet(id(table), set.name)
            }
            NEW_RULE => {
                let (table, rule) = Rule::parse(attributes)?;
                Self::AddRule(id(table), rule)
            }
            DELETE_RULE => parse_rules(family, attributes)?,
            NEW_ELEMENTS => Self::AddElements(Elements::parse(family, attributes)?.0),
            DELETE_ELEMENTS => match Elements::parse(family, attributes)? {
                (elements, true) => Self::DeleteElements(elements),
                (elements, false) => Self::FlushSet(elements.table, elements.set),
            },
            other => {
                return Err(DecodeError::from(format!(
                    "nf_tables command {other} is not a change"
                )));
            }
        })
    }
}

fn parse_rules(family: Family, attributes: &[u8]) -> Result<Operation, DecodeError> {
    let mut table = Arc::from("");
    let mut chain = None;
    let mut handle = None;
    for item in attribute::attributes(attributes) {
        let item = item?;
        match item.kind() {
            TABLE => table = text(item.value()),
            rule::CHAIN => chain = Some(text(item.value())),
            rule::HANDLE => handle = Some(parse_u64_be(item.value())?),
            _ => {}
        }
    }
    Ok(Operation::DeleteRules {
        table: TableId::new(family, table),
        chain,
        handle,
    })
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable(table) => write!(f, "add table {}", table.id()),
            Self::DeleteTable(table) => write!(f, "delete table {table}"),
            Self::AddChain(table, chain) => {
                write!(f, "add chain {} to table {table}", chain.name)
            }
            Self::DeleteChain(table, chain) => write!(f, "delete chain {chain} of table {table}"),
            Self::AddSet(table, set) => {
                let kind = if set.data.is_some() { "map" } else { "set" };
                write!(f, "add {kind} {} to table {table}", set.name)
            }
            Self::DeleteSet(table, set) => write!(f, "delete set {set} of table {table}"),
            Self::AddRule(table, rule) => {
                write!(f, "add rule to chain {} of table {table}", rule.chain)?;
                match &rule.comment {
                    Some(comment) => write!(f, " ({comment})"),
                    None => Ok(()),
                }
            }
            Self::DeleteRules {
                table,
                chain,
                handle,
            } => {
                match handle {
                    Some(handle) => write!(f, "delete rule {handle}")?,
                    None => f.write_str("delete all rules")?,
                }
                if let Some(chain) = chain {
                    write!(f, " of chain {chain}")?;
                }
                write!(f, " of table {table}")
            }
            Self::AddElements(of) => {
                write!(
                    f,
                    "add {} to set {} of table {}",
                    Count(of),
                    of.set,
                    of.table
                )
            }
            Self::DeleteElements(of) => {
                write!(
                    f,
                    "delete {} of set {} of table {}",
                    Count(of),
                    of.set,
                    of.table
                )
            }
            Self::FlushSet(table, set) => {
                write!(f, "delete all elements of set {set} of table {table}")
            }
        }
    }
}

/// One element, or how many there are.
struct Count<'a>(&'a Elements);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.elements.as_slice() {
            [element] => write!(f, "element {element}"),
            many => write!(f, "{} elements", many.len()),
        }
    }
}
