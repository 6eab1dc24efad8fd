//! Tests of reports.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nft_rs::{Batch, Chain, Element, Event, Events, Field, Set, Socket};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{nft, socket_with, table, with_table};

/// All events that have arrived.
fn arrived(events: &mut Events) -> Vec<Event> {
    std::iter::from_fn(|| events.poll().unwrap()).collect()
}

fn add_chain(socket: &mut Socket, name: &str) -> u32 {
    let mut batch = with_table();
    batch.add_chain(&table(), &Chain::new(name));
    socket.commit(&batch).unwrap();
    socket.generation().unwrap().id
}

/// The generation, the process and the socket of a commit.
fn commit(event: &Event) -> (u32, Option<u32>, Option<&str>, u32) {
    match event {
        Event::Commit { generation, port } => (
            generation.id,
            generation.process,
            generation.process_name.as_deref(),
            *port,
        ),
        other => panic!("{other:?}"),
    }
}

pub(super) fn a_transaction_is_reported_with_its_socket() {
    let mut events = Events::open().unwrap();
    assert_eq!(arrived(&mut events), []);
    let mut socket = Socket::open().unwrap();
    let mut other = Socket::open().unwrap();
    assert_ne!(socket.port(), other.port());
    let first = add_chain(&mut socket, "a");
    let second = add_chain(&mut other, "b");
    let seen = arrived(&mut events);
    assert_eq!(seen.len(), 2);
    let thread = u32::try_from(nix::unistd::gettid().as_raw()).ok();
    let (id, by, _, port) = commit(&seen[0]);
    assert_eq!((id, by, Some(port)), (first, thread, socket.port()));
    let (id, by, _, port) = commit(&seen[1]);
    assert_eq!((id, by, Some(port)), (second, thread, other.port()));
    // What is refused is not reported.
    let mut batch = Batch::new();
    batch.delete_chain(&table(), "absent");
    socket.commit(&batch).unwrap_err();
    assert_eq!(arrived(&mut events), []);
}

pub(super) fn transactions_of_others_are_reported_with_their_process() {
    let mut events = Events::open().unwrap();
    nft(&["add", "table", "ip", "x"]);
    let seen = arrived(&mut events);
    assert_eq!(seen.len(), 1);
    let (_, process, name, _) = commit(&seen[0]);
    assert_eq!(name, Some("nft"));
    assert!(process.is_some());
    // The descriptor becomes readable for the next one.
    assert!(!is_readable(&events));
    nft(&["add", "table", "ip", "y"]);
    assert!(is_readable(&events));
    assert_eq!(arrived(&mut events).len(), 1);
}

/// Whether the descriptor is readable now.
fn is_readable(events: &Events) -> bool {
    let mut wanted = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    poll(&mut wanted, PollTimeout::ZERO).unwrap() > 0
}

pub(super) fn reports_that_do_not_fit_are_lost_and_said_to_be() {
    let mut socket = socket_with(&Set::new("s", [Field::Mark]));
    let mut events = Events::open().unwrap();
    let mut batch = Batch::new();
    let key = |number: u32| Element::new(number.to_ne_bytes());
    batch.add_elements(&table(), "s", (0..100_000).map(key));
    socket.commit(&batch).unwrap();
    let seen = arrived(&mut events);
    assert!(seen.contains(&Event::Lost), "{seen:?}");
    // Afterwards it receives again.
    let id = add_chain(&mut socket, "a");
    let seen = arrived(&mut events);
    assert_eq!(seen.len(), 1);
    assert_eq!(commit(&seen[0]).0, id);
}

pub(super) fn a_pause_makes_no_reports() {
    let mut socket = Socket::open().unwrap();
    let mut events = Events::open().unwrap();
    events.pause().unwrap();
    add_chain(&mut socket, "a");
    assert_eq!(arrived(&mut events), []);
    events.resume().unwrap();
    let id = add_chain(&mut socket, "b");
    let started = Instant::now();
    let seen = arrived(&mut events);
    assert_eq!(seen.len(), 1);
    assert_eq!(commit(&seen[0]).0, id);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "it does not wait"
    );
}
