//! Tests decoding and encoding against captures of messages to and from a real kernel.
//!
//! Each file in `captures/` contains the kernel and the command, and the name of every attribute. Files without
//! `own_` contain messages of `ipset` or answers of the kernel; files with `own_` contain messages of this crate that
//! the kernel accepted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

use ipset_rs::{
    CreateOptions, Detail, Entry, Envelope, Family, Header, RawMessage, Reply, Request, Revisions,
    SetName, SetPart, SetType, error_code, failed_line, messages,
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
        sequence: message.header.sequence_number,
        protocol: 7,
        acknowledge: message.header.flags & 4 != 0,
    }
}

fn name(text: &str) -> SetName {
    SetName::new(text).unwrap()
}

fn entry(text: &str) -> Entry {
    text.parse().unwrap()
}

fn entries(texts: &[&str]) -> Vec<Entry> {
    texts.iter().map(|text| entry(text)).collect()
}

fn create(
    set: &str,
    set_type: SetType,
    revision: u8,
    family: Family,
    sizes: (u32, u32),
) -> Request {
    let options = CreateOptions {
        hash_size: sizes.0,
        max_elements: sizes.1,
        timeout: None,
    };
    Request::Create {
        name: name(set),
        set_type,
        revision,
        family: set_type.has_family().then_some(family),
        options,
    }
}

fn living(mut request: Request, seconds: u32) -> Request {
    if let Request::Create { options, .. } = &mut request {
        options.timeout = Some(seconds);
    }
    request
}

fn list(set: Option<&str>, detail: Detail) -> Request {
    Request::List {
        name: set.map(name),
        detail,
    }
}

#[test]
fn requests_of_ipset_are_read() {
    let plain = create("web", SetType::HashIpPort, 7, Family::Ipv4, (1024, 65536));
    let sized = create("nets6", SetType::HashNet, 7, Family::Ipv6, (64, 100));
    let timed = living(
        create("hold", SetType::HashIpPort, 7, Family::Ipv4, (1024, 65536)),
        5,
    );
    let asked = Request::Type {
        set_type: SetType::HashIpPort,
        family: Some(Family::Ipv4),
    };
    let ports = create(
        "health",
        SetType::BitmapPort,
        3,
        Family::Ipv4,
        (1024, 65536),
    );
    let allow = create(
        "allow",
        SetType::HashIpPortNet,
        8,
        Family::Ipv6,
        (1024, 65536),
    );
    let cases = [
        ("protocol_request", Request::Protocol),
        ("type_request", asked),
        ("create_ipv4", plain),
        ("create_ipv6", sized),
        ("create_timeout", timed),
        ("create_bitmap_port", ports),
        ("create_hash_ip_port_net", allow),
        ("destroy", Request::Destroy(name("web"))),
        ("swap", Request::Swap(name("web"), name("web2"))),
        ("list_all", list(None, Detail::Entries)),
        ("list_names", list(None, Detail::Names)),
        ("list_headers", list(None, Detail::Headers)),
        (
            "add_many",
            Request::Add(
                name("web"),
                entries(&["10.0.0.1,tcp:80", "10.0.0.2,udp:53"]),
            ),
        ),
        (
            "delete_one",
            Request::Delete(name("web"), entries(&["10.20.30.41,tcp:80"])),
        ),
    ];
    for (file, expected) in cases {
        let bytes = capture(file);
        assert_eq!(Request::decode(&only(&bytes)).unwrap(), expected, "{file}");
    }
}

#[test]
fn entries_of_every_type_are_read() {
    for (file, set, text) in [
        ("add_one", "web", "10.20.30.41,tcp:80"),
        ("add_one_hash_net", "nets6", "fd00::/108"),
        (
            "add_one_hash_ip_port_ip",
            "hairpin",
            "10.0.0.1,udp:53,10.0.0.1",
        ),
        (
            "add_one_hash_ip_port_net",
            "allow",
            "fd00::1,tcp:80,fd00:1::/64",
        ),
        ("add_one_bitmap_port", "health", "32102"),
    ] {
        let expected = Request::Add(name(set), entries(&[text]));
        let bytes = capture(file);
        assert_eq!(Request::decode(&only(&bytes)).unwrap(), expected, "{file}");
    }
}

#[test]
fn requests_are_written_as_ipset_writes_them() {
    for file in [
        "type_request",
        "create_ipv6",
        "create_bitmap_port",
        "swap",
        "list_all",
        "list_names",
        "list_headers",
    ] {
        let bytes = capture(file);
        let message = only(&bytes);
        let mut written = Vec::new();
        let request = Request::decode(&message).unwrap();
        request.encode(envelope_of(&message), &mut written).unwrap();
        assert_eq!(written, bytes, "{file}");
    }
}

#[test]
fn our_own_requests_are_written_as_the_kernel_took_them() {
    let nets = ["10.96.0.0/12", "10.96.0.0/12", "192.0.2.0/24"];
    let sizes = (1024, 65536);
    let cases = [
        ("own_protocol", Request::Protocol),
        (
            "own_type",
            Request::Type {
                set_type: SetType::HashNet,
                family: Some(Family::Ipv4),
            },
        ),
        (
            "own_create",
            create("a", SetType::HashNet, 0, Family::Ipv4, sizes),
        ),
        ("own_add", Request::Add(name("a"), entries(&nets))),
        (
            "own_delete",
            Request::Delete(name("a"), entries(&nets[..2])),
        ),
    ];
    for (file, request) in cases {
        let bytes = capture(file);
        let message = only(&bytes);
        let mut written = Vec::new();
        request.encode(envelope_of(&message), &mut written).unwrap();
        assert_eq!(written, bytes, "{file}");
        assert_eq!(Request::decode(&message).unwrap(), request, "{file}");
    }
}

/// A set as listed by `ipset list`, in the form in which the kernel sends it.
fn part(
    set: &str,
    set_type: SetType,
    family: Family,
    sizes: (u32, u32, u8),
    text: &str,
) -> SetPart {
    let (hash_size, max_elements, revision) = sizes;
    let header = Header {
        name: set.to_owned(),
        type_name: set_type.name().to_owned(),
        family: set_type.has_family().then_some(family),
        revision,
        hash_size,
        max_elements,
        elements: 1,
        ..Header::default()
    };
    let entries = vec![entry(text)];
    SetPart {
        name: set.to_owned(),
        header: Some(header),
        entries,
        ..SetPart::default()
    }
}

/// The sets of the captures, as they should be decoded.
fn captured_sets() -> [(&'static str, SetPart); 7] {
    let web = part(
        "web",
        SetType::HashIpPort,
        Family::Ipv4,
        (1024, 65536, 7),
        "10.20.30.41,tcp:80",
    );
    let nets = part(
        "nets6",
        SetType::HashNet,
        Family::Ipv6,
        (64, 100, 7),
        "fd00::/108",
    );
    let pin = part(
        "hairpin",
        SetType::HashIpPortIp,
        Family::Ipv4,
        (1024, 65536, 6),
        "10.0.0.1,udp:53,10.0.0.1",
    );
    let allow = part(
        "allow",
        SetType::HashIpPortNet,
        Family::Ipv6,
        (1024, 65536, 8),
        "fd00::1,tcp:80,fd00:1::/64",
    );
    let health = part(
        "health",
        SetType::BitmapPort,
        Family::Ipv4,
        (0, 0, 3),
        "32102",
    );
    let mut timed = web.clone();
    timed.name = "hold".to_owned();
    let header = timed.header.as_mut().unwrap();
    header.name = "hold".to_owned();
    // The remaining time of an entry is not part of the entry.
    header.timeout = Some(5);
    let mut headers_only = web.clone();
    headers_only.entries.clear();
    [
        ("set_web", web),
        ("set_timeout", timed),
        ("set_nets6", nets),
        ("set_hairpin", pin),
        ("set_allow", allow),
        ("set_health", health),
        ("header", headers_only),
    ]
}

#[test]
fn sets_are_read() {
    for (file, expected) in captured_sets() {
        let bytes = capture(file);
        let Reply::Set(mut read) = Reply::decode(&only(&bytes)).unwrap() else {
            panic!("{file} is a set")
        };
        let header = read.header.as_mut().unwrap();
        assert!(header.memory_bytes > 0, "{file}");
        header.memory_bytes = 0;
        // The bucket size and the initial value of the hash, or the limits of the bitmap.
        let kept = std::mem::take(&mut header.other);
        assert_eq!(kept.len(), 2, "{file}");
        assert_eq!(read, expected, "{file}");
    }
    let only_name = SetPart {
        name: "web".to_owned(),
        ..SetPart::default()
    };
    assert_eq!(
        Reply::decode(&only(&capture("name"))).unwrap(),
        Reply::Set(only_name)
    );
}

#[test]
fn versions_and_revisions_are_read() {
    let versions = Reply::Protocol(Revisions { min: 6, max: 7 });
    assert_eq!(
        Reply::decode(&only(&capture("protocol"))).unwrap(),
        versions
    );
    let revisions = Reply::Type(Revisions { min: 0, max: 7 });
    assert_eq!(Reply::decode(&only(&capture("type"))).unwrap(), revisions);
}

#[test]
fn answers_are_written_so_that_they_read_the_same() {
    for file in [
        "protocol",
        "type",
        "set_web",
        "set_nets6",
        "set_hairpin",
        "set_allow",
        "set_health",
        "set_timeout",
        "header",
        "name",
    ] {
        let bytes = capture(file);
        let message = only(&bytes);
        let reply = Reply::decode(&message).unwrap();
        let mut written = Vec::new();
        reply.encode(envelope_of(&message), &mut written).unwrap();
        assert_eq!(Reply::decode(&only(&written)).unwrap(), reply, "{file}");
    }
}

#[test]
fn errors_name_the_entry_that_failed() {
    let cases = [
        // IPSET_ERR_INVALID_CIDR in the third line of the file.
        ("add_failed_line", Some(4104), Some(3)),
        ("create_exists", Some(17), None),
        ("swap_missing", Some(4101), None),
        ("done", Some(0), None),
        ("set_web", None, None),
    ];
    for (file, code, line) in cases {
        let bytes = capture(file);
        let message = only(&bytes);
        assert_eq!(
            (error_code(&message), failed_line(&message)),
            (code, line),
            "{file}"
        );
    }
}
