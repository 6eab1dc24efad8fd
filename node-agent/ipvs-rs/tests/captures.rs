//! Tests decoding and encoding against captures of messages to and from a real kernel.
//!
//! Each file in `captures/` contains the kernel and the command, and the name of every attribute. Files without
//! `own_` contain messages of `ipvsadm`. It sends the whole service where a key is enough, so these are decoded and,
//! where the forms agree, encoded. Files with `own_` contain messages of this crate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

use std::net::IpAddr;

use ipvs_rs::{
    Destination, DestinationKey, Envelope, Family, Flags, Info, Protocol, RawMessage, Reply,
    Request, Service, ServiceKey, Timeouts, error_code, messages,
};
use netlink_blocking::testing::captures;

/// The bytes of a capture: everything except comments.
fn capture(name: &str) -> Vec<u8> {
    captures::read(format!(
        "{}/tests/captures/{name}.hex",
        env!("CARGO_MANIFEST_DIR")
    ))
}

fn only(datagram: &[u8]) -> RawMessage<'_> {
    let mut all = messages(datagram);
    let first = all.next().unwrap().unwrap();
    assert!(all.next().is_none(), "one message was expected");
    first
}

fn envelope_of(message: &RawMessage<'_>) -> Envelope {
    Envelope {
        family_id: message.header.message_type,
        sequence: message.header.sequence_number,
        acknowledge: message.header.flags & 4 != 0,
    }
}

/// The sender's port ID is in bytes 12 to 15; the kernel fills it in.
fn without_port(mut message: Vec<u8>) -> Vec<u8> {
    message[12..16].fill(0);
    message
}

fn web() -> ServiceKey {
    ServiceKey::address(Protocol::Tcp, address("10.96.0.1"), 443)
}

fn dns_v6() -> ServiceKey {
    ServiceKey::address(Protocol::Udp, address("fd00::1"), 53)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn sticky_dns() -> Service {
    let mut service = Service::new(dns_v6(), "sh").persistent(600);
    service.netmask = 64;
    service
}

fn backend() -> Destination {
    Destination::masquerade(address("10.0.0.1"), 6443, 1)
}

fn backend_v6() -> Destination {
    let mut server = Destination::masquerade(address("fd00:1::7"), 5353, 100);
    server.upper_threshold = 9;
    server
}

const MARK: ServiceKey = ServiceKey::FirewallMark {
    mark: 7,
    family: Family::Ipv4,
};

#[test]
fn requests_of_ipvsadm_are_read() {
    let mut weightless = backend();
    weightless.weight = 0;
    // ipvsadm sends weight 1 in addition to the key when it deletes.
    let key = DestinationKey {
        address: address("10.0.0.1"),
        port: 6443,
    };
    let cases = [
        ("get_info", Request::GetInfo),
        ("get_services", Request::GetServices),
        ("get_service", Request::GetService(web())),
        (
            "new_service_ipv4",
            Request::NewService(Service::new(web(), "rr")),
        ),
        ("new_service_ipv6", Request::NewService(sticky_dns())),
        (
            "new_service_fwmark",
            Request::NewService(Service::new(MARK, "wlc")),
        ),
        (
            "set_service",
            Request::SetService(Service::new(web(), "wlc")),
        ),
        ("del_service", Request::DelService(web())),
        ("get_destinations_ipv4", Request::GetDestinations(web())),
        ("get_destinations_fwmark", Request::GetDestinations(MARK)),
        (
            "new_destination_ipv4",
            Request::NewDestination(web(), backend()),
        ),
        (
            "new_destination_ipv6",
            Request::NewDestination(dns_v6(), backend_v6()),
        ),
        (
            "set_destination",
            Request::SetDestination(web(), weightless),
        ),
        ("del_destination", Request::DelDestination(web(), key)),
    ];
    for (name, expected) in cases {
        let bytes = capture(name);
        assert_eq!(Request::decode(&only(&bytes)).unwrap(), expected, "{name}");
    }
}

#[test]
fn requests_are_written_as_ipvsadm_writes_them() {
    for name in [
        "get_info",
        "get_services",
        "new_service_ipv4",
        "new_service_ipv6",
        "new_service_fwmark",
        "set_service",
        "get_destinations_ipv4",
        "get_destinations_fwmark",
    ] {
        let bytes = capture(name);
        let message = only(&bytes);
        let mut written = Vec::new();
        let request = Request::decode(&message).unwrap();
        request.encode(envelope_of(&message), &mut written).unwrap();
        assert_eq!(written, without_port(bytes.clone()), "{name}");
    }
}

#[test]
fn our_own_requests_are_written_as_the_kernel_took_them() {
    let key = ServiceKey::address(Protocol::Tcp, address("10.96.0.1"), 80);
    let timeouts = Timeouts {
        udp: 60,
        ..Timeouts::default()
    };
    for (name, request) in [
        ("own_get_info", Request::GetInfo),
        ("own_get_destinations", Request::GetDestinations(key)),
        ("own_get_service", Request::GetService(key)),
        ("own_del_service", Request::DelService(key)),
        ("own_get_timeouts", Request::GetTimeouts),
        ("own_set_timeouts", Request::SetTimeouts(timeouts)),
    ] {
        let bytes = capture(name);
        let message = only(&bytes);
        let mut written = Vec::new();
        request.encode(envelope_of(&message), &mut written).unwrap();
        assert_eq!(written, bytes, "{name}");
        assert_eq!(Request::decode(&message).unwrap(), request, "{name}");
    }
}

#[test]
fn a_batch_is_six_messages_with_one_acknowledgement() {
    let key = ServiceKey::address(Protocol::Tcp, address("10.96.0.1"), 80);
    let first = Destination::masquerade(address("10.0.0.1"), 80, 1);
    let second = Destination::masquerade(address("10.0.0.2"), 80, 1);
    let mut limited = Destination::masquerade(address("10.0.0.2"), 80, 5);
    limited.upper_threshold = 9;
    let expected = [
        Request::NewService(Service::new(key, "rr").persistent(60)),
        Request::NewDestination(key, first.clone()),
        Request::NewDestination(key, second),
        Request::SetService(Service::new(key, "wlc")),
        Request::SetDestination(key, limited),
        Request::DelDestination(key, first.key()),
    ];
    let bytes = capture("own_batch");
    let mut written = Vec::new();
    let mut acknowledged = Vec::new();
    for (message, request) in messages(&bytes).zip(&expected) {
        let message = message.unwrap();
        assert_eq!(&Request::decode(&message).unwrap(), request);
        acknowledged.push(envelope_of(&message).acknowledge);
        request.encode(envelope_of(&message), &mut written).unwrap();
    }
    assert_eq!(written, bytes);
    assert_eq!(acknowledged, [false, false, false, false, false, true]);
}

fn shown(mut service: Service) -> Reply {
    service.flags = service.flags | Flags::HASHED;
    Reply::Service(service)
}

#[test]
fn answers_of_the_kernel_are_read() {
    let info = Info {
        version: 0x01_02_01,
        connection_table_size: 4096,
    };
    let cases = [
        ("info", vec![Reply::Info(info)]),
        ("service", vec![shown(Service::new(web(), "wlc"))]),
        ("destinations_ipv6", vec![Reply::Destination(backend_v6())]),
        (
            "services",
            vec![
                shown(Service::new(web(), "wlc")),
                shown(sticky_dns()),
                shown(Service::new(MARK, "wlc")),
            ],
        ),
    ];
    for (name, expected) in cases {
        let bytes = capture(name);
        let mut read: Vec<Reply> = messages(&bytes)
            .map(|m| Reply::decode(&m.unwrap()).unwrap())
            .collect();
        // The kernel lists in hash order.
        read.sort_by_key(|reply| match reply {
            Reply::Service(service) => Some(service.key),
            _ => None,
        });
        assert_eq!(read, expected, "{name}");
    }
    let mut weightless = backend();
    weightless.weight = 0;
    let bytes = capture("destinations_ipv4");
    assert_eq!(
        Reply::decode(&only(&bytes)).unwrap(),
        Reply::Destination(weightless)
    );
}

#[test]
fn answers_are_written_as_the_kernel_writes_them_without_statistics() {
    for name in [
        "info",
        "service",
        "services",
        "destinations_ipv4",
        "destinations_ipv6",
    ] {
        for message in messages(&capture(name)) {
            let message = message.unwrap();
            let reply = Reply::decode(&message).unwrap();
            let mut written = Vec::new();
            reply.encode(envelope_of(&message), &mut written).unwrap();
            let written = only(&written);
            assert_eq!(Reply::decode(&written).unwrap(), reply, "{name}");
            // Statistics come last. The kernel omits the nested flag, so the attributes after the generic header and
            // the outer attribute's header are compared.
            let (start, end) = (8, written.payload.len());
            let start = if name == "info" { 0 } else { start };
            assert_eq!(
                written.payload[start..],
                message.payload[start..end],
                "{name}"
            );
        }
    }
}

#[test]
fn acknowledgements_errors_and_ends_are_distinguished() {
    for (name, expected) in [
        ("acknowledgement", Some(0)),
        ("error_exists", Some(17)),
        ("done", Some(0)),
        ("info", None),
    ] {
        assert_eq!(error_code(&only(&capture(name))), expected, "{name}");
    }
}

#[test]
fn attributes_that_are_not_known_are_kept_and_written_back() {
    // `service` with an attribute of number 99 after the known ones.
    let bytes = capture("new_service_ipv4");
    let mut extended = bytes;
    extended.extend_from_slice(&[0x08, 0x00, 0x63, 0x00, 0xde, 0xad, 0xbe, 0xef]);
    extended[0] += 8;
    extended[20] += 8;
    let message = only(&extended);
    let request = Request::decode(&message).unwrap();
    let Request::NewService(service) = &request else {
        panic!("{request}")
    };
    assert_eq!(service.other.len(), 1);
    let mut written = Vec::new();
    request.encode(envelope_of(&message), &mut written).unwrap();
    assert_eq!(written, without_port(extended.clone()));
}
