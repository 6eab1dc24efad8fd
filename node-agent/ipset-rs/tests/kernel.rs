//! Tests against the host's own kernel, in new network namespaces. Results are verified with `ipset`, which shares no
//! code with this crate.
//!
//! Run with `cargo test -p ipset-rs --test kernel`, as root or where user namespaces are allowed. Arguments are parts
//! of test names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

mod kernel_entries;
mod kernel_errors;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::process::ExitCode;

use ipset_rs::{CreateOptions, Entry, Family, Protocol, SetType, Socket};
use netlink_blocking::testing::runner::{Test, become_root, output_of, run, say};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, setuid};

/// Makes the program drop its privileges and print why it cannot open a socket, for the test of missing privileges.
const OPEN_ONLY: &str = "--open-only";

const TESTS: &[Test] = &[
    (
        "entries_of_every_type_appear_as_written",
        kernel_entries::entries_of_every_type_appear_as_written,
    ),
    (
        "what_ipset_adds_is_listed",
        kernel_entries::what_ipset_adds_is_listed,
    ),
    (
        "entries_of_a_set_with_a_timeout_go_by_themselves",
        kernel_entries::entries_of_a_set_with_a_timeout_go_by_themselves,
    ),
    (
        "fifty_thousand_entries_take_few_sends",
        fifty_thousand_entries_take_few_sends,
    ),
    (
        "adding_again_and_deleting_the_absent_succeed",
        adding_again_and_deleting_the_absent_succeed,
    ),
    ("swap_exchanges_the_entries", swap_exchanges_the_entries),
    ("foreign_sets_are_listed", foreign_sets_are_listed),
    (
        "entries_without_a_type_here_are_kept",
        entries_without_a_type_here_are_kept,
    ),
    (
        "headers_contain_sizes_and_references",
        headers_contain_sizes_and_references,
    ),
    (
        "sets_are_created_and_destroyed_by_name",
        kernel_errors::sets_are_created_and_destroyed_by_name,
    ),
    (
        "impossible_names_are_refused",
        kernel_errors::impossible_names_are_refused,
    ),
    (
        "a_set_in_use_is_not_destroyed",
        kernel_errors::a_set_in_use_is_not_destroyed,
    ),
    (
        "one_bad_entry_stops_no_other",
        kernel_errors::one_bad_entry_stops_no_other,
    ),
    (
        "entries_beyond_the_limit_fail_one_by_one",
        kernel_errors::entries_beyond_the_limit_fail_one_by_one,
    ),
    (
        "a_missing_set_fails_every_entry_at_once",
        kernel_errors::a_missing_set_fails_every_entry_at_once,
    ),
    (
        "without_the_capability_the_error_names_it",
        kernel_errors::without_the_capability_the_error_names_it,
    ),
];

/// Root of a new user namespace has no privileges in the network namespace from which it came.
fn give_up_privileges() {
    let nobody = Uid::from_raw(65534);
    unshare(CloneFlags::CLONE_NEWUSER)
        .or_else(|_| setuid(nobody))
        .expect("fewer privileges");
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == OPEN_ONLY) {
        give_up_privileges();
        say(&Socket::open().map_or_else(|error| error.to_string(), |_| "opened".to_owned()));
        return ExitCode::SUCCESS;
    }
    become_root();
    let filters: Vec<String> = arguments
        .into_iter()
        .filter(|a| !a.starts_with("--"))
        .collect();
    if run(TESTS, || {}, &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn entry(text: &str) -> Entry {
    text.parse().unwrap()
}

fn add(socket: &mut Socket, name: &str, entries: &[Entry]) {
    for result in socket.add(name, entries) {
        result.unwrap();
    }
}

/// The entries that `ipset save` prints for a set.
fn witness(name: &str) -> BTreeSet<String> {
    let saved = output_of("ipset", &["save", name]);
    let prefix = format!("add {name} ");
    saved
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .map(str::to_owned)
        .collect()
}

fn listed(socket: &mut Socket, name: &str) -> BTreeSet<String> {
    let set = socket.list(name).unwrap().expect("the set exists");
    assert_eq!(set.other_entries, []);
    set.entries.iter().map(Entry::to_string).collect()
}

fn set_of(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn fifty_thousand_entries_take_few_sends() {
    let mut socket = Socket::open().unwrap();
    let entries: Vec<Entry> = (0..50_000_u32)
        .map(|index| Entry::IpPortIp {
            address: Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(index)).into(),
            protocol: Protocol::Udp,
            port: 53,
            source: IpAddr::from(Ipv6Addr::LOCALHOST),
        })
        .collect();
    let options = CreateOptions {
        hash_size: 1024,
        max_elements: 100_000,
        ..CreateOptions::default()
    };
    socket
        .create("big", SetType::HashIpPortIp, Family::Ipv6, &options)
        .unwrap();
    let before = socket.counters();
    add(&mut socket, "big", &entries);
    let after = socket.counters();
    assert_eq!(after.messages - before.messages, 250);
    assert!(after.sends - before.sends <= 63, "{after:?}");
    let expected: BTreeSet<String> = entries.iter().map(Entry::to_string).collect();
    assert_eq!(witness("big"), expected);
    assert_eq!(listed(&mut socket, "big"), expected);
    assert!(socket.delete("big", &entries).iter().all(Result::is_ok));
    assert_eq!(witness("big"), BTreeSet::new());
}

fn adding_again_and_deleting_the_absent_succeed() {
    let mut socket = Socket::open().unwrap();
    socket
        .create(
            "a",
            SetType::HashNet,
            Family::Ipv4,
            &CreateOptions::default(),
        )
        .unwrap();
    let entries = [
        entry("10.96.0.0/12"),
        entry("10.96.0.0/12"),
        entry("192.0.2.0/24"),
    ];
    add(&mut socket, "a", &entries);
    add(&mut socket, "a", &entries);
    assert_eq!(witness("a"), set_of(&["10.96.0.0/12", "192.0.2.0/24"]));
    for _ in 0..2 {
        assert!(socket.delete("a", &entries[..2]).iter().all(Result::is_ok));
        assert_eq!(witness("a"), set_of(&["192.0.2.0/24"]));
    }
}

fn swap_exchanges_the_entries() {
    let mut socket = Socket::open().unwrap();
    for name in ["old", "new"] {
        socket
            .create(
                name,
                SetType::HashIpPort,
                Family::Ipv4,
                &CreateOptions::default(),
            )
            .unwrap();
    }
    add(&mut socket, "old", &[entry("10.0.0.1,tcp:80")]);
    add(&mut socket, "new", &[entry("10.0.0.2,tcp:80")]);
    socket.swap("old", "new").unwrap();
    assert_eq!(witness("old"), set_of(&["10.0.0.2,tcp:80"]));
    assert_eq!(witness("new"), set_of(&["10.0.0.1,tcp:80"]));
    socket
        .create(
            "net",
            SetType::HashNet,
            Family::Ipv4,
            &CreateOptions::default(),
        )
        .unwrap();
    let error = socket.swap("old", "net").unwrap_err();
    assert!(
        error.to_string().contains("have different types"),
        "{error}"
    );
    assert!(socket.swap("old", "absent").unwrap_err().is_not_found());
    assert!(socket.swap("absent", "old").unwrap_err().is_not_found());
}

fn foreign_sets_are_listed() {
    for arguments in [
        vec!["create", "hosts", "hash:ip"],
        vec!["create", "ports", "bitmap:port", "range", "0-1000"],
        vec!["create", "sets", "list:set"],
        vec!["add", "sets", "hosts"],
    ] {
        output_of("ipset", &arguments);
    }
    let mut socket = Socket::open().unwrap();
    let mut headers = socket.headers().unwrap();
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    let types: Vec<(&str, &str, Option<SetType>)> = headers
        .iter()
        .map(|h| (h.name.as_str(), h.type_name.as_str(), h.set_type()))
        .collect();
    assert_eq!(
        types,
        [
            ("hosts", "hash:ip", None),
            ("ports", "bitmap:port", Some(SetType::BitmapPort)),
            ("sets", "list:set", None)
        ]
    );
    let list = socket.list("sets").unwrap().unwrap();
    assert_eq!((list.entries.len(), list.other_entries.len()), (0, 1));
}

fn entries_without_a_type_here_are_kept() {
    output_of("ipset", &["create", "a", "hash:net"]);
    output_of("ipset", &["add", "a", "10.0.0.0/8"]);
    output_of("ipset", &["add", "a", "10.1.0.0/16", "nomatch"]);
    let set = Socket::open().unwrap().list("a").unwrap().unwrap();
    assert_eq!(set.entries, [entry("10.0.0.0/8")]);
    assert_eq!(
        set.other_entries.len(),
        1,
        "an exception is not an entry that matches"
    );
}

fn headers_contain_sizes_and_references() {
    let mut socket = Socket::open().unwrap();
    let options = CreateOptions {
        hash_size: 4096,
        max_elements: 12_345,
        ..CreateOptions::default()
    };
    socket
        .create("a", SetType::HashIpPort, Family::Ipv6, &options)
        .unwrap();
    add(
        &mut socket,
        "a",
        &[entry("fd00::1,tcp:1"), entry("fd00::1,tcp:2")],
    );
    output_of("ipset", &["create", "user", "list:set"]);
    output_of("ipset", &["add", "user", "a"]);
    let headers = socket.headers().unwrap();
    let header = headers.iter().find(|header| header.name == "a").unwrap();
    assert_eq!(header.set_type(), Some(SetType::HashIpPort));
    assert_eq!(header.family, Some(Family::Ipv6));
    assert_eq!((header.hash_size, header.max_elements), (4096, 12_345));
    assert_eq!((header.elements, header.references), (2, 1));
    assert!(header.memory_bytes > 0);
    let spoken = socket.revisions(SetType::HashIpPort, Family::Ipv6).unwrap();
    assert_eq!(header.revision, spoken.choose(SetType::HashIpPort));
    assert!((spoken.min..=spoken.max).contains(&header.revision));
}
