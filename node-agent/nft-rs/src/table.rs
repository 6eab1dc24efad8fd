//! Tables.

use std::sync::Arc;

use netlink_packet_core::{DecodeError, parse_u32_be, parse_u64_be};

use crate::attribute::{self, EncodeError, NAME, text};
use crate::family::{Family, TableId};

const FLAGS: u16 = 2;
const USE: u16 = 3;
const HANDLE: u16 = 4;
const USER_DATA: u16 = 6;
const OWNER: u16 = 7;

const FLAG_DORMANT: u32 = 1;
const FLAG_OWNER: u32 = 2;
const FLAG_PERSIST: u32 = 4;

/// Properties of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableFlags {
    /// Its chains are not active.
    pub dormant: bool,
    /// Only the socket that added it can change it, and it is deleted with that socket. Needs kernel 5.12.
    pub owner: bool,
    /// It stays when the socket of its owner is closed. Any socket can then adopt it by adding it with `owner`. Needs
    /// kernel 6.9.
    pub persist: bool,
}

/// A table. The kernel sets the fields from `handle` on when it lists the table; they are ignored on writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The packets that its chains process.
    pub family: Family,
    /// Its name.
    pub name: Arc<str>,
    /// Its properties.
    pub flags: TableFlags,
    /// Data of the program that added it, in the form of [`crate::user_data`]. It cannot be changed later.
    pub user_data: Vec<u8>,
    /// Its number, which no other table of the namespace has had.
    pub handle: Option<u64>,
    /// The number of its chains, sets and other objects.
    pub uses: Option<u32>,
    /// The port of the socket that owns it.
    pub owner: Option<u32>,
}

impl Table {
    /// A table without properties.
    #[must_use]
    pub fn new(family: Family, name: impl Into<Arc<str>>) -> Self {
        Self {
            family,
            name: name.into(),
            flags: TableFlags::default(),
            user_data: Vec::new(),
            handle: None,
            uses: None,
            owner: None,
        }
    }

    /// What identifies it.
    #[must_use]
    pub fn id(&self) -> TableId {
        TableId {
            family: self.family,
            name: Arc::clone(&self.name),
        }
    }

    /// The same table without what only the kernel sets, to compare it with a table that is to be written.
    #[must_use]
    pub fn as_written(self) -> Self {
        Self {
            handle: None,
            uses: None,
            owner: None,
            ..self
        }
    }

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        attribute::put_text(buffer, NAME, &self.name)?;
        let flags = [
            (self.flags.dormant, FLAG_DORMANT),
            (self.flags.owner, FLAG_OWNER),
            (self.flags.persist, FLAG_PERSIST),
        ];
        attribute::put_u32(buffer, FLAGS, attribute::bits(&flags));
        if let Some(uses) = self.uses {
            attribute::put_u32(buffer, USE, uses);
        }
        if let Some(handle) = self.handle {
            attribute::put_u64(buffer, HANDLE, handle);
        }
        if !self.user_data.is_empty() {
            attribute::put_slice(buffer, USER_DATA, &self.user_data)?;
        }
        if let Some(owner) = self.owner {
            attribute::put_u32(buffer, OWNER, owner);
        }
        Ok(())
    }

    pub(crate) fn parse(family: Family, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut table = Self::new(family, "");
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                NAME => table.name = text(value),
                FLAGS => {
                    let flags = parse_u32_be(value)?;
                    table.flags = TableFlags {
                        dormant: flags & FLAG_DORMANT != 0,
                        owner: flags & FLAG_OWNER != 0,
                        persist: flags & FLAG_PERSIST != 0,
                    };
                }
                USE => table.uses = Some(parse_u32_be(value)?),
                HANDLE => table.handle = Some(parse_u64_be(value)?),
                USER_DATA => table.user_data = value.to_vec(),
                OWNER => table.owner = Some(parse_u32_be(value)?),
                _ => {}
            }
        }
        Ok(table)
    }
}
