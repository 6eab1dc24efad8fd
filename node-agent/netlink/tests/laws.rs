//! Messages and attributes are read as they were written, and no input makes the readers panic.
#![allow(clippy::unwrap_used, reason = "a test")]

use netlink_blocking::attribute::{self, EncodeError};
use netlink_blocking::message::{Header, error_code, messages};
use proptest::collection::vec;
use proptest::prelude::*;

fn header() -> impl Strategy<Value = Header> {
    // Types below 16 are netlink's own.
    (16_u16.., any::<u32>(), any::<bool>()).prop_map(|(message_type, sequence, acknowledge)| {
        Header {
            message_type,
            flags: 0,
            sequence,
            acknowledge,
        }
    })
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        sent in vec((header(), vec((0..0x3fff_u16, vec(any::<u8>(), 0..40)), 0..5)), 1..6),
    ) {
        let mut datagram = Vec::new();
        for (header, values) in &sent {
            header
                .put(&mut datagram, |payload| {
                    values
                        .iter()
                        .try_for_each(|(kind, value)| attribute::put_slice(payload, *kind, value))
                })
                .unwrap();
        }
        let read: Vec<_> = messages(&datagram).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), sent.len());
        for (message, (header, values)) in read.iter().zip(&sent) {
            prop_assert_eq!(message.header.message_type, header.message_type);
            prop_assert_eq!(message.header.sequence_number, header.sequence);
            prop_assert_eq!(message.header.flags & 4 != 0, header.acknowledge);
            prop_assert_eq!(error_code(message), None);
            let found: Vec<_> = attribute::attributes(message.payload)
                .map(Result::unwrap)
                .map(|found| (found.kind(), found.value().to_vec()))
                .collect();
            prop_assert_eq!(&found, values);
        }
    }

    #[test]
    fn no_bytes_make_the_readers_panic(bytes in vec(any::<u8>(), 0..200)) {
        for message in messages(&bytes).map_while(Result::ok) {
            let _code = error_code(&message);
            attribute::attributes(message.payload).take_while(Result::is_ok).for_each(drop);
        }
    }

    /// A message that cannot be encoded leaves the messages before it unchanged.
    #[test]
    fn what_is_too_long_is_an_error_and_leaves_nothing_behind(
        before in vec(any::<u8>(), 0..9),
        length in 65_532..70_000_usize,
        nested in any::<bool>(),
    ) {
        let mut buffer = before.clone();
        let header = Header { message_type: 16, flags: 0, sequence: 1, acknowledge: false };
        let value = vec![0; length];
        let put = |payload: &mut Vec<u8>| {
            if nested {
                return attribute::put_nested(payload, 1, |inner| {
                    inner.extend_from_slice(&value);
                    Ok(())
                });
            }
            attribute::put_slice(payload, 1, &value)
        };
        let error: EncodeError = header.put(&mut buffer, put).unwrap_err();
        prop_assert_eq!(error.length, length);
        prop_assert_eq!(buffer, before);
    }
}
