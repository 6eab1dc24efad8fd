//! Converts items of a batch to and from changes to a plan. An item is encoded once and sent to many nodes.

mod parts;

use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{BackendList, Change, Entry, EntryHash, EntryKey, Family};
use prost::Message as _;

use crate::decode;
use crate::field::DecodeError;
use crate::{CHUNK_BYTES, decode_entry, encode, encode_entry, wire};

pub use parts::Reader;

/// The item that sets the entry of this key to these bytes.
pub fn upsert(key: &EntryKey, value: Bytes) -> Bytes {
    item(wire::item::Item::Upsert(wire::Upsert {
        key: key.to_string(),
        value,
    }))
}

/// The items that set the entry of this key to these bytes: one, or several parts if there are more than
/// [`CHUNK_BYTES`]. So no item is much larger than that.
pub fn upserts(key: &EntryKey, mut value: Bytes) -> Vec<Bytes> {
    if value.len() <= CHUNK_BYTES {
        return vec![upsert(key, value)];
    }
    let key = key.to_string();
    let part = |value, last| {
        let key = key.clone();
        item(wire::item::Item::Part(wire::Part { key, value, last }))
    };
    let mut items = Vec::new();
    while value.len() > CHUNK_BYTES {
        items.push(part(value.split_to(CHUNK_BYTES), false));
    }
    items.push(part(value, true));
    items
}

/// The item that removes the entry of this key.
pub fn remove(key: &EntryKey) -> Bytes {
    item(wire::item::Item::Remove(key.to_string()))
}

/// The item that changes list `from`, whose bytes have the hash `base`, into list `to`.
pub fn patch(key: &EntryKey, base: EntryHash, from: &BackendList, to: &BackendList) -> Bytes {
    let (gone, new) = from.patch_to(to);
    item(wire::item::Item::Patch(wire::Patch {
        key: key.to_string(),
        base_hash: base.0.to_be_bytes().to_vec(),
        remove: Some(encode::list(&gone)),
        add: Some(encode::list(&new)),
    }))
}

fn item(item: wire::item::Item) -> Bytes {
    wire::Item { item: Some(item) }.encode_to_vec().into()
}

/// A list that the receiver holds, with the hash of its bytes.
pub type HeldList = (EntryHash, Arc<BackendList>);

/// A change, and the reason if its value could not be decoded.
pub type ReadItem = (Change, Option<DecodeError>);

/// Decodes a received item that is not a part of an entry; see [`Reader::read`].
///
/// # Errors
/// [`DecodeError`] if the bytes are not an item.
pub fn read(
    item: Bytes,
    held: impl FnOnce(&EntryKey) -> Option<HeldList>,
) -> Result<Option<ReadItem>, DecodeError> {
    Reader::default().read(item, held)
}

fn change(
    item: Option<wire::item::Item>,
    held: impl FnOnce(&EntryKey) -> Option<HeldList>,
) -> Result<Option<ReadItem>, DecodeError> {
    Ok(match item {
        None | Some(wire::item::Item::Part(_)) => None,
        Some(wire::item::Item::Upsert(wire::Upsert { key, value })) => {
            let key = EntryKey::from_peer(&key);
            let hash = EntryHash::of(&key, &value);
            let decoded = decode_entry(&key, &value);
            Some(upserted(key, hash, decoded))
        }
        Some(wire::item::Item::Remove(key)) => {
            let key = EntryKey::from_peer(&key);
            Some((Change::Remove { key }, None))
        }
        Some(wire::item::Item::Patch(patch)) => {
            let key = EntryKey::from_peer(&patch.key);
            let held = held(&key).filter(|(hash, _)| hash.0.to_be_bytes()[..] == patch.base_hash);
            let patched = match (&key, held) {
                (EntryKey::List(list), Some((_, base))) => {
                    Some(patched(&patch, &base, list.family)?)
                }
                _ => None,
            };
            patched.map(|list| {
                let entry = Entry::List(Arc::new(list));
                // The controller has the same bytes, because equal values give equal bytes.
                let hash = EntryHash::of(&key, &encode_entry(&entry));
                upserted(key, hash, Ok(entry))
            })
        }
    })
}

fn upserted(key: EntryKey, hash: EntryHash, decoded: Result<Entry, DecodeError>) -> ReadItem {
    let (entry, error) = match decoded {
        Ok(entry) => (Some(entry), None),
        Err(error) => (None, Some(error)),
    };
    (Change::Upsert { key, hash, entry }, error)
}

fn patched(
    patch: &wire::Patch,
    base: &BackendList,
    family: Family,
) -> Result<BackendList, DecodeError> {
    let part = |part: &Option<wire::BackendList>| match part {
        Some(part) => decode::list(part, family),
        None => Ok(BackendList::default()),
    };
    Ok(base.patched(&part(&patch.remove)?, &part(&patch.add)?))
}
