//! Tests of what the kernel refuses.

use std::process::Command;
use std::time::Instant;

use netlink_blocking::testing::runner::{output_of, say};
use nft_rs::{
    Batch, Bytes, Chain, Element, Errno, Error, Expression, Family, Field, Key, Register, Rule,
    Set, Socket, Table, TableFlags,
};

use crate::{OPEN_ONLY, frontend, kernel_version, nft, socket_with, table, with_table};

fn mark(number: u32) -> Element {
    Element::new(Bytes::host_u32(number))
}

/// A map whose element 5000 has other data than will be wanted.
fn map_with_another(socket: &mut Socket) {
    let mut batch = with_table();
    let key = [Field::Mark];
    // A set that grows would be moved while it is listed.
    let set = Set::map("m", key, [Field::Port]).with_size(20_000);
    batch.add_set(&table(), &set);
    let other = Element::with_data(Bytes::host_u32(5_000), Bytes::port(1));
    batch.add_elements(&table(), "m", [other]);
    socket.commit(&batch).unwrap();
}

fn wanted(count: u32) -> impl Iterator<Item = Element> {
    (0..count).map(|number| Element::with_data(Bytes::host_u32(number), Bytes::port(80)))
}

pub(super) fn a_refused_element_is_named_and_the_rest_is_committed() {
    let mut socket = Socket::open().unwrap();
    map_with_another(&mut socket);
    let mut batch = Batch::new();
    batch.add_chain(&table(), &Chain::new("c"));
    let position = batch.add_elements(&table(), "m", wanted(20_000));
    batch.delete_chain(&table(), "absent");
    let committed = socket.commit_without_refused(&batch).unwrap();
    let found: Vec<_> = committed
        .refusals
        .iter()
        .map(|refusal| (refusal.operation, refusal.element, refusal.errno))
        .collect();
    assert_eq!(
        found,
        [
            (position, Some(5_000), Errno::EXISTS),
            (position + 1, None, Errno::NOT_FOUND)
        ]
    );
    assert_eq!(committed.attempts, 2, "this kernel names the element");
    let text = committed.refusals[0].to_string();
    let expected = format!(
        "add element {} : 0x0050 to set m of table ip t",
        Bytes::host_u32(5_000)
    );
    assert!(text.starts_with(&expected), "{text}");
    let elements = socket.elements(&table(), "m").unwrap().unwrap();
    assert_eq!(elements.len(), 20_000);
    let other = elements.iter().filter(|e| e.data != Some(Bytes::port(80)));
    assert_eq!(other.count(), 1);
    assert_eq!(socket.chains(&table()).unwrap().len(), 1);
}

pub(super) fn many_refused_elements_take_few_attempts() {
    let mut socket = socket_with(&Set::new("s", [Field::Mark]));
    let mut batch = Batch::new();
    batch.add_elements(
        &table(),
        "s",
        (0..30_000).filter(|number| number % 3 != 0).map(mark),
    );
    socket.commit(&batch).unwrap();
    let mut batch = Batch::new();
    batch.delete_elements(&table(), "s", (0..30_000).map(mark));
    let started = Instant::now();
    let committed = socket.commit_without_refused(&batch).unwrap();
    say(&format!(
        "  {} refusals in {} attempts, {:?}",
        committed.refusals.len(),
        committed.attempts,
        started.elapsed()
    ));
    let refused: Vec<_> = committed
        .refusals
        .iter()
        .map(|r| r.element.unwrap())
        .collect();
    assert_eq!(refused, (0..30_000).step_by(3).collect::<Vec<_>>());
    assert!(
        committed
            .refusals
            .iter()
            .all(|r| r.errno == Errno::NOT_FOUND)
    );
    assert!(committed.attempts <= 20, "{}", committed.attempts);
    assert_eq!(socket.elements(&table(), "s").unwrap(), Some(Vec::new()));
}

pub(super) fn an_existing_element_with_other_data_is_refused() {
    let mut socket = Socket::open().unwrap();
    map_with_another(&mut socket);
    let (old, new) = (
        Element::with_data(Bytes::host_u32(5_000), Bytes::port(1)),
        Element::with_data(Bytes::host_u32(5_000), Bytes::port(80)),
    );
    let mut batch = Batch::new();
    batch.add_elements(&table(), "m", [&new]);
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EXISTS));
    assert!(
        error
            .to_string()
            .contains("delete that one in the same transaction"),
        "{error}"
    );
    let mut batch = Batch::new();
    batch.add_elements(&table(), "m", [&old]);
    socket.commit(&batch).expect("the same data is no error");
    let mut batch = Batch::new();
    batch.delete_elements(&table(), "m", [Element::new(old.key)]);
    batch.add_elements(&table(), "m", [&new]);
    socket.commit(&batch).unwrap();
    assert_eq!(socket.elements(&table(), "m").unwrap().unwrap(), [new]);
}

pub(super) fn every_refused_operation_is_named_and_nothing_is_executed() {
    let mut socket = socket_with(&Set::new("s", [Field::Mark]).with_size(10));
    let before = nft(&["list", "ruleset"]);
    let mut batch = Batch::new();
    batch.add_chain(&table(), &Chain::new("c"));
    let absent = batch.add_rule(
        &table(),
        &Rule::new("c", [Expression::lookup("absent", Register::R0)]).with_comment("a rule"),
    );
    let full = batch.add_elements(&table(), "s", (0..11).map(mark));
    let short = batch.add_elements(&table(), "s", [Element::new(Key::new().port(1))]);
    let Err(Error::Refused(refused)) = socket.commit(&batch) else {
        panic!("it is refused")
    };
    let found: Vec<_> = refused
        .refusals
        .iter()
        .map(|refusal| (refusal.operation, refusal.element, refusal.errno))
        .collect();
    let expected = [
        (absent, None, Errno::NOT_FOUND),
        (full, Some(10), Errno::SET_FULL),
        (short, Some(0), Errno::INVALID),
    ];
    assert_eq!(found, expected);
    let text = refused.refusals[0].to_string();
    assert!(
        text.starts_with("add rule to chain c of table ip t (a rule): the table"),
        "{text}"
    );
    assert_eq!(nft(&["list", "ruleset"]), before);
}

pub(super) fn thousands_of_refusals_are_received() {
    const COUNT: usize = 5_000;
    let mut socket = Socket::open().unwrap();
    socket.commit(&with_table()).unwrap();
    let mut batch = Batch::new();
    for number in 0..COUNT {
        batch.delete_set(&table(), &format!("absent-{number}"));
    }
    batch.add_chain(&table(), &Chain::new("c"));
    let committed = socket.commit_without_refused(&batch).unwrap();
    say(&format!(
        "  {COUNT} refusals in {} attempts",
        committed.attempts
    ));
    assert_eq!(committed.refusals.len(), COUNT);
    assert_eq!(socket.chains(&table()).unwrap().len(), 1);
}

pub(super) fn without_the_capability_the_error_names_it() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).arg(OPEN_ONLY).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("nf_tables needs CAP_NET_ADMIN"), "{text}");
}

pub(super) fn an_owned_table_is_changed_only_by_its_socket() {
    if kernel_version() < (6, 9) {
        say("  not run: tables persist without their owner from kernel 6.9 on");
        return;
    }
    let mut owned = Table::new(Family::Ipv4, "t");
    owned.flags = TableFlags {
        owner: true,
        persist: true,
        dormant: false,
    };
    let mut batch = Batch::new();
    batch.add_table(&owned);
    batch.add_set(
        &table(),
        &Set::new("s", [Field::Ipv4Address, Field::Protocol, Field::Port]),
    );
    let mut owner = Socket::open().unwrap();
    owner.commit(&batch).unwrap();
    let mut change = Batch::new();
    change.add_elements(
        &table(),
        "s",
        [Element::new(frontend([10, 0, 0, 1].into(), 80))],
    );
    let mut other = Socket::open().unwrap();
    let error = other.commit(&change).unwrap_err();
    assert!(error.is_not_permitted(), "{error}");
    assert!(
        error
            .to_string()
            .contains("changed only by the socket of its owner"),
        "{error}"
    );
    let read = other.table(&table()).unwrap().unwrap();
    assert_eq!(read.owner, owner.port());
    assert!(read.owner.is_some());
    assert_eq!(read.as_written(), owned);
    owner.commit(&change).unwrap();
    // The table of the closed socket stays, and another socket adopts it.
    drop(owner);
    assert_eq!(other.table(&table()).unwrap().unwrap().owner, None);
    let mut adopt = Batch::new();
    adopt.add_table(&owned);
    adopt.flush_set(&table(), "s");
    other.commit(&adopt).unwrap();
    assert_eq!(other.table(&table()).unwrap().unwrap().owner, other.port());
    assert_eq!(other.elements(&table(), "s").unwrap(), Some(Vec::new()));
    let flushed = Command::new("nft")
        .args(["flush", "ruleset"])
        .output()
        .unwrap();
    drop(flushed);
    let listed = output_of("nft", &["list", "tables"]);
    assert!(
        listed.contains("table ip t"),
        "nft flush ruleset leaves it: {listed}"
    );
}
