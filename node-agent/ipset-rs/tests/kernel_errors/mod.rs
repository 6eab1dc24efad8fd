//! Tests refusals of the kernel: each one is assigned to its entry and names the next thing to check.

use std::collections::BTreeSet;
use std::process::Command;

use ipset_rs::{CreateOptions, Entry, Error, Family, SetType, Socket};

use crate::{OPEN_ONLY, add, entry, listed, set_of, witness};
use netlink_blocking::testing::runner::output_of;

fn with_set(name: &str, set_type: SetType, max_elements: u32) -> Socket {
    let mut socket = Socket::open().unwrap();
    let options = CreateOptions {
        hash_size: 64,
        max_elements,
        ..CreateOptions::default()
    };
    socket
        .create(name, set_type, Family::Ipv4, &options)
        .unwrap();
    socket
}

pub(crate) fn sets_are_created_and_destroyed_by_name() {
    let mut socket = with_set("a", SetType::HashNet, 100);
    let options = CreateOptions::default();
    for set_type in [SetType::HashNet, SetType::HashIpPort] {
        let error = socket
            .create("a", set_type, Family::Ipv4, &options)
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
    }
    socket.destroy("a").unwrap();
    let error = socket.destroy("a").unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(
        error.to_string(),
        "ipset: destroy set a: the set does not exist (error 2)"
    );
    assert_eq!(socket.names().unwrap(), Vec::<String>::new());
}

pub(crate) fn impossible_names_are_refused() {
    let mut socket = with_set("other", SetType::HashNet, 100);
    let options = CreateOptions::default();
    let longest = "n".repeat(31);
    socket
        .create(&longest, SetType::HashNet, Family::Ipv4, &options)
        .unwrap();
    add(&mut socket, &longest, &[entry("10.0.0.0/8")]);
    assert_eq!(witness(&longest), set_of(&["10.0.0.0/8"]));

    let too_long = "n".repeat(32);
    for name in [too_long.as_str(), "", "a\0b"] {
        let created = socket.create(name, SetType::HashNet, Family::Ipv4, &options);
        assert!(matches!(created, Err(Error::Name(_))), "{created:?}");
        assert!(matches!(socket.destroy(name), Err(Error::Name(_))));
        let added = socket.add(name, &[entry("10.0.0.0/8")]);
        assert!(matches!(added[..], [Err(Error::Name(_))]));
    }
    // The kernel interprets an empty name as all sets; they must still exist.
    assert_eq!(socket.names().unwrap().len(), 2);
}

pub(crate) fn a_set_in_use_is_not_destroyed() {
    let mut socket = with_set("a", SetType::HashNet, 100);
    output_of("ipset", &["create", "user", "list:set"]);
    output_of("ipset", &["add", "user", "a"]);
    let error = socket.destroy("a").unwrap_err();
    assert!(error.is_in_use(), "{error}");
}

pub(crate) fn one_bad_entry_stops_no_other() {
    let mut socket = with_set("a", SetType::HashNet, 10_000);
    let mut entries: Vec<Entry> = (0..1000_u32)
        .map(|i| entry(&format!("10.{}.{}.0/24", i / 256, i % 256)))
        .collect();
    // Entries that are not valid in hash:net, and not in this family.
    let bad = [0, 5, 6, 399, 400, 999];
    for (at, index) in bad.into_iter().enumerate() {
        entries[index] = entry(if at % 2 == 0 {
            "0.0.0.0/0"
        } else {
            "fd00::/64"
        });
    }
    let results = socket.add("a", &entries);
    assert_eq!(results.len(), entries.len());
    let failed: Vec<usize> = results
        .iter()
        .enumerate()
        .filter(|(_, r)| r.is_err())
        .map(|(index, _)| index)
        .collect();
    assert_eq!(failed, bad);
    let text = results[5].as_ref().unwrap_err().to_string();
    assert!(text.contains("add fd00::/64 to set a"), "{text}");
    let text = results[6].as_ref().unwrap_err().to_string();
    assert!(
        text.contains("add 0.0.0.0/0 to set a: the prefix length"),
        "{text}"
    );

    let good: BTreeSet<String> = (0..1000)
        .filter(|index| !bad.contains(index))
        .map(|index| entries[index].to_string())
        .collect();
    assert_eq!(witness("a"), good);
    let failed = socket
        .delete("a", &entries)
        .iter()
        .filter(|r| r.is_err())
        .count();
    assert_eq!(failed, bad.len());
    assert_eq!(listed(&mut socket, "a"), BTreeSet::new());
}

pub(crate) fn entries_beyond_the_limit_fail_one_by_one() {
    let mut socket = with_set("a", SetType::HashIpPort, 100);
    let entries: Vec<Entry> = (1..=3000_u32)
        .map(|port| entry(&format!("10.0.0.1,tcp:{port}")))
        .collect();
    let before = socket.counters();
    let results = socket.add("a", &entries);
    let sent = socket.counters().messages - before.messages;
    let added: BTreeSet<String> = entries
        .iter()
        .zip(&results)
        .filter(|(_, result)| result.is_ok())
        .map(|(entry, _)| entry.to_string())
        .collect();
    assert_eq!(
        witness("a"),
        added,
        "a result of ok means that the entry is in the set"
    );
    assert_eq!(added.len(), 100);
    let refused = results
        .iter()
        .filter(|r| r.as_ref().is_err_and(Error::is_full))
        .count();
    assert_eq!(refused, 2900);
    assert!(sent < 3100, "{sent} messages for 2,900 refusals");
}

pub(crate) fn a_missing_set_fails_every_entry_at_once() {
    let mut socket = Socket::open().unwrap();
    let entries: Vec<Entry> = (1..=3000_u32)
        .map(|port| entry(&format!("10.0.0.1,tcp:{port}")))
        .collect();
    let before = socket.counters().messages;
    let results = socket.add("absent", &entries);
    assert!(
        results
            .iter()
            .all(|result| result.as_ref().is_err_and(Error::is_not_found))
    );
    assert_eq!(socket.counters().messages - before, 15);
    let text = results[2999].as_ref().unwrap_err().to_string();
    assert!(
        text.contains("add 10.0.0.1,tcp:3000 to set absent"),
        "{text}"
    );
}

pub(crate) fn without_the_capability_the_error_names_it() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).arg(OPEN_ONLY).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("CAP_NET_ADMIN"), "{text:?}");
}
