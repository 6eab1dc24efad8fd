//! Tests decoding and encoding against captures of messages to and from a real kernel.
//!
//! Each file in `captures/` contains the kernel and the command, and the name of every attribute. Files that begin with
//! `add_` contain messages of `nft`, the others answers of the kernel.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this file is tests, but clippy sees that in test functions only"
)]

use std::time::Duration;

use netlink_blocking::testing::captures;
use nft_rs::{
    Bytes, Chain, ChainKind, ConntrackKey, Element, Elements, Envelope, Expression, Family,
    FibFlags, FibResult, Field, Generation, Hook, Key, NatFlags, NatKind, Operation, Policy,
    RawMessage, Register, Reply, Rule, Set, Table, TableId, error_code, failed_offset, messages,
    user_data,
};

const R0: Register = Register::R0;

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

fn operation(name: &str) -> Operation {
    Operation::decode(&only(&capture(name))).unwrap()
}

fn reply(name: &str) -> Reply {
    Reply::decode(&only(&capture(name))).unwrap()
}

fn id() -> TableId {
    TableId::new(Family::Ipv4, "portolan")
}

fn table() -> Table {
    let mut table = Table::new(Family::Ipv4, "portolan");
    user_data::put_text(&mut table.user_data, user_data::COMMENT, "hello").unwrap();
    table
}

fn chains() -> [(&'static str, Chain); 4] {
    let mut input = Chain::base("in", ChainKind::Filter, Hook::Input, -10);
    input.base.as_mut().unwrap().policy = Some(Policy::Drop);
    [
        ("chain", Chain::new("x")),
        (
            "chain_nat_pre",
            Chain::base("nat-pre", ChainKind::Nat, Hook::Prerouting, -105),
        ),
        (
            "chain_post",
            Chain::base("post", ChainKind::Nat, Hook::Postrouting, 95),
        ),
        ("chain_in", input),
    ]
}

/// The sets of the captures, without the description of types that `nft` adds.
fn sets() -> [(&'static str, Set); 6] {
    use Field::{Ipv4Address, Mark, Port, Protocol};
    let mut affinity = Set::map(
        "affinity",
        [Ipv4Address, Protocol, Port, Ipv4Address],
        [Ipv4Address, Port],
    )
    .dynamic(65_536);
    affinity.timeout = Some(Duration::from_secs(3_600));
    [
        (
            "map_endpoint",
            Set::map(
                "endpoint",
                [Ipv4Address, Protocol, Port, Mark],
                [Ipv4Address, Port],
            ),
        ),
        (
            "set_frontend",
            Set::new("frontend", [Ipv4Address, Protocol, Port]),
        ),
        ("map_affinity", affinity),
        (
            "set_allow",
            Set::new("allow", [Ipv4Address, Port]).with_intervals(),
        ),
        ("set_pods", Set::new("pods", [Ipv4Address]).with_intervals()),
        ("set_marks", Set::new("marks", [Mark])),
    ]
}

fn elements(set: &str, elements: Vec<Element>) -> Elements {
    Elements {
        table: id(),
        set: set.into(),
        elements,
    }
}

fn endpoint() -> Element {
    let key = Key::new()
        .ipv4([10, 0, 0, 1].into())
        .protocol(6)
        .port(80)
        .mark(5);
    Element::with_data(key, Key::new().ipv4([10, 1, 1, 1].into()).port(8080))
}

fn allow() -> Element {
    let key = |address: [u8; 4], port| Key::new().ipv4(address.into()).port(port);
    Element::range(key([10, 0, 0, 0], 80), key([10, 255, 255, 255], 90))
}

fn pods() -> Vec<Element> {
    let mut elements = vec![Element::end_of_interval([0; 4])];
    elements.extend(Element::interval(&[10, 0, 0, 0], &[10, 255, 255, 255]));
    elements.extend(Element::interval(&[192, 168, 1, 5], &[192, 168, 1, 5]));
    elements
}

fn rules() -> [(&'static str, Rule); 6] {
    let goto = [
        Expression::destination_address(Family::Ipv4, R0),
        Expression::protocol(R0.after(1)),
        Expression::destination_port(R0.after(2)),
        Expression::lookup("frontend", R0),
        Expression::goto("x"),
    ];
    let status = [
        Expression::conntrack(ConntrackKey::Status, R0),
        Expression::mask(R0, Bytes::host_u32(ConntrackKey::DNAT)),
        Expression::not_equal(R0, Bytes::host_u32(ConntrackKey::DNAT)),
        Expression::leave(),
    ];
    let fib = [
        Expression::address_type(FibFlags::SOURCE, R0),
        Expression::equal(R0, Bytes::host_u32(FibResult::LOCAL)),
        Expression::masquerade(NatFlags::FULLY_RANDOM),
    ];
    let tcp = || [Expression::protocol(R0), Expression::equal(R0, [6])];
    let masquerade = [
        Expression::immediate(R0, Bytes::port(1024)),
        Expression::immediate(Register::R4, Bytes::port(2999)),
        Expression::masquerade_to_ports(NatFlags::FULLY_RANDOM, R0, Register::R4),
    ];
    let conntrack = [
        Expression::original_address(Family::Ipv4, NatKind::Destination, R0),
        Expression::equal(R0, [10, 0, 0, 1]),
        Expression::counter(),
        Expression::drop(),
    ];
    [
        (
            "rule_goto",
            Rule::new("nat-pre", goto).with_comment("known"),
        ),
        ("rule_status", Rule::new("post", status)),
        ("rule_fib", Rule::new("post", fib)),
        (
            "rule_masquerade",
            Rule::new("post", tcp().into_iter().chain(masquerade)),
        ),
        (
            "rule_reject",
            Rule::new("in", tcp().into_iter().chain([Expression::reject_tcp()])),
        ),
        ("rule_conntrack", Rule::new("in", conntrack)),
    ]
}

/// `nft` describes types after the byte orders, for its own use.
fn without_description(set: Set) -> Set {
    assert_ne!(
        set.user_data.first(),
        Some(&0),
        "the byte order is understood"
    );
    Set {
        user_data: Vec::new(),
        ..set
    }
}

#[test]
fn requests_of_nft_are_read() {
    assert_eq!(operation("add_table"), Operation::AddTable(table()));
    for (file, mut expected) in chains() {
        // It names no policy that is the kernel's.
        if let Some(base) = &mut expected.base {
            base.policy = base.policy.filter(|policy| *policy == Policy::Drop);
        }
        assert_eq!(
            operation(&format!("add_{file}")),
            Operation::AddChain(id(), expected)
        );
    }
    for (file, expected) in sets() {
        let Operation::AddSet(table, set) = operation(&format!("add_{file}")) else {
            panic!("{file} is a set")
        };
        assert_eq!(
            (table, without_description(set)),
            (id(), expected),
            "{file}"
        );
    }
    for (file, expected) in rules() {
        assert_eq!(
            operation(&format!("add_{file}")),
            Operation::AddRule(id(), expected),
            "{file}"
        );
    }
    for (file, set, expected) in [
        ("add_elements_endpoint", "endpoint", vec![endpoint()]),
        ("add_elements_allow", "allow", vec![allow()]),
        ("add_elements_pods", "pods", pods()),
    ] {
        let expected = Operation::AddElements(elements(set, expected));
        assert_eq!(operation(file), expected, "{file}");
    }
}

#[test]
fn answers_of_the_kernel_are_read() {
    let Reply::Table(read) = reply("table") else {
        panic!("a table")
    };
    assert_eq!((read.handle, read.uses), (Some(1), Some(10)));
    assert_eq!(read.as_written(), table());
    for (file, expected) in chains() {
        let Reply::Chain(table, chain) = reply(file) else {
            panic!("{file} is a chain")
        };
        assert!(chain.handle.is_some() && chain.uses.is_some());
        assert_eq!((table, chain.as_written()), (id(), expected), "{file}");
    }
    for (file, expected) in sets() {
        let Reply::Set(table, set) = reply(file) else {
            panic!("{file} is a set")
        };
        assert!(set.handle.is_some());
        let set = without_description(set.as_written());
        assert_eq!((table, set), (id(), expected), "{file}");
    }
    for (file, expected) in rules() {
        let Reply::Rule(table, rule) = reply(file) else {
            panic!("{file} is a rule")
        };
        assert!(rule.handle.is_some());
        assert_eq!((table, rule.as_written()), (id(), expected), "{file}");
    }
    let mut reversed = pods();
    reversed.reverse();
    for (file, set, expected) in [
        ("elements_endpoint", "endpoint", vec![endpoint()]),
        ("elements_end", "endpoint", Vec::new()),
        ("elements_allow", "allow", vec![allow()]),
        ("elements_pods", "pods", reversed),
    ] {
        assert_eq!(
            reply(file),
            Reply::Elements(elements(set, expected)),
            "{file}"
        );
    }
    let Reply::Generation(Generation {
        id,
        process,
        process_name,
    }) = reply("generation")
    else {
        panic!("a generation")
    };
    assert!(id > 0 && process.is_some());
    assert_eq!(process_name.as_deref(), Some("nft"));
}

/// These have no attribute that `nft` writes for its own use, or that says what the kernel assumes anyway.
#[test]
fn requests_are_written_as_nft_writes_them() {
    for (file, id) in [
        ("add_table", 0),
        ("add_chain", 0),
        ("add_chain_nat_pre", 0),
        ("add_chain_post", 0),
        ("add_chain_in", 0),
        ("add_set_pods", 5),
        ("add_set_marks", 6),
        ("add_rule_fib", 0),
        ("add_rule_masquerade", 0),
    ] {
        let bytes = capture(file);
        // The sequence number is also the number of a set.
        let envelope = Envelope {
            sequence: id,
            acknowledge: false,
        };
        let mut written = Vec::new();
        operation(file).encode(envelope, &mut written).unwrap();
        assert_eq!(only(&written).payload, only(&bytes).payload, "{file}");
    }
}

#[test]
fn everything_is_written_so_that_it_reads_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = captures::read(&path);
        let message = only(&bytes);
        let envelope = Envelope {
            sequence: message.header.sequence_number,
            acknowledge: false,
        };
        let mut written = Vec::new();
        if error_code(&message).is_some() {
            continue;
        }
        let read = Reply::decode(&message).unwrap();
        read.encode(envelope, &mut written).unwrap();
        assert_eq!(Reply::decode(&only(&written)).unwrap(), read, "{path:?}");
        count += 1;
    }
    assert!(count > 30, "{count} captures");
}

#[test]
fn errors_name_the_place_of_the_element() {
    let bytes = capture("failed_element");
    let message = only(&bytes);
    assert_eq!(error_code(&message), Some(17));
    // After the headers, and the names of the table and of the set, and its number.
    assert_eq!(failed_offset(&message), Some(64));
    let bytes = capture("done");
    let message = only(&bytes);
    assert_eq!(
        (error_code(&message), failed_offset(&message)),
        (Some(0), None)
    );
}
