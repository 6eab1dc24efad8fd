//! Laws over generated values: encoded values decode to the same value, and no input makes the codec panic.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

mod values;

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_blocking::testing::captures;
use nft_rs::{
    Batch, Bytes, Element, Envelope, Family, Key, KeyReader, Operation, Reply, TableId, error_code,
    failed_offset, messages,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn captured() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "captures are missing");
    files.into_iter().map(captures::read).collect()
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (any::<u32>(), any::<bool>()).prop_map(|(sequence, acknowledge)| Envelope {
        sequence,
        acknowledge,
    })
}

/// Decodes bytes in every possible way. Every decoded value must be encoded so that it decodes to the same value.
fn read_everything(bytes: &[u8]) {
    let envelope = Envelope {
        sequence: 1,
        acknowledge: true,
    };
    for message in messages(bytes) {
        let Ok(message) = message else { return };
        let place = failed_offset(&message);
        assert!(place.is_none() || error_code(&message).is_some());
        let mut written = Vec::new();
        if let Ok(operation) = Operation::decode(&message)
            && operation.encode(envelope, &mut written).is_ok()
        {
            let again = messages(&written).next().unwrap().unwrap();
            assert_eq!(Operation::decode(&again).unwrap(), operation);
            assert!(!operation.to_string().is_empty());
        }
        written.clear();
        if let Ok(reply) = Reply::decode(&message)
            && reply.encode(envelope, &mut written).is_ok()
        {
            let again = messages(&written).next().unwrap().unwrap();
            assert_eq!(Reply::decode(&again).unwrap(), reply);
        }
    }
}

proptest! {
    #[test]
    fn operations_are_read_as_written(sent in vec((values::operation(), envelope()), 1..4)) {
        let mut bytes = Vec::new();
        for (operation, envelope) in &sent {
            operation.encode(*envelope, &mut bytes).unwrap();
        }
        let read: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), sent.len());
        for (message, (operation, envelope)) in read.iter().zip(&sent) {
            prop_assert_eq!(&Operation::decode(message).unwrap(), operation);
            prop_assert_eq!(message.header.sequence_number, envelope.sequence);
            prop_assert_eq!(message.header.flags & 4 != 0, envelope.acknowledge);
        }
    }

    #[test]
    fn replies_are_read_as_written(reply in values::reply(), envelope in envelope()) {
        let mut bytes = Vec::new();
        reply.encode(envelope, &mut bytes).unwrap();
        let message = messages(&bytes).next().unwrap().unwrap();
        prop_assert_eq!(Reply::decode(&message).unwrap(), reply);
    }

    #[test]
    fn every_expression_has_a_text(expression in values::expression()) {
        prop_assert!(!expression.to_string().is_empty());
    }

    #[test]
    fn the_components_of_a_key_are_read_as_written(
        v4: Ipv4Addr,
        v6: Ipv6Addr,
        protocol: u8,
        port: u16,
        mark: u32,
        name in "[a-z0-9]{0,15}",
    ) {
        let key: Bytes = Key::new()
            .ipv4(v4)
            .protocol(protocol)
            .port(port)
            .ipv6(v6)
            .interface_name(&name)
            .mark(mark)
            .into();
        prop_assert_eq!(key.len(), 4 + 4 + 4 + 16 + 16 + 4);
        let mut reader = KeyReader::new(&key);
        prop_assert_eq!(reader.ipv4(), Some(v4));
        prop_assert_eq!(reader.protocol(), Some(protocol));
        prop_assert_eq!(reader.port(), Some(port));
        prop_assert_eq!(reader.ipv6(), Some(v6));
        prop_assert_eq!(reader.interface_name(), Some(name.as_str()));
        prop_assert!(!reader.is_empty());
        prop_assert_eq!(reader.mark(), Some(mark));
        prop_assert!(reader.is_empty());
        prop_assert_eq!(reader.port(), None);
        // A single component is not padded.
        let bytes = Bytes::from(Key::new().port(port));
        prop_assert_eq!(bytes.as_slice(), port.to_be_bytes());
    }

    #[test]
    fn an_interval_ends_after_its_last_key(first: u32, length: u32) {
        let last = first.saturating_add(length);
        let elements = Element::interval(&first.to_be_bytes(), &last.to_be_bytes());
        prop_assert_eq!(elements[0].key.as_slice(), first.to_be_bytes());
        prop_assert!(!elements[0].interval_end);
        match last.checked_add(1) {
            Some(after) => {
                prop_assert_eq!(elements.len(), 2);
                prop_assert_eq!(elements[1].key.as_slice(), after.to_be_bytes());
                prop_assert!(elements[1].interval_end);
            }
            None => prop_assert_eq!(elements.len(), 1),
        }
    }

    #[test]
    fn a_batch_has_all_elements_in_order(lengths in vec(1_usize..60, 0..4_000)) {
        let elements: Vec<Element> = (0_u32..)
            .zip(&lengths)
            .map(|(number, length)| {
                let mut key = number.to_be_bytes().to_vec();
                key.resize(length + 4, 0);
                Element::new(key)
            })
            .collect();
        let mut batch = Batch::new();
        let table = TableId::new(Family::Ipv6, "t");
        prop_assert_eq!(batch.flush_set(&table, "s"), 0);
        prop_assert_eq!(batch.delete_elements(&table, "s", &elements), 1);
        prop_assert_eq!(batch.len(), 2);
        let mut read = Vec::new();
        for (number, operation) in batch.decoded().enumerate() {
            match operation.unwrap() {
                Operation::FlushSet(..) => prop_assert_eq!(number, 0),
                Operation::DeleteElements(part) => read.extend(part.elements),
                other => prop_assert!(false, "{}", other),
            }
        }
        prop_assert_eq!(read, elements);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        read_everything(&bytes);
    }

    #[test]
    fn random_attributes_never_panic(command in 0_u8..18, mut bytes in vec(any::<u8>(), 20..300)) {
        // A plausible header, so that decoding reaches the attributes.
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&[command, 10]);
        read_everything(&bytes);
    }

    #[test]
    fn damaged_captures_never_panic(
        which in any::<Index>(),
        cut in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
    ) {
        let mut all = captured();
        let mut bytes = all.swap_remove(which.index(all.len()));
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        read_everything(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        read_everything(&bytes);
    }

    #[test]
    fn damaged_operations_never_panic(
        operation in values::operation(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let envelope = Envelope { sequence: 1, acknowledge: false };
        let mut bytes = Vec::new();
        operation.encode(envelope, &mut bytes).unwrap();
        for (place, value) in changes {
            // Not the length and the type, so that decoding reaches the attributes.
            let place = 16 + place.index(bytes.len() - 16);
            bytes[place] = value;
        }
        read_everything(&bytes);
    }
}
