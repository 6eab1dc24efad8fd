//! Converts items of a batch to and from changes to a plan. An item is encoded once and sent to many nodes.

use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{BackendList, Change, Entry, EntryHash, EntryKey, Family};
use prost::Message as _;

use crate::decode;
use crate::field::DecodeError;
use crate::{decode_entry, encode, encode_entry, wire};

/// The item that sets the entry of this key to these bytes.
pub fn upsert(key: &EntryKey, value: Bytes) -> Bytes {
    item(wire::item::Item::Upsert(wire::Upsert {
        key: key.to_string(),
        value,
    }))
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

/// Decodes a received item into a change, with the reason if its value could not be decoded. `held` returns the list
/// to which a patch applies.
///
/// `None` if the item changes nothing: it is empty, it is of a kind that only a newer controller knows, or it patches
/// a list other than the one held. If the change was needed, the hash of the batch does not match.
///
/// # Errors
/// [`DecodeError`] if the bytes are not an item.
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
                // The controller has the same bytes, because equal values give equal bytes.
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
