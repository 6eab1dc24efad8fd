//! Tests entries of every type: this crate reads those written by `ipset`, and vice versa.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ipset_rs::{CreateOptions, Entry, Family, SetType, Socket};

use crate::{add, entry, listed, set_of, witness};
use netlink_blocking::testing::runner::output_of;

/// Entries of every type in the form of `ipset save`.
const ENTRIES: &[(SetType, Family, &[&str])] = &[
    (
        SetType::HashIpPort,
        Family::Ipv4,
        &[
            "10.20.30.41,tcp:80",
            "10.96.0.10,udp:53",
            "1.2.3.4,sctp:65535",
        ],
    ),
    (
        SetType::HashIpPort,
        Family::Ipv6,
        &["fd00::1,tcp:443", "fd00::a,udp:53", "fd00::b,sctp:9"],
    ),
    (
        SetType::HashNet,
        Family::Ipv4,
        &["10.96.0.0/12", "192.0.2.7", "128.0.0.0/1"],
    ),
    (
        SetType::HashNet,
        Family::Ipv6,
        &["fd00::/108", "2001:db8::7"],
    ),
    (
        SetType::HashIpPortIp,
        Family::Ipv4,
        &["10.0.0.1,tcp:80,10.0.0.1", "10.0.0.1,udp:80,10.0.0.2"],
    ),
    (
        SetType::HashIpPortIp,
        Family::Ipv6,
        &["fd00::1,tcp:80,fd00::1", "fd00::1,sctp:80,fd00::2"],
    ),
    (
        SetType::HashIpPortNet,
        Family::Ipv4,
        &[
            "10.0.0.1,tcp:80,192.0.2.0/24",
            "10.0.0.1,udp:80,10.0.0.0/8",
            "10.0.0.1,sctp:80,198.51.100.7",
        ],
    ),
    (
        SetType::HashIpPortNet,
        Family::Ipv6,
        &["fd00::1,tcp:80,fd00:1::/64", "fd00::1,tcp:80,8000::/1"],
    ),
    (SetType::BitmapPort, Family::Ipv6, &["0", "32102", "65535"]),
];

pub(crate) fn entries_of_every_type_appear_as_written() {
    let mut socket = Socket::open().unwrap();
    for (index, (set_type, family, texts)) in ENTRIES.iter().copied().enumerate() {
        let name = format!("PORTOLAN-{index}");
        socket
            .create(&name, set_type, family, &CreateOptions::default())
            .unwrap();
        let entries: Vec<Entry> = texts.iter().map(|text| fitting(set_type, text)).collect();
        add(&mut socket, &name, &entries);
        assert_eq!(witness(&name), set_of(texts));
        assert_eq!(listed(&mut socket, &name), set_of(texts));
        let saved = output_of("ipset", &["save", &name]);
        let sizes = match set_type {
            SetType::BitmapPort => "range 0-65535".to_owned(),
            _ => format!("family {family} hashsize 1024 maxelem 65536"),
        };
        let head = format!("create {name} {set_type} {sizes}");
        assert!(saved.starts_with(&head), "{saved}");
        for result in socket.delete(&name, &entries) {
            result.unwrap();
        }
        assert_eq!(witness(&name), BTreeSet::new());
    }
}

/// The entry of this text for a set of this type. A range of one address is written like the address.
fn fitting(set_type: SetType, text: &str) -> Entry {
    match (set_type, entry(text)) {
        (
            SetType::HashIpPortNet,
            Entry::IpPortIp {
                address,
                protocol,
                port,
                source,
            },
        ) => Entry::IpPortNet {
            address,
            protocol,
            port,
            net: source.into(),
        },
        (_, entry) => entry,
    }
}

pub(crate) fn what_ipset_adds_is_listed() {
    let ipset = |arguments: &str| {
        output_of("ipset", &arguments.split(' ').collect::<Vec<_>>());
    };
    // Time left, counters and a comment do not change what an entry matches.
    ipset("create a hash:ip,port timeout 600 counters comment");
    ipset("add a 10.0.0.1,tcp:80 comment hello");
    ipset("create b hash:net family inet6");
    ipset("add b fd00:1:2:3::/64");
    ipset("create p bitmap:port range 1000-2000 counters");
    ipset("add p 1500-1501");
    let mut socket = Socket::open().unwrap();
    assert_eq!(listed(&mut socket, "a"), set_of(&["10.0.0.1,tcp:80"]));
    assert_eq!(listed(&mut socket, "b"), set_of(&["fd00:1:2:3::/64"]));
    assert_eq!(listed(&mut socket, "p"), set_of(&["1500", "1501"]));
    assert_eq!(socket.names().unwrap(), ["a", "b", "p"]);
    assert!(socket.list("c").unwrap().is_none());
}

pub(crate) fn entries_of_a_set_with_a_timeout_go_by_themselves() {
    let mut socket = Socket::open().unwrap();
    for (index, (set_type, family, texts)) in ENTRIES.iter().copied().enumerate() {
        let name = format!("PORTOLAN-{index}");
        let options = CreateOptions {
            timeout: Some(1),
            ..CreateOptions::default()
        };
        socket.create(&name, set_type, family, &options).unwrap();
        let header = socket.list(&name).unwrap().unwrap().header;
        assert_eq!(header.timeout, Some(1), "{set_type}");
        let saved = output_of("ipset", &["save", &name]);
        assert!(saved.contains(" timeout 1"), "{saved}");
        let entries: Vec<Entry> = texts.iter().map(|text| fitting(set_type, text)).collect();
        add(&mut socket, &name, &entries);
        assert_eq!(listed(&mut socket, &name), set_of(texts), "{set_type}");
        let begin = Instant::now();
        while !listed(&mut socket, &name).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{set_type}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(witness(&name), BTreeSet::new(), "{set_type}");
        // Deleting an expired entry also succeeds.
        for result in socket.delete(&name, &entries) {
            result.unwrap();
        }
    }
}
