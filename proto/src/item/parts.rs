//! Joins the parts of entries that are too large for one item.

use bytes::Bytes;
use portolan_plan::{EntryHasher, EntryKey};
use prost::Message as _;

use super::{HeldList, ReadItem, change, upserted};
use crate::field::DecodeError;
use crate::{MAX_ENTRY_BYTES, decode_entry, wire};

/// Decodes the items of a batch, and joins the parts of entries.
#[derive(Debug, Default)]
pub struct Reader {
    open: Option<Partial>,
}

/// An entry of which not all parts have arrived.
#[derive(Debug)]
struct Partial {
    key: EntryKey,
    hasher: EntryHasher,
    length: usize,
    /// Empty once there are more than [`MAX_ENTRY_BYTES`].
    bytes: Vec<u8>,
}

impl Reader {
    /// Decodes a received item into a change, with the reason if its value could not be decoded. `held` returns the list
    /// to which a patch applies.
    ///
    /// `None` if the item changes nothing yet: it is empty, it is of a kind that only a newer controller knows, it
    /// patches a list other than the one held, or it is a part before the last one. Parts that another item interrupts
    /// are dropped. If the change was needed, the hash of the batch does not match.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not an item.
    pub fn read(
        &mut self,
        item: Bytes,
        held: impl FnOnce(&EntryKey) -> Option<HeldList>,
    ) -> Result<Option<ReadItem>, DecodeError> {
        match wire::Item::decode(item)?.item {
            Some(wire::item::Item::Part(part)) => Ok(self.part(&part)),
            other => {
                self.open = None;
                change(other, held)
            }
        }
    }

    fn part(&mut self, part: &wire::Part) -> Option<ReadItem> {
        let key = EntryKey::from_peer(&part.key);
        let open = self.open.take().filter(|open| open.key == key);
        let mut open = open.unwrap_or_else(|| Partial::new(key));
        open.push(&part.value);
        if part.last {
            return Some(open.finish());
        }
        self.open = Some(open);
        None
    }
}

impl Partial {
    fn new(key: EntryKey) -> Self {
        Self {
            hasher: EntryHasher::new(&key),
            key,
            length: 0,
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.length = self.length.saturating_add(bytes.len());
        if self.length <= MAX_ENTRY_BYTES {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.bytes = Vec::new();
        }
    }

    fn finish(self) -> ReadItem {
        let decoded = if self.length <= MAX_ENTRY_BYTES {
            decode_entry(&self.key, &self.bytes)
        } else {
            Err(DecodeError::TooLarge {
                bytes: self.length,
                most: MAX_ENTRY_BYTES,
            })
        };
        upserted(self.key, self.hasher.finish(), decoded)
    }
}
