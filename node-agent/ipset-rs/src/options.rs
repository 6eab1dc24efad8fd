//! Attributes of requests, and the options of a new set and of a list.

use crate::attribute::{self, EncodeError};
use crate::entry::{PORT, PORT_TO};
use crate::kind::SetType;

pub(crate) const CMD_CREATE: u8 = 2;

pub(crate) const ATTR_PROTOCOL: u16 = 1;
pub(crate) const ATTR_SETNAME: u16 = 2;
/// Type of a set, or the second name of a swap.
pub(crate) const ATTR_TYPENAME: u16 = 3;
pub(crate) const ATTR_REVISION: u16 = 4;
pub(crate) const ATTR_FAMILY: u16 = 5;
pub(crate) const ATTR_FLAGS: u16 = 6;
/// The timeout of entries in seconds; an attribute of a new set and of a set's header, as of an entry.
pub(crate) const ATTR_TIMEOUT: u16 = 6;
pub(crate) const ATTR_DATA: u16 = 7;
pub(crate) const ATTR_ADT: u16 = 8;
/// The lowest protocol version or type revision.
pub(crate) const ATTR_MIN: u16 = 10;
pub(crate) const ATTR_HASHSIZE: u16 = 18;
pub(crate) const ATTR_MAXELEM: u16 = 19;

/// The first and last port of a bitmap in this crate.
pub(crate) const ALL_PORTS: (u16, u16) = (0, u16::MAX);

pub(crate) const FLAG_LIST_SETNAME: u32 = 2;
pub(crate) const FLAG_LIST_HEADER: u32 = 4;

/// The sizes of a new set, which do not apply to a bitmap, and the timeout of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Initial number of buckets; the kernel rounds it up to a power of two and increases it as needed.
    pub hash_size: u32,
    /// Maximum number of entries; adding more fails.
    pub max_elements: u32,
    /// The default timeout in seconds after which the kernel removes an entry, 1 to 2,147,483. With 0, entries do not
    /// expire unless they have their own timeout. `None` creates a set without timeouts.
    pub timeout: Option<u32>,
}

impl Default for CreateOptions {
    /// The defaults of the ipset program: 1024 buckets, 65,536 entries, no timeout.
    fn default() -> Self {
        Self {
            hash_size: 1024,
            max_elements: 65536,
            timeout: None,
        }
    }
}

impl CreateOptions {
    pub(crate) fn put(self, set_type: SetType, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        if set_type == SetType::BitmapPort {
            attribute::put_u16(buffer, PORT, ALL_PORTS.0)?;
            attribute::put_u16(buffer, PORT_TO, ALL_PORTS.1)?;
        }
        if let Some(seconds) = self.timeout {
            attribute::put_u32(buffer, ATTR_TIMEOUT, seconds)?;
        }
        if set_type == SetType::BitmapPort {
            return Ok(());
        }
        attribute::put_u32(buffer, ATTR_HASHSIZE, self.hash_size)?;
        attribute::put_u32(buffer, ATTR_MAXELEM, self.max_elements)
    }
}

/// The level of detail of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Names only.
    Names,
    /// Names, types and sizes.
    Headers,
    /// Everything, including entries.
    Entries,
}
