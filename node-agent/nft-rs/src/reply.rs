//! Answers of the kernel: listed objects, generations, and what it reports to all listeners.

use std::sync::Arc;

use netlink_packet_core::{DecodeError, parse_u32_be};

use crate::attribute::{self, EncodeError, text};
use crate::chain::Chain;
use crate::elements::Elements;
use crate::family::{Family, TableId};
use crate::message::{self, Envelope, RawMessage};
use crate::operation::{NEW_CHAIN, NEW_ELEMENTS, NEW_RULE, NEW_SET, NEW_TABLE};
use crate::rule::Rule;
use crate::set::Set;
use crate::table::Table;

const NEW_GENERATION: u8 = 15;

const GENERATION_ID: u16 = 1;
const PROCESS_ID: u16 = 2;
const PROCESS_NAME: u16 = 3;

/// The state of nf_tables in a network namespace: each transaction makes another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Generation {
    /// Its number, which wraps.
    pub id: u32,
    /// The thread that made it (in a report), or that asked: its number in the first process namespace.
    pub process: Option<u32>,
    /// The name of that thread, which is that of its process unless it was changed.
    pub process_name: Option<Arc<str>>,
}

/// A message from the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A table.
    Table(Table),
    /// A chain.
    Chain(TableId, Chain),
    /// A set or a map, without its elements.
    Set(TableId, Set),
    /// A rule.
    Rule(TableId, Rule),
    /// Elements of a set.
    Elements(Elements),
    /// The generation.
    Generation(Generation),
    /// Another message, by its command.
    Other(u8),
}

impl Reply {
    /// Decodes a message from the kernel.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, or not of nf_tables.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, family, attributes) = message::split(message)?;
        let id = |name| TableId::new(family, name);
        Ok(match command {
            NEW_TABLE => Self::Table(Table::parse(family, attributes)?),
            NEW_CHAIN => {
                let (table, chain) = Chain::parse(attributes)?;
                Self::Chain(id(table), chain)
            }
            NEW_SET => {
                let (table, set) = Set::parse(attributes)?;
                Self::Set(id(table), set)
            }
            NEW_RULE => {
                let (table, rule) = Rule::parse(attributes)?;
                Self::Rule(id(table), rule)
            }
            NEW_ELEMENTS => Self::Elements(Elements::parse(family, attributes)?.0),
            NEW_GENERATION => Self::Generation(parse_generation(attributes)?),
            other => Self::Other(other),
        })
    }

    /// Appends the message as the kernel writes it, for fake kernels and tests.
    ///
    /// # Errors
    /// [`EncodeError`] if a value is too long; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (command, family) = match self {
            Self::Table(table) => (NEW_TABLE, table.family),
            Self::Chain(table, _) => (NEW_CHAIN, table.family),
            Self::Set(table, _) => (NEW_SET, table.family),
            Self::Rule(table, _) => (NEW_RULE, table.family),
            Self::Elements(elements) => (NEW_ELEMENTS, elements.table.family),
            Self::Generation(_) => (NEW_GENERATION, Family::Other(0)),
            Self::Other(command) => (*command, Family::Other(0)),
        };
        envelope.put(buffer, command, family, 0, |b| match self {
            Self::Table(table) => table.put(b),
            Self::Chain(table, chain) => chain.put(table, b),
            Self::Set(table, set) => set.put(table, envelope.sequence, b),
            Self::Rule(table, rule) => rule.put(table, b),
            Self::Elements(elements) => elements.put(b),
            Self::Generation(generation) => put_generation(b, generation),
            Self::Other(_) => Ok(()),
        })
    }
}

fn put_generation(b: &mut Vec<u8>, generation: &Generation) -> Result<(), EncodeError> {
    attribute::put_u32(b, GENERATION_ID, generation.id);
    if let Some(process) = generation.process {
        attribute::put_u32(b, PROCESS_ID, process);
    }
    match &generation.process_name {
        Some(name) => attribute::put_text(b, PROCESS_NAME, name),
        None => Ok(()),
    }
}

fn parse_generation(attributes: &[u8]) -> Result<Generation, DecodeError> {
    let mut generation = Generation::default();
    let mut id = None;
    for item in attribute::attributes(attributes) {
        let item = item?;
        let value = item.value();
        match item.kind() {
            GENERATION_ID => id = Some(parse_u32_be(value)?),
            PROCESS_ID => generation.process = Some(parse_u32_be(value)?),
            PROCESS_NAME => generation.process_name = Some(text(value)),
            _ => {}
        }
    }
    generation.id = id.ok_or("generation without a number")?;
    Ok(generation)
}
