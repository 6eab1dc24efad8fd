//! Items of a batch to and from changes of a plan.

use bytes::Bytes;
use portolan_plan::{Change, EntryHash, EntryKey};

use crate::{DecodeError, decode_entry, wire};

/// The item that puts these bytes under this key.
pub fn upsert(key: &EntryKey, value: Bytes) -> wire::Item {
    let upsert = wire::Upsert {
        key: key.to_string(),
        value,
    };
    wire::Item {
        item: Some(wire::item::Item::Upsert(upsert)),
    }
}

/// The item that removes this key.
pub fn remove(key: &EntryKey) -> wire::Item {
    wire::Item {
        item: Some(wire::item::Item::Remove(key.to_string())),
    }
}

/// The change that an item received makes, and why its value could not be read, if so. An item
/// without content, of a kind that a newer controller may send, changes nothing; if it mattered,
/// the hash of the batch will tell.
pub fn read(item: wire::Item) -> Option<(Change, Option<DecodeError>)> {
    match item.item? {
        wire::item::Item::Upsert(wire::Upsert { key, value }) => {
            let key = EntryKey::from_peer(&key);
            let hash = EntryHash::of(&key, &value);
            let (entry, error) = match decode_entry(&key, &value) {
                Ok(entry) => (Some(entry), None),
                Err(error) => (None, Some(error)),
            };
            Some((Change::Upsert { key, hash, entry }, error))
        }
        wire::item::Item::Remove(key) => Some((
            Change::Remove {
                key: EntryKey::from_peer(&key),
            },
            None,
        )),
    }
}
