//! Chains.

use std::sync::Arc;

use netlink_packet_core::{DecodeError, parse_i32_be, parse_u32_be, parse_u64_be};

use crate::attribute::{self, EncodeError, TABLE, text};
use crate::family::TableId;

const HANDLE: u16 = 2;
const NAME: u16 = 3;
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const USE: u16 = 6;
const TYPE: u16 = 7;
const USER_DATA: u16 = 12;

const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;

/// What a base chain is for, which limits its hooks and its expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainKind {
    /// Accepts and drops packets.
    Filter,
    /// Translates addresses. Only the first packet of a connection passes it.
    Nat,
    /// Routes a packet again after changing it, in the hook [`Hook::Output`].
    Route,
    /// Another kind, by its name.
    Other(Arc<str>),
}

impl ChainKind {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
            Self::Other(name) => name,
        }
    }

    fn from_name(name: Arc<str>) -> Self {
        match &*name {
            "filter" => Self::Filter,
            "nat" => Self::Nat,
            "route" => Self::Route,
            _ => Self::Other(name),
        }
    }
}

/// Where packets enter a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// After a packet arrived, before routing.
    Prerouting,
    /// To a process of this host.
    Input,
    /// To another host.
    Forward,
    /// From a process of this host.
    Output,
    /// After routing, before a packet is sent.
    Postrouting,
    /// Another hook, by its number.
    Other(u32),
}

impl Hook {
    /// Its number in messages.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Prerouting,
            1 => Self::Input,
            2 => Self::Forward,
            3 => Self::Output,
            4 => Self::Postrouting,
            other => Self::Other(other),
        }
    }
}

/// What happens to packets that reach the end of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// They continue.
    Accept,
    /// They are dropped.
    Drop,
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// What it is for.
    pub kind: ChainKind,
    /// Where packets enter it.
    pub hook: Hook,
    /// Its place among the chains of the hook, lower first.
    pub priority: i32,
    /// The policy. Without one the kernel accepts, and it always lists one.
    pub policy: Option<Policy>,
}

/// A chain of rules. The kernel sets the fields from `handle` on when it lists the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Arc<str>,
    /// For a base chain, its hook. Otherwise only rules lead to it.
    pub base: Option<Base>,
    /// Data of the program that added it, in the form of [`crate::user_data`].
    pub user_data: Vec<u8>,
    /// Its number, which no other object of the table has had.
    pub handle: Option<u64>,
    /// The number of its rules and of the rules that lead to it.
    pub uses: Option<u32>,
}

impl Chain {
    /// A chain to which rules lead.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            base: None,
            user_data: Vec::new(),
            handle: None,
            uses: None,
        }
    }

    /// A base chain that accepts.
    #[must_use]
    pub fn base(name: impl Into<Arc<str>>, kind: ChainKind, hook: Hook, priority: i32) -> Self {
        let base = Base {
            kind,
            hook,
            priority,
            policy: Some(Policy::Accept),
        };
        Self {
            base: Some(base),
            ..Self::new(name)
        }
    }

    /// The same chain without what only the kernel sets, to compare it with a chain that is to be written.
    #[must_use]
    pub fn as_written(self) -> Self {
        Self {
            handle: None,
            uses: None,
            ..self
        }
    }

    pub(crate) fn put(&self, table: &TableId, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        attribute::put_text(buffer, TABLE, &table.name)?;
        if let Some(handle) = self.handle {
            attribute::put_u64(buffer, HANDLE, handle);
        }
        attribute::put_text(buffer, NAME, &self.name)?;
        if let Some(base) = &self.base {
            attribute::put_text(buffer, TYPE, base.kind.name())?;
            match base.policy {
                Some(Policy::Drop) => attribute::put_u32(buffer, POLICY, 0),
                Some(Policy::Accept) => attribute::put_u32(buffer, POLICY, 1),
                None => {}
            }
            attribute::put_nested(buffer, HOOK, |hook| {
                attribute::put_u32(hook, HOOK_NUMBER, base.hook.number());
                attribute::put(hook, HOOK_PRIORITY, &base.priority.to_be_bytes());
                Ok(())
            })?;
        }
        if let Some(uses) = self.uses {
            attribute::put_u32(buffer, USE, uses);
        }
        if !self.user_data.is_empty() {
            attribute::put_slice(buffer, USER_DATA, &self.user_data)?;
        }
        Ok(())
    }

    /// Reads a chain and the name of its table.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Arc<str>, Self), DecodeError> {
        let mut table = Arc::from("");
        let mut chain = Self::new("");
        let mut kind = None;
        let mut hook = None;
        let mut policy = None;
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                TABLE => table = text(value),
                HANDLE => chain.handle = Some(parse_u64_be(value)?),
                NAME => chain.name = text(value),
                HOOK => hook = Some(parse_hook(value)?),
                POLICY => policy = parse_policy(value)?,
                USE => chain.uses = Some(parse_u32_be(value)?),
                TYPE => kind = Some(ChainKind::from_name(text(value))),
                USER_DATA => chain.user_data = value.to_vec(),
                _ => {}
            }
        }
        if let Some((hook, priority)) = hook {
            chain.base = Some(Base {
                kind: kind.unwrap_or(ChainKind::Filter),
                hook,
                priority,
                policy,
            });
        }
        Ok((table, chain))
    }
}

/// Appends the names of a table and of a chain.
pub(crate) fn put_name(
    table: &TableId,
    name: &str,
    buffer: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    attribute::put_text(buffer, TABLE, &table.name)?;
    attribute::put_text(buffer, NAME, name)
}

fn parse_policy(value: &[u8]) -> Result<Option<Policy>, DecodeError> {
    Ok(match parse_u32_be(value)? {
        0 => Some(Policy::Drop),
        1 => Some(Policy::Accept),
        _ => None,
    })
}

fn parse_hook(value: &[u8]) -> Result<(Hook, i32), DecodeError> {
    let mut hook = None;
    let mut priority = 0;
    for item in attribute::attributes(value) {
        let item = item?;
        match item.kind() {
            HOOK_NUMBER => hook = Some(Hook::from_number(parse_u32_be(item.value())?)),
            HOOK_PRIORITY => priority = parse_i32_be(item.value())?,
            _ => {}
        }
    }
    Ok((hook.ok_or("base chain without a hook")?, priority))
}
