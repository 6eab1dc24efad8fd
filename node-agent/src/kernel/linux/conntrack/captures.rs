//! The codec against bytes that Linux 6.18 sent on x86-64, little-endian as they were captured.

use netlink_blocking::message::{HEADER_BYTES, error_code, messages};
use proptest::prelude::*;

use super::*;

/// 10.244.1.7:40000 to 10.96.0.10:53, translated to 10.244.1.7:5353.
const TRANSLATED: &str = "a400000000012200010000002e6e0000020000003400018014000180080001000af401\
    07080002000a60000a1c0002800500010011000000060002009c40000006000300003500003400028014000180080001\
    000af40107080002000af401071c00028005000100110000000600020014e90000060003009c40000008000300000001\
    a8080008000000000008000c00d8ec243408000b0000000001080007000000001d";
/// 10.244.1.7:40000 to 10.96.0.11:53 in zone 7, not translated.
const IN_A_ZONE: &str = "ac00000000012200010000002e6e0000020000003400018014000180080001000af40107\
    080002000a60000b1c0002800500010011000000060002009c4000000600030000350000340002801400018008000100\
    0a60000b080002000af401071c00028005000100110000000600020000350000060003009c4000000600120000070000\
    0800030000000188080008000000000008000c00fbabbf2908000b0000000001080007000000001d";
/// The same to 10.96.0.12 in a zone that counts for the first direction only, 9.
const IN_A_ZONE_ONE_WAY: &str = "ac00000000012200010000002e6e0000020000003c0001801400018008000100\
    0af40107080002000a60000c1c0002800500010011000000060002009c40000006000300003500000600030000090000\
    3400028014000180080001000a60000c080002000af401071c0002800500010011000000060002000035000006000300\
    9c4000000800030000000188080008000000000008000c007123752e08000b0000000001080007000000001d";
/// [fd00:10:244:1::7]:40000 to [fd00:10:96::a]:53, translated to [fd00:10:244:1::7]:5353.
const OVER_IPV6: &str = "d400000000012200010000002e6e00000a0000004c0001802c00018014000300fd000010\
    02440001000000000000000714000400fd00001000960000000000000000000a1c0002800500010011000000060002\
    009c40000006000300003500004c0002802c00018014000300fd00001002440001000000000000000714000400fd00\
    00100244000100000000000000071c00028005000100110000000600020014e90000060003009c4000000800030000\
    0001a8080008000000000008000c003f3235cb08000b0000000001080007000000001d";
const END: &str = "1400000003000200010000002e6e000000000000";

fn bytes(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2) && text.is_ascii(), "{text}");
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(pair).collect()
}

fn flow(from: &str, to: &str, reply_source: &str, zone: u16, id: u32) -> Flow {
    Flow {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        reply_source: reply_source.parse().unwrap(),
        zone,
        id: Some(id),
        by_rules: false,
    }
}

fn captured() -> [(&'static str, Flow); 4] {
    let client = "10.244.1.7:40000";
    let translated = flow(client, "10.96.0.10:53", "10.244.1.7:5353", 0, 0xd8ec_2434);
    let zone = flow(client, "10.96.0.11:53", "10.96.0.11:53", 7, 0xfbab_bf29);
    let one_way = flow(client, "10.96.0.12:53", "10.96.0.12:53", 9, 0x7123_752e);
    let client = "[fd00:10:244:1::7]:40000";
    let backend = "[fd00:10:244:1::7]:5353";
    let ipv6 = flow(client, "[fd00:10:96::a]:53", backend, 0, 0x3f32_35cb);
    let by_rules = |flow| Flow {
        by_rules: true,
        ..flow
    };
    [
        (TRANSLATED, by_rules(translated)),
        (IN_A_ZONE, zone),
        (IN_A_ZONE_ONE_WAY, one_way),
        (OVER_IPV6, by_rules(ipv6)),
    ]
}

#[test]
fn flows_are_decoded_from_captured_messages() {
    let datagram: Vec<u8> = captured()
        .iter()
        .flat_map(|(text, _)| bytes(text))
        .collect();
    let datagram = [datagram, bytes(END)].concat();
    let messages: Vec<_> = messages(&datagram).map(Result::unwrap).collect();
    let (end, flows) = messages.split_last().unwrap();
    assert_eq!(error_code(end), Some(0));
    assert!(flows.iter().all(|message| error_code(message).is_none()));
    let flows: Vec<_> = flows
        .iter()
        .map(|message| flow_of(message).unwrap())
        .collect();
    let wanted = captured().map(|(_, flow)| Some((Protocol::Udp, flow)));
    assert_eq!(flows, wanted);
}

/// S-123: the caller sees which protocol a flow has. Those without ports are no flows.
#[test]
fn flows_are_decoded_with_their_protocol() {
    let wanted = captured()[0].1;
    for (number, protocol) in [
        ("06", Some(Protocol::Tcp)),
        ("84", Some(Protocol::Sctp)),
        ("01", None),
        ("2f", None),
    ] {
        let other = TRANSLATED.replace("0500010011", &format!("05000100{number}"));
        assert_ne!(other, TRANSLATED);
        let other = bytes(&other);
        let message = messages(&other).next().unwrap().unwrap();
        let wanted = protocol.map(|protocol| (protocol, wanted));
        assert_eq!(flow_of(&message).unwrap(), wanted);
    }
}

/// The request to which the kernel replied with the flows above, the same number as without the filter.
#[test]
fn a_dump_asks_for_the_flows_of_one_protocol_and_family() {
    for (family, wanted) in [
        (
            Family::Ipv4,
            "3000000001010103010000000000000002000000100001800c00028005000100110000000c0019800800010008000000",
        ),
        (
            Family::Ipv6,
            "300000000101010301000000000000000a000000100001800c00028005000100110000000c0019800800010008000000",
        ),
    ] {
        for (number, protocol) in [
            ("11", Protocol::Udp),
            ("06", Protocol::Tcp),
            ("84", Protocol::Sctp),
        ] {
            let wanted = wanted.replace("0500010011", &format!("05000100{number}"));
            let mut buffer = Vec::new();
            Request::Dump(protocol, family).encode(1, false, &mut buffer);
            assert_eq!(buffer, bytes(&wanted));
        }
    }
}

/// The request contains the flow in the same bytes as the kernel's message, with its zone and id (S-130).
#[test]
fn a_deletion_names_one_flow_whole() {
    for (text, flow) in captured() {
        let sent = bytes(text);
        let (header, attributes) = (HEADER_BYTES, HEADER_BYTES + NFNETLINK_HEADER_LENGTH);
        let mut buffer = Vec::new();
        Request::Delete(Protocol::Udp, &flow).encode(77, true, &mut buffer);
        assert_eq!(buffer.len(), usize::from(buffer[0]));
        assert_eq!(
            buffer[4..8],
            [MSG_DELETE, SUBSYSTEM, 5, 0],
            "request, acknowledge"
        );
        assert_eq!(buffer[8..12], 77u32.to_ne_bytes());
        assert_eq!(buffer[header..attributes], sent[header..attributes]);
        let tuple = flow.family() == Family::Ipv4;
        let tuple = if tuple { 0x34 } else { 0x4c };
        if text != IN_A_ZONE_ONE_WAY {
            let whole = attributes..attributes + tuple;
            assert_eq!(buffer[whole.clone()], sent[whole], "{flow:?}");
        }
        let id = [&[8, 0, 12, 0][..], &flow.id.unwrap().to_be_bytes()].concat();
        let zone = [&[6, 0, 18, 0][..], &flow.zone.to_be_bytes(), &[0, 0]].concat();
        let rest = if flow.zone == 0 {
            id
        } else {
            [zone, id].concat()
        };
        assert_eq!(buffer[attributes + tuple..], rest, "{flow:?}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_a_value_or_an_error(
        which in 0..4usize,
        cut in 0..220usize,
        changes in prop::collection::vec((0..220usize, any::<u8>()), 0..6),
    ) {
        let mut datagram = bytes(captured()[which].0);
        for (at, value) in changes {
            if let Some(byte) = datagram.get_mut(at) {
                *byte = value;
            }
        }
        datagram.truncate(cut);
        for message in messages(&datagram).map_while(Result::ok) {
            let _code = error_code(&message);
            let _flow = flow_of(&message);
        }
    }
}
