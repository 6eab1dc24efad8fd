//! Laws over generated values: encoded values decode to the same value, and no input makes the codec panic.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipvs_rs::{
    DefaultNla, Destination, DestinationKey, Envelope, Family, Flags, Forwarding, Info, Protocol,
    Reply, Request, Service, ServiceKey, Timeouts, Traffic, Tunnel, error_code, messages,
};
use netlink_blocking::testing::captures;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

/// Names of the files in `captures/`, for mutation.
const CAPTURES: [&str; 10] = [
    "info",
    "services",
    "destinations_ipv4",
    "destinations_ipv6",
    "new_service_ipv6",
    "new_destination_ipv6",
    "own_batch",
    "own_set_timeouts",
    "error_exists",
    "done",
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

fn key() -> impl Strategy<Value = ServiceKey> {
    let family = prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)];
    prop_oneof![
        (any::<u8>(), address(), any::<u16>()).prop_map(|(protocol, address, port)| {
            ServiceKey::address(Protocol::from(protocol), address, port)
        }),
        (any::<u32>(), family).prop_map(|(mark, family)| ServiceKey::FirewallMark { mark, family }),
    ]
}

/// Attributes with numbers that no kernel uses yet.
fn other() -> impl Strategy<Value = Vec<DefaultNla>> {
    let attribute = (64_u16..512, vec(any::<u8>(), 0..20));
    vec(
        attribute.prop_map(|(kind, value)| DefaultNla::new(kind, value)),
        0..3,
    )
}

fn service() -> impl Strategy<Value = Service> {
    (
        key(),
        "[a-z]{0,15}",
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
        option::of("[a-z]{1,15}"),
        any::<[u64; 5]>(),
        other(),
    )
        .prop_map(
            |(key, scheduler, flags, timeout, mask, engine, counts, other)| {
                let mut service = Service::new(key, scheduler);
                service.flags = Flags(flags);
                service.timeout = timeout;
                service.netmask = if key.family() == Family::Ipv4 {
                    mask % 33
                } else {
                    mask
                };
                service.persistence_engine = engine;
                let [connections, packets_in, packets_out, bytes_in, bytes_out] = counts;
                service.traffic = Traffic {
                    connections,
                    packets_in,
                    packets_out,
                    bytes_in,
                    bytes_out,
                };
                service.other = other;
                service
            },
        )
}

fn forwarding() -> impl Strategy<Value = Forwarding> {
    prop_oneof![
        Just(Forwarding::Masquerade),
        Just(Forwarding::Local),
        Just(Forwarding::Tunnel),
        Just(Forwarding::DirectRouting),
        Just(Forwarding::Bypass),
        (5_u32..).prop_map(Forwarding::Other),
    ]
}

fn destination() -> impl Strategy<Value = Destination> {
    let tunnel = (any::<u8>(), any::<u16>(), any::<u16>()).prop_map(|(kind, port, flags)| Tunnel {
        kind,
        port,
        flags,
    });
    (
        address(),
        any::<u16>(),
        forwarding(),
        any::<[u32; 3]>(),
        tunnel,
        other(),
    )
        .prop_map(
            |(address, port, forwarding, [weight, upper, lower], tunnel, other)| {
                let mut server = Destination::masquerade(address, port, weight);
                server.forwarding = forwarding;
                server.upper_threshold = upper;
                server.lower_threshold = lower;
                server.tunnel = tunnel;
                server.other = other;
                server
            },
        )
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    any::<[u32; 3]>().prop_map(|[tcp, tcp_fin, udp]| Timeouts { tcp, tcp_fin, udp })
}

fn request() -> impl Strategy<Value = Request> {
    let server_key =
        (address(), any::<u16>()).prop_map(|(address, port)| DestinationKey { address, port });
    prop_oneof![
        Just(Request::GetInfo),
        Just(Request::GetTimeouts),
        timeouts().prop_map(Request::SetTimeouts),
        Just(Request::GetServices),
        key().prop_map(Request::GetService),
        service().prop_map(Request::NewService),
        service().prop_map(Request::SetService),
        key().prop_map(Request::DelService),
        key().prop_map(Request::GetDestinations),
        (key(), destination()).prop_map(|(key, server)| Request::NewDestination(key, server)),
        (key(), destination()).prop_map(|(key, server)| Request::SetDestination(key, server)),
        (key(), server_key).prop_map(|(key, server)| Request::DelDestination(key, server)),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let shown = (destination(), any::<[u32; 3]>()).prop_map(|(mut server, counts)| {
        [
            server.active_connections,
            server.inactive_connections,
            server.persistent_connections,
        ] = counts;
        server
    });
    let info = any::<[u32; 2]>().prop_map(|[version, connection_table_size]| Info {
        version,
        connection_table_size,
    });
    prop_oneof![
        info.prop_map(Reply::Info),
        timeouts().prop_map(Reply::Timeouts),
        service().prop_map(Reply::Service),
        shown.prop_map(Reply::Destination),
    ]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    (16_u16.., any::<u32>(), any::<bool>()).prop_map(|(family_id, sequence, acknowledge)| {
        Envelope {
            family_id,
            sequence,
            acknowledge,
        }
    })
}

/// Decodes bytes in every possible way. Every decoded value must be encodable and decodable again.
fn read_everything(bytes: &[u8]) {
    for message in messages(bytes) {
        let Ok(message) = message else { return };
        let envelope = Envelope {
            family_id: 32,
            sequence: 1,
            acknowledge: true,
        };
        let mut written = Vec::new();
        if error_code(&message).is_some() {
            continue;
        }
        if let Ok(request) = Request::decode(&message) {
            request.encode(envelope, &mut written).unwrap();
            assert_eq!(
                Request::decode(&messages(&written).next().unwrap().unwrap()).unwrap(),
                request
            );
            assert!(!request.to_string().is_empty());
            written.clear();
        }
        if let Ok(reply) = Reply::decode(&message) {
            reply.encode(envelope, &mut written).unwrap();
            assert_eq!(
                Reply::decode(&messages(&written).next().unwrap().unwrap()).unwrap(),
                reply
            );
        }
    }
}

proptest! {
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
            prop_assert_eq!(message.header.message_type, envelope.family_id);
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
    fn a_value_that_does_not_fit_is_refused_and_leaves_the_buffer(extra in 0_usize..100_000) {
        let key = ServiceKey::address(Protocol::Tcp, Ipv4Addr::LOCALHOST.into(), 80);
        let request = Request::NewService(Service::new(key, "s".repeat(extra)));
        let mut bytes = vec![1, 2, 3, 4];
        let envelope = Envelope { family_id: 32, sequence: 1, acknowledge: false };
        match request.encode(envelope, &mut bytes) {
            Ok(()) => {
                let message = messages(&bytes[4..]).next().unwrap().unwrap();
                prop_assert_eq!(Request::decode(&message).unwrap(), request);
            }
            Err(_) => {
                prop_assert!(extra > 65_000);
                prop_assert_eq!(bytes, [1, 2, 3, 4]);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        read_everything(&bytes);
    }

    #[test]
    fn random_attributes_never_panic(command in any::<u8>(), mut bytes in vec(any::<u8>(), 20..300)) {
        // A plausible header, so that decoding reaches the attributes.
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&[32, 0]);
        bytes[16..18].copy_from_slice(&[command % 20, 1]);
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
fn names_are_written_as_operators_write_them() {
    let text = |protocol, address: &str| {
        ServiceKey::address(protocol, address.parse().unwrap(), 443).to_string()
    };
    assert_eq!(text(Protocol::Tcp, "10.96.0.1"), "tcp 10.96.0.1:443");
    assert_eq!(text(Protocol::Udp, "fd00::1"), "udp [fd00::1]:443");
    assert_eq!(
        text(Protocol::Other(33), "10.96.0.1"),
        "protocol 33 10.96.0.1:443"
    );
    let mark = ServiceKey::FirewallMark {
        mark: 7,
        family: Family::Ipv6,
    };
    assert_eq!(mark.to_string(), "fwmark 7 ipv6");
}
