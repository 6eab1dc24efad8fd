//! Laws of the wire: entries survive encoding and decoding, equal values give equal bytes, and no input causes a
//! panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{
    Backend, BackendList, Change, Dataplane, Entry, EntryHash, EntryKey, Family, strategies,
};
use portolan_proto::item::ReadItem;
use portolan_proto::{CHUNK_BYTES, DecodeError, MAX_ENTRY_BYTES, decode_entry, encode_entry, item};
use proptest::collection::vec;
use proptest::prelude::*;

/// The key and the bytes of an entry, often of several parts, sometimes more than a receiver keeps.
fn large_value() -> impl Strategy<Value = (EntryKey, Bytes)> {
    let length = prop_oneof![
        0..3 * CHUNK_BYTES,
        MAX_ENTRY_BYTES - 20..MAX_ENTRY_BYTES + 20,
        Just(MAX_ENTRY_BYTES + 5 * CHUNK_BYTES),
    ];
    let backends = 0..3000_u32;
    let list = backends.prop_map(|count| {
        let backend = |number: u32| Backend {
            address: Ipv4Addr::from(0x0a00_0000 + number).into(),
            port: 80,
            weight: 1,
        };
        let list: BackendList = (0..count).map(backend).collect();
        encode_entry(&Entry::List(Arc::new(list)))
    });
    let bytes = length.prop_map(|length| Bytes::from(vec![7; length]));
    let key = EntryKey::from_peer("list/shop/large/http/IPv4/cluster");
    prop_oneof![list, bytes].prop_map(move |value| (key.clone(), value))
}

fn read_all(items: Vec<Bytes>) -> Vec<ReadItem> {
    let mut reader = item::Reader::default();
    let read = items.into_iter().map(|item| reader.read(item, |_| None));
    read.filter_map(Result::unwrap).collect()
}

fn only(mut read: Vec<ReadItem>) -> Option<ReadItem> {
    let last = read.pop();
    last.filter(|_| read.is_empty())
}

proptest! {
    #[test]
    fn an_entry_survives_the_wire((key, entry) in strategies::entry()) {
        let bytes = encode_entry(&entry);
        prop_assert_eq!(decode_entry(&key, &bytes).unwrap(), entry);
    }

    /// Two controllers that made the same value in different ways agree on its hash.
    #[test]
    fn an_entry_that_was_read_has_the_bytes_it_came_in((key, entry) in strategies::entry()) {
        let bytes = encode_entry(&entry);
        prop_assert_eq!(encode_entry(&decode_entry(&key, &bytes).unwrap()), bytes);
    }

    /// I-3.
    #[test]
    fn no_bytes_make_the_decoder_panic(
        (key, _) in strategies::entry(),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        drop(decode_entry(&key, &bytes));
    }

    #[test]
    fn damaged_entries_are_read_or_refused_but_never_panic(
        (key, entry) in strategies::entry(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode_entry(&entry).to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = with;
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        drop(decode_entry(&key, &bytes));
    }

    #[test]
    fn an_item_carries_its_change((key, entry) in strategies::entry()) {
        let bytes = encode_entry(&entry);
        let hash = EntryHash::of(&key, &bytes);
        let (change, problem) = item::read(item::upsert(&key, bytes), |_| None).unwrap().unwrap();
        prop_assert_eq!(change, Change::Upsert { key: key.clone(), hash, entry: Some(entry) });
        prop_assert_eq!(problem, None);
        let (change, _) = item::read(item::remove(&key), |_| None).unwrap().unwrap();
        prop_assert_eq!(change, Change::Remove { key });
    }

    /// A patch produces exactly the bytes that the controller hashed. It does nothing to a list with another hash.
    #[test]
    fn a_patch_carries_the_bytes_that_it_stands_for(
        (key, from) in strategies::entry(),
        (_, to) in strategies::entry(),
    ) {
        let (EntryKey::List(of), Entry::List(from), Entry::List(to)) = (&key, from, to) else {
            return Ok(());
        };
        let ours = |list: &BackendList| -> BackendList {
            let own = |backend: &&Backend| Family::of(backend.address) == of.family;
            list.as_slice().iter().filter(own).copied().collect()
        };
        let (from, to) = (Arc::new(ours(&from)), Arc::new(ours(&to)));
        let bytes = |list: &Arc<BackendList>| encode_entry(&Entry::List(list.clone()));
        let base = EntryHash::of(&key, &bytes(&from));
        let item = item::patch(&key, base, &from, &to);
        let hash = EntryHash::of(&key, &bytes(&to));
        let read = item::read(item.clone(), |_| Some((base, from.clone()))).unwrap();
        let entry = Some(Entry::List(to));
        prop_assert_eq!(read, Some((Change::Upsert { key: key.clone(), hash, entry }, None)));
        let other = EntryHash(base.0.wrapping_add(1));
        prop_assert_eq!(item::read(item.clone(), |_| Some((other, from))).unwrap(), None);
        prop_assert_eq!(item::read(item, |_| None).unwrap(), None);
    }

    /// S-228: no message depends on the size of an entry.
    #[test]
    fn an_entry_of_any_size_is_read_from_small_items((key, value) in large_value()) {
        let hash = EntryHash::of(&key, &value);
        let whole = item::read(item::upsert(&key, value.clone()), |_| None).unwrap().unwrap();
        let items = item::upserts(&key, value.clone());
        let longest = items.iter().map(Bytes::len).max().unwrap();
        prop_assert!(longest <= CHUNK_BYTES + key.to_string().len() + 20, "{longest} bytes");
        let (change, problem) = only(read_all(items)).unwrap();
        if value.len() <= MAX_ENTRY_BYTES {
            prop_assert_eq!((change, problem), whole);
        } else {
            prop_assert_eq!(change, Change::Upsert { key, hash, entry: None });
            let (bytes, most) = (value.len(), MAX_ENTRY_BYTES);
            prop_assert_eq!(problem, Some(DecodeError::TooLarge { bytes, most }));
        }
    }

    /// A change that results from fewer parts, or from parts in another order, has another hash, so its batch is refused.
    #[test]
    fn parts_that_are_lost_or_interrupted_never_make_the_entry(
        (key, value) in large_value(),
        at in any::<prop::sample::Index>(),
        how in 0..3,
    ) {
        let hash = EntryHash::of(&key, &value);
        let mut items = item::upserts(&key, value);
        prop_assume!(items.len() > 1);
        let at = at.index(items.len());
        let other = EntryKey::from_peer("head/shop/other");
        match how {
            0 => drop(items.remove(at)),
            1 => items.insert(at.max(1), item::remove(&other)),
            _ => items.insert(at.max(1), item::upserts(&other, vec![0; CHUNK_BYTES + 1].into()).remove(0)),
        }
        let made = |(change, _): ReadItem| matches!(change, Change::Upsert { hash: found, .. } if found == hash);
        prop_assert!(!read_all(items).into_iter().any(made));
    }

    /// I-3.
    #[test]
    fn no_bytes_make_the_reader_of_items_panic(bytes in vec(any::<u8>(), 0..200)) {
        drop(item::read(bytes.into(), |_| None));
    }
}

#[test]
fn fields_and_kinds_of_a_newer_controller_still_count_as_received() {
    let key = EntryKey::from_peer("mirror/shop/cart");
    let bytes = Bytes::from_static(b"\x0a\x01x");
    let hash = EntryHash::of(&key, &bytes);
    let item = item::upsert(&key, bytes);
    let (change, problem) = item::read(item, |_| None).unwrap().unwrap();
    assert_eq!(
        change,
        Change::Upsert {
            key,
            hash,
            entry: None
        }
    );
    assert_eq!(
        problem.unwrap().to_string(),
        "this version does not know the kind of the entry"
    );
}

#[test]
fn an_unknown_field_is_no_error() {
    let key: EntryKey = "list/shop/cart/http/IPv4/cluster".parse().unwrap();
    // Field 1: one address; field 2: its port; field 100: something new.
    let bytes = b"\x0a\x04\x0a\xf4\x01\x05\x12\x01\x50\xa2\x06\x02hi";
    assert!(decode_entry(&key, bytes).is_ok());
}

/// A node entry with only a name, as a first release might send it: all other fields have their defaults.
#[test]
fn settings_that_an_older_controller_does_not_know_have_their_defaults() {
    let bytes = b"\x0a\x06node-a\x3a\x00";
    let Entry::Node(node) = decode_entry(&EntryKey::Node, bytes).unwrap() else {
        panic!("not a node")
    };
    assert_eq!(&*node.name, "node-a");
    let defaults = portolan_plan::Settings::default();
    assert_eq!(node.settings.sync.period, defaults.sync.period);
    assert_eq!(node.settings.dataplane, Dataplane::Ipvs);
    assert_eq!(
        (&node.settings.scheduler, &node.settings.device),
        (&defaults.scheduler, &defaults.device)
    );
    assert_eq!(
        (&node.settings.healthz, &node.settings.metrics),
        (&defaults.healthz, &defaults.metrics)
    );
}

#[test]
fn errors_name_the_field() {
    let list: EntryKey = "list/shop/cart/http/IPv4/cluster".parse().unwrap();
    let head: EntryKey = "head/shop/cart".parse().unwrap();
    let table: [(&EntryKey, &[u8], &str); 4] = [
        (
            &list,
            b"\x0a\x03abc",
            "addresses: 3 bytes are not an address of the expected family",
        ),
        (
            &list,
            b"\x0a\x04abcd\x12\x01\x00",
            "ports: 0 is not between 1 and 65535",
        ),
        (
            &list,
            b"\x0a\x08abcdefgh\x12\x03\x50\x51\x52",
            "ports: 3 values for 2 backends",
        ),
        (&head, b"\x22\x02\x10\x01", "ports.internal is missing"),
    ];
    for (key, bytes, expected) in table {
        assert_eq!(decode_entry(key, bytes).unwrap_err().to_string(), expected);
    }
}

/// Bytes that the first release wrote. Their meaning can never change.
#[test]
fn entries_of_the_first_release_are_still_read_and_written_the_same() {
    let key: EntryKey = "list/shop/cart/http/IPv4/cluster".parse().unwrap();
    let bytes: &[u8] = b"\x0a\x08\x0a\xf4\x01\x05\x0a\xf4\x02\x07\x12\x02\x90\x3f";
    let entry = decode_entry(&key, bytes).unwrap();
    assert_eq!(encode_entry(&entry), bytes);
    let hash = EntryHash::of(&key, bytes);
    assert_eq!(format!("{:032x}", hash.0), GOLDEN_HASH);
}

const GOLDEN_HASH: &str = "3f53a2089690cb4ee167eead48ea0204";

#[test]
fn an_item_without_content_changes_nothing() {
    assert_eq!(item::read(Bytes::new(), |_| None), Ok(None));
}
