//! Laws over generated values: encoded values decode to the same value, and no input makes the codec panic.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use ipset_rs::{
    CreateOptions, DefaultNla, Detail, Entry, Envelope, Family, Header, Protocol, Reply, Request,
    Revisions, SetName, SetPart, SetType, error_code, failed_line, messages,
};
use netlink_blocking::testing::captures;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Names of the files in `captures/`, for mutation.
const CAPTURES: [&str; 14] = [
    "add_many",
    "add_one_bitmap_port",
    "create_bitmap_port",
    "add_failed_line",
    "create_ipv6",
    "create_timeout",
    "set_timeout",
    "set_web",
    "set_nets6",
    "set_hairpin",
    "set_health",
    "set_allow",
    "type",
    "own_delete",
];

fn capture(name: &str) -> Vec<u8> {
    captures::read(format!(
        "{}/tests/captures/{name}.hex",
        env!("CARGO_MANIFEST_DIR")
    ))
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
    ]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp])
}

fn entry() -> impl Strategy<Value = Entry> {
    let ip_port =
        (address(), protocol(), any::<u16>()).prop_map(|(address, protocol, port)| Entry::IpPort {
            address,
            protocol,
            port,
        });
    let range = || {
        (address(), any::<u8>()).prop_map(|(address, length)| {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, length % (longest + 1)).unwrap().trunc()
        })
    };
    let net = range().prop_map(Entry::net);
    let ip_port_ip = (address(), protocol(), any::<u16>(), address()).prop_map(
        |(address, protocol, port, source)| Entry::IpPortIp {
            address,
            protocol,
            port,
            source,
        },
    );
    let ip_port_net = (address(), protocol(), any::<u16>(), range()).prop_map(
        |(address, protocol, port, net)| Entry::IpPortNet {
            address,
            protocol,
            port,
            net,
        },
    );
    let port = any::<u16>().prop_map(Entry::Port);
    prop_oneof![ip_port, net, ip_port_ip, ip_port_net, port]
}

fn set_name() -> impl Strategy<Value = SetName> {
    "[A-Za-z0-9_-]{1,31}".prop_map(|text| SetName::new(&text).unwrap())
}

fn family() -> impl Strategy<Value = Family> {
    select(vec![Family::Ipv4, Family::Ipv6])
}

fn set_type() -> impl Strategy<Value = SetType> {
    select(SetType::ALL.to_vec())
}

fn request() -> impl Strategy<Value = Request> {
    let sizes = (any::<[u32; 2]>(), option::of(any::<u32>())).prop_map(
        |([hash_size, max_elements], timeout)| CreateOptions {
            hash_size,
            max_elements,
            timeout,
        },
    );
    let create = (set_name(), set_type(), any::<u8>(), family(), sizes).prop_map(
        |(name, set_type, revision, family, options)| Request::Create {
            name,
            set_type,
            revision,
            family: set_type.has_family().then_some(family),
            options: match set_type {
                SetType::BitmapPort => CreateOptions {
                    timeout: options.timeout,
                    ..CreateOptions::default()
                },
                _ => options,
            },
        },
    );
    let detail = select(vec![Detail::Names, Detail::Headers, Detail::Entries]);
    prop_oneof![
        Just(Request::Protocol),
        (set_type(), family()).prop_map(|(set_type, family)| Request::Type {
            set_type,
            family: set_type.has_family().then_some(family),
        }),
        create,
        set_name().prop_map(Request::Destroy),
        (set_name(), set_name()).prop_map(|(from, to)| Request::Swap(from, to)),
        (option::of(set_name()), detail).prop_map(|(name, detail)| Request::List { name, detail }),
        (set_name(), vec(entry(), 0..50)).prop_map(|(name, entries)| Request::Add(name, entries)),
        (set_name(), vec(entry(), 0..50))
            .prop_map(|(name, entries)| Request::Delete(name, entries)),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let kept = vec((64_u16..512, vec(any::<u8>(), 0..12)), 0..3);
    (
        "[a-z:,]{1,20}",
        option::of(family()),
        any::<u8>(),
        any::<[u32; 5]>(),
        option::of(any::<u32>()),
        kept,
    )
        .prop_map(|(type_name, family, revision, numbers, timeout, kept)| {
            let [hash_size, max_elements, references, elements, memory_bytes] = numbers;
            let other = kept
                .into_iter()
                .map(|(kind, value)| DefaultNla::new(kind, value))
                .collect();
            Header {
                name: String::new(),
                type_name,
                family,
                revision,
                hash_size,
                max_elements,
                timeout,
                references,
                elements,
                memory_bytes,
                other,
            }
        })
}

fn reply() -> impl Strategy<Value = Reply> {
    let range = || any::<[u8; 2]>().prop_map(|[min, max]| Revisions { min, max });
    let part = (set_name(), option::of(header()), vec(entry(), 0..50)).prop_map(
        |(name, header, entries)| {
            let name = name.to_string();
            let header = header.map(|header| Header {
                name: name.clone(),
                ..header
            });
            SetPart {
                name,
                header,
                entries,
                other_entries: Vec::new(),
            }
        },
    );
    prop_oneof![
        range().prop_map(Reply::Protocol),
        range().prop_map(Reply::Type),
        part.prop_map(Reply::Set),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (any::<u32>(), 6_u8..=7, any::<bool>()).prop_map(|(sequence, protocol, acknowledge)| Envelope {
        sequence,
        protocol,
        acknowledge,
    })
}

/// Decodes bytes in every possible way. Every decoded value must be encodable and decodable again.
fn read_everything(bytes: &[u8]) {
    let envelope = Envelope {
        sequence: 1,
        protocol: 7,
        acknowledge: true,
    };
    for message in messages(bytes) {
        let Ok(message) = message else { return };
        let line = failed_line(&message);
        assert!(line.is_none() || error_code(&message).is_some());
        let mut written = Vec::new();
        if let Ok(request) = Request::decode(&message) {
            request.encode(envelope, &mut written).unwrap();
            let again = messages(&written).next().unwrap().unwrap();
            assert_eq!(Request::decode(&again).unwrap(), request);
            assert!(!request.to_string().is_empty());
        }
        written.clear();
        if let Ok(reply) = Reply::decode(&message) {
            reply.encode(envelope, &mut written).unwrap();
            assert!(Reply::decode(&messages(&written).next().unwrap().unwrap()).is_ok());
        }
    }
}

proptest! {
    #[test]
    fn entries_are_read_as_displayed(entry in entry()) {
        let read = entry.to_string().parse::<Entry>().unwrap();
        prop_assert_eq!(read.to_string(), entry.to_string());
        // A range of one address is written like the address alone.
        let one = matches!(entry, Entry::IpPortNet { net, .. } if net.prefix_len() == net.max_prefix_len());
        prop_assert!(one || read == entry);
    }

    #[test]
    fn no_text_makes_the_reader_of_entries_panic(text in ".{0,40}") {
        if let Ok(entry) = text.parse::<Entry>() {
            prop_assert_eq!(entry.to_string().parse::<Entry>().unwrap(), entry);
        }
    }

    #[test]
    fn requests_are_read_as_written(sent in vec((request(), envelope()), 1..5)) {
        let mut bytes = Vec::new();
        for (request, envelope) in &sent {
            request.encode(*envelope, &mut bytes).unwrap();
        }
        let read: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), sent.len());
        for (message, (request, envelope)) in read.iter().zip(&sent) {
            prop_assert_eq!(&Request::decode(message).unwrap(), request);
            prop_assert_eq!(message.header.sequence_number, envelope.sequence);
            prop_assert_eq!(message.header.flags & 4 != 0, envelope.acknowledge);
        }
    }

    #[test]
    fn replies_are_read_as_written(reply in reply(), envelope in envelope()) {
        let mut bytes = Vec::new();
        reply.encode(envelope, &mut bytes).unwrap();
        let message = messages(&bytes).next().unwrap().unwrap();
        prop_assert_eq!(Reply::decode(&message).unwrap(), reply);
    }

    #[test]
    fn too_many_entries_are_refused_and_leave_the_buffer(count in 0_usize..4000, entry in entry()) {
        let request = Request::Add(SetName::new("a").unwrap(), vec![entry; count]);
        let envelope = Envelope { sequence: 1, protocol: 7, acknowledge: false };
        let mut bytes = vec![1, 2, 3, 4];
        match request.encode(envelope, &mut bytes) {
            Ok(()) => {
                let message = messages(&bytes[4..]).next().unwrap().unwrap();
                prop_assert_eq!(Request::decode(&message).unwrap(), request);
            }
            Err(_) => {
                // The largest entry, an IPv6 address with port and range, takes 84 bytes of the maximum of 64 kB.
                prop_assert!(count > 700);
                prop_assert_eq!(bytes, [1, 2, 3, 4]);
            }
        }
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
        bytes[4..6].copy_from_slice(&[command, if command == 2 { 0 } else { 6 }]);
        read_everything(&bytes);
    }

    #[test]
    fn damaged_captures_never_panic(
        which in any::<Index>(),
        cut in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = capture(CAPTURES[which.index(CAPTURES.len())]);
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        read_everything(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        read_everything(&bytes);
    }
}

#[test]
fn entries_are_spelled_as_ipset_save_spells_them() {
    for text in [
        "10.20.30.41,tcp:80",
        "fd00::1,udp:53",
        "10.96.0.0/12",
        "10.96.0.1",
        "fd00::/108",
        "fd00::1",
        "10.0.0.1,tcp:80,10.0.0.1",
        "fd00::1,sctp:80,fd00::2",
        "10.0.0.1,tcp:80,192.0.2.0/24",
        "0",
        "65535",
    ] {
        assert_eq!(text.parse::<Entry>().unwrap().to_string(), text);
    }
    assert_eq!(
        "10.1.2.3/8".parse::<Entry>().unwrap().to_string(),
        "10.0.0.0/8"
    );
    assert_eq!(
        "10.1.2.3/32".parse::<Entry>().unwrap().to_string(),
        "10.1.2.3"
    );
}

#[test]
fn texts_that_are_no_entries_say_why() {
    for (text, reason) in [
        ("", "a port, an address or a range"),
        ("65536", "a port, an address or a range"),
        ("10.0.0.0/33", "an address or a range"),
        ("10.0.0.1,80", "a port such as tcp:80"),
        ("10.0.0.1,icmp:80", "not tcp, udp or sctp"),
        ("10.0.0.1,tcp:65536", "not a number from 0 to 65535"),
        ("10.0.0.0/8,tcp:80", "an address was expected"),
        ("10.0.0.1,tcp:80,", "an address was expected"),
        ("10.0.0.1,tcp:80,10.0.0.1,x", "more than three parts"),
    ] {
        let error = text.parse::<Entry>().unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(text), "{error}");
    }
}
