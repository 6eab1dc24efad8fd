//! Tests how the socket handles failures of the kernel and of system calls: every entry gets its own result, an
//! unknown result is reported as unknown, and the next call works.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeSet;

use netlink_blocking::Error as SocketError;
use netlink_blocking::testing::{ENOBUFS, Fault};
use proptest::prelude::*;

use crate::fake::{FakeKernel, HASH_FULL, open};
use crate::{CreateOptions, Entry, Error, Family, SetType, Socket};

const SET: &str = "PORTOLAN-FRONTEND";

fn entries(count: u16) -> Vec<Entry> {
    let entry = |port| format!("10.96.0.1,tcp:{port}").parse().unwrap();
    (1..=count).map(entry).collect()
}

fn create(socket: &mut Socket) -> Result<(), Error> {
    let options = CreateOptions::default();
    socket.create(SET, SetType::HashIpPort, Family::Ipv4, &options)
}

/// A fake kernel with the set, and a socket to it.
fn begin() -> (FakeKernel, Socket) {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    create(&mut socket).unwrap();
    (kernel, socket)
}

fn fail(kernel: &FakeKernel, faults: &[Fault]) {
    kernel.lock().faults = faults.iter().copied().collect();
}

fn listed(socket: &mut Socket) -> Result<BTreeSet<Entry>, Error> {
    let set = socket.list(SET)?.expect("the set exists");
    Ok(set.entries.into_iter().collect())
}

#[test]
fn signals_interrupt_no_message_and_no_list() {
    let (kernel, mut socket) = begin();
    fail(&kernel, &[Fault::Interrupted(3); 3]);
    let entries = entries(1000);
    assert!(socket.add(SET, &entries).iter().all(Result::is_ok));
    assert_eq!(listed(&mut socket).unwrap(), entries.into_iter().collect());
    assert_eq!(kernel.lock().opened, 1);
}

/// S-169.
#[test]
fn one_refused_entry_among_many_fails_alone() {
    let (kernel, mut socket) = begin();
    let entries = entries(1000);
    kernel.lock().kernel.refused.insert(entries[431]);
    let results = socket.add(SET, &entries);
    let failed: Vec<_> = (0..).zip(&results).filter(|(_, r)| r.is_err()).collect();
    let [(431, Err(error))] = failed[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(error.errno(), Some(HASH_FULL));
    let names = "add 10.96.0.1,tcp:432 to set PORTOLAN-FRONTEND: ";
    assert!(error.to_string().contains(names), "{error}");
    assert_eq!(kernel.lock().kernel.sets[SET].len(), 999);
    assert_eq!(kernel.lock().opened, 1, "the socket is intact");
}

#[test]
fn a_message_whose_answer_is_lost_is_unknown_and_no_other() {
    let (kernel, mut socket) = begin();
    let entries = entries(800);
    // Of four messages in one send, one entry of the first is refused, and that answer is kept.
    kernel.lock().kernel.refused.insert(entries[7]);
    fail(&kernel, &[Fault::AnswersLost(1)]);
    let results = socket.add(SET, &entries);
    assert!(results[..7].iter().all(Result::is_ok));
    assert_eq!(results[7].as_ref().unwrap_err().errno(), Some(HASH_FULL));
    assert!(results[8..200].iter().all(Result::is_ok), "sent again");
    let lost =
        |result: &Result<(), Error>| matches!(result, Err(Error::Socket(SocketError::AnswerLost)));
    assert!(results[200..].iter().all(lost));
    assert_eq!(listed(&mut socket).unwrap().len(), 799);
}

#[test]
fn a_send_that_finds_no_memory_does_nothing_and_the_next_one_works() {
    let (kernel, mut socket) = begin();
    let entries = entries(10);
    fail(&kernel, &[Fault::NoMemory]);
    for result in socket.add(SET, &entries) {
        assert_eq!(result.unwrap_err().errno(), Some(ENOBUFS));
    }
    assert!(kernel.lock().kernel.sets[SET].is_empty());
    assert!(socket.add(SET, &entries).iter().all(Result::is_ok));
}

#[test]
fn a_set_whose_creation_was_not_answered_is_not_silently_created_twice() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    fail(&kernel, &[Fault::None, Fault::AnswersLost(0)]);
    let lost = create(&mut socket).unwrap_err();
    assert!(
        matches!(lost, Error::Socket(SocketError::AnswerLost)),
        "{lost}"
    );
    assert_eq!(socket.names().unwrap(), [SET], "the set was created");
    assert!(create(&mut socket).unwrap_err().is_exists());
}

/// Without another socket, the kernel would refuse the next list until the old one was read to its end.
#[test]
fn a_list_that_breaks_off_is_read_again_or_fails_and_the_next_one_is_whole() {
    let (kernel, mut socket) = begin();
    assert!(socket.add(SET, &entries(300)).iter().all(Result::is_ok));
    for lost in 0..3 {
        fail(&kernel, &[Fault::AnswersLost(lost)]);
        assert_eq!(listed(&mut socket).unwrap().len(), 300);
        fail(&kernel, &[Fault::Silent(lost)]);
        let silent = listed(&mut socket).unwrap_err();
        assert!(
            matches!(silent, Error::Socket(SocketError::Silent(_))),
            "{silent}"
        );
        assert_eq!(listed(&mut socket).unwrap().len(), 300);
        fail(&kernel, &[Fault::Cut(lost)]);
        let cut = listed(&mut socket).unwrap_err();
        assert!(
            matches!(cut, Error::Socket(SocketError::Decode(_))),
            "{cut}"
        );
        assert_eq!(listed(&mut socket).unwrap().len(), 300);
    }
}

#[test]
fn a_list_that_changes_is_read_again_and_one_that_never_holds_still_says_so() {
    let (kernel, mut socket) = begin();
    assert!(socket.add(SET, &entries(300)).iter().all(Result::is_ok));
    fail(&kernel, &[Fault::ListChanged; 4]);
    assert_eq!(listed(&mut socket).unwrap().len(), 300);
    fail(&kernel, &[Fault::ListChanged; 5]);
    assert_eq!(
        listed(&mut socket).unwrap_err().to_string(),
        "ipset: list set PORTOLAN-FRONTEND: the list changed while it was read, 5 times in a row: \
         check which other program keeps changing sets"
    );
    assert_eq!(listed(&mut socket).unwrap().len(), 300);
    assert_eq!(kernel.lock().opened, 1, "the socket is intact");
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        (1_usize..4).prop_map(Fault::Interrupted),
        Just(Fault::NoMemory),
        (0_usize..4).prop_map(Fault::AnswersLost),
        Just(Fault::ListChanged),
        (0_usize..4).prop_map(Fault::Silent),
        (0_usize..4).prop_map(Fault::Cut),
    ]
}

proptest! {
    /// Whatever fails, no entry is reported as successful that was not changed. Repeated reading and writing of the
    /// difference converges soon after the last fault.
    #[test]
    fn after_any_faults_reading_and_writing_converge(
        faults in proptest::collection::vec(any_fault(), 0..12),
        count in 0_u16..1500,
        there in 0_u16..1500,
    ) {
        let (kernel, mut socket) = begin();
        let wanted: BTreeSet<Entry> = entries(count).into_iter().collect();
        kernel.lock().kernel.sets.insert(SET.to_owned(), entries(there).into_iter().collect());
        fail(&kernel, &faults);
        let mut round = |faulty: bool| {
            let Ok(found) = listed(&mut socket) else { return faulty };
            let add: Vec<_> = wanted.difference(&found).copied().collect();
            let delete: Vec<_> = found.difference(&wanted).copied().collect();
            let added = socket.add(SET, &add);
            let deleted = socket.delete(SET, &delete);
            let held = &kernel.lock().kernel.sets[SET];
            let right = |entry: &Entry| held.contains(entry) == wanted.contains(entry);
            let results = add.iter().zip(added).chain(delete.iter().zip(deleted));
            results.into_iter().all(|(entry, result)| result.is_err() || right(entry))
        };
        for _ in 0..=faults.len() {
            prop_assert!(round(true));
        }
        fail(&kernel, &[]);
        prop_assert!(round(false));
        prop_assert_eq!(&kernel.lock().kernel.sets[SET], &wanted);
    }
}
