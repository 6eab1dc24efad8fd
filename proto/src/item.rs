//! Items of a batch to and from changes of a plan. An item is bytes: made once, sent to many.

use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{BackendList, Change, Entry, EntryHash, EntryKey, Family};
use prost::Message as _;

use crate::decode::{self, DecodeError};
use crate::{decode_entry, encode, encode_entry, wire};

/// The item that puts these bytes under this key.
pub fn upsert(key: &EntryKey, value: Bytes) -> Bytes {
    item(wire::item::Item::Upsert(wire::Upsert {
        key: key.to_string(),
        value,
    }))
}

/// The item that removes this key.
pub fn remove(key: &EntryKey) -> Bytes {
    item(wire::item::Item::Remove(key.to_string()))
}

/// The item that makes one list out of another, whose bytes have this hash.
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

/// A list that is held under a key, with the hash of its bytes.
pub type HeldList = (EntryHash, Arc<BackendList>);

/// The change that an item received makes, and why its value could not be read, if so. `held` tells
/// what a patch is about. An item without content or of a kind that a newer controller may send, and a
/// patch of another list than the one held, change nothing; if it mattered, the hash of the batch will
/// tell.
///
/// # Errors
/// It is no item.
pub fn read(
    item: Bytes,
    held: impl FnOnce(&EntryKey) -> Option<HeldList>,
) -> Result<Option<(Change, Option<DecodeError>)>, DecodeError> {
    Ok(match wire::Item::decode(item)?.item {
        None => None,
        Some(wire::item::Item::Upsert(wire::Upsert { key, value })) => {
            let key = EntryKey::from_peer(&key);
            let hash = EntryHash::of(&key, &value);
            let (entry, error) = match decode_entry(&key, &value) {
                Ok(entry) => (Some(entry), None),
                Err(error) => (None, Some(error)),
            };
            Some((Change::Upsert { key, hash, entry }, error))
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
                // The bytes that the controller has: equal values give equal bytes.
                let hash = EntryHash::of(&key, &encode_entry(&entry));
                let entry = Some(entry);
                (Change::Upsert { key, hash, entry }, None)
            })
        }
    })
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
