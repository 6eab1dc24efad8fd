//! Tests how the socket handles refusals and failures: what is refused is named and left out, an unknown result is
//! reported as unknown, and the next call works.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeSet;

use netlink_blocking::testing::{ENOBUFS, Fault};
use proptest::prelude::*;

use crate::fake::{FakeKernel, open, table};
use crate::{Batch, Bytes, Committed, Element, Errno, Error, Field, Key, Set, Socket};

fn key(number: u32) -> Bytes {
    Key::new().mark(number).into()
}

fn elements(count: u32) -> Vec<Element> {
    (0..count).map(|number| Element::new(key(number))).collect()
}

/// A fake kernel with the set `s`, and a socket to it.
fn begin() -> (FakeKernel, Socket) {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    let mut batch = Batch::new();
    batch.add_set(&table(), &Set::new("s", [Field::Mark]));
    socket.commit(&batch).unwrap();
    (kernel, socket)
}

fn fail(kernel: &FakeKernel, faults: &[Fault]) {
    kernel.lock().faults = faults.iter().copied().collect();
}

fn adding(elements: &[Element]) -> Batch {
    let mut batch = Batch::new();
    batch.add_elements(&table(), "s", elements);
    batch
}

fn count(kernel: &FakeKernel) -> usize {
    kernel.lock().kernel.sets["s"].len()
}

/// The numbers of refused elements.
fn refused(committed: &Committed) -> Vec<usize> {
    let elements = committed.refusals.iter().map(|refusal| refusal.element);
    elements.map(|element| element.expect("named")).collect()
}

#[test]
fn many_elements_are_one_transaction_of_many_messages() {
    let (kernel, mut socket) = begin();
    let before = socket.counters();
    socket.commit(&adding(&elements(10_000))).unwrap();
    let after = socket.counters();
    assert_eq!(count(&kernel), 10_000);
    assert_eq!(after.sends - before.sends, 1);
    assert!(after.messages - before.messages > 3);
    let listed = socket.elements(&table(), "s").unwrap().unwrap();
    assert_eq!(listed.len(), 10_000);
}

#[test]
fn a_refused_transaction_executes_nothing_and_names_what_was_refused() {
    let (kernel, mut socket) = begin();
    kernel.lock().kernel.names_places = true;
    kernel.lock().kernel.refused.insert(key(4_321));
    let mut batch = adding(&elements(10_000));
    assert_eq!(batch.delete_set(&table(), "absent"), 1);
    let Err(Error::Refused(refused)) = socket.commit(&batch) else {
        panic!("it is refused")
    };
    assert_eq!(count(&kernel), 0);
    let found: Vec<_> = refused
        .refusals
        .iter()
        .map(|refusal| (refusal.operation, refusal.element, refusal.errno))
        .collect();
    assert_eq!(
        found,
        [
            (0, Some(4_321), Errno::SET_FULL),
            (1, None, Errno::NOT_FOUND)
        ]
    );
    let text = refused.to_string();
    let expected = format!(
        "add element {} to set s of table ip t: the set is full",
        key(4_321)
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(
        text.ends_with("(the first of 2 refused operations)"),
        "{text}"
    );
    assert_eq!(
        refused.refusals[1].what.to_string(),
        "delete set absent of table ip t"
    );
}

#[test]
fn without_a_place_the_message_is_named() {
    let (kernel, mut socket) = begin();
    kernel.lock().kernel.refused.insert(key(7));
    let Err(Error::Refused(refused)) = socket.commit(&adding(&elements(20))) else {
        panic!("it is refused")
    };
    assert_eq!(refused.refusals[0].element, None);
    let text = refused.to_string();
    assert!(text.starts_with("add 20 elements to set s"), "{text}");
}

#[test]
fn a_transaction_refused_as_a_whole_is_not_tried_again() {
    let (kernel, mut socket) = begin();
    kernel.lock().kernel.refuses_all = Some(Errno::NO_MEMORY);
    let before = kernel.lock().kernel.attempts;
    let error = socket
        .commit_without_refused(&adding(&elements(20)))
        .unwrap_err();
    assert!(matches!(&error, Error::Refused(refused) if refused.whole == Some(Errno::NO_MEMORY)));
    assert!(
        error.to_string().contains("Cannot allocate memory"),
        "{error}"
    );
    assert_eq!(kernel.lock().kernel.attempts - before, 1);
}

#[test]
fn what_depends_on_a_refused_operation_is_left_out_too() {
    let (kernel, mut socket) = begin();
    let mut batch = Batch::new();
    batch.delete_set(&table(), "s");
    batch.delete_set(&table(), "s");
    batch.add_elements(&table(), "s", elements(3_000));
    batch.add_set(&table(), &Set::new("new", [Field::Mark]));
    let committed = socket.commit_without_refused(&batch).unwrap();
    let operations: BTreeSet<_> = committed.refusals.iter().map(|r| r.operation).collect();
    assert_eq!(operations, BTreeSet::from([1, 2]));
    assert_eq!(committed.refusals.len(), 3_001);
    let sets: Vec<_> = kernel.lock().kernel.sets.keys().cloned().collect();
    assert_eq!(sets, ["new"]);
}

#[test]
fn what_does_not_fit_into_a_message_is_refused_alone() {
    let (kernel, mut socket) = begin();
    let long = Element::new(vec![0; 70_000]);
    let mut batch = Batch::new();
    batch.add_elements(
        &table(),
        "s",
        [Element::new(key(1)), long, Element::new(key(2))],
    );
    batch.add_set(&table(), &Set::new("x".repeat(70_000), [Field::Mark]));
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    let Err(Error::Refused(refused)) = socket.commit(&batch) else {
        panic!("it is refused")
    };
    assert_eq!(refused.refusals.len(), 2);
    assert_eq!(count(&kernel), 0);
    let committed = socket.commit_without_refused(&batch).unwrap();
    let found: Vec<_> = committed
        .refusals
        .iter()
        .map(|refusal| (refusal.operation, refusal.element, refusal.errno))
        .collect();
    let expected = [(0, Some(1), Errno::TOO_LONG), (1, None, Errno::TOO_LONG)];
    assert_eq!(found, expected);
    assert_eq!(count(&kernel), 2);
}

#[test]
fn a_batch_of_nothing_is_not_sent() {
    let (kernel, mut socket) = begin();
    let before = socket.counters();
    socket.commit(&Batch::new()).unwrap();
    socket.commit(&adding(&[])).unwrap();
    assert_eq!(
        socket
            .commit_without_refused(&adding(&[]))
            .unwrap()
            .attempts,
        0
    );
    assert_eq!(socket.counters(), before);
    assert_eq!(count(&kernel), 0);
}

#[test]
fn signals_interrupt_no_transaction_and_no_list() {
    let (kernel, mut socket) = begin();
    fail(&kernel, &[Fault::Interrupted(3); 2]);
    socket.commit(&adding(&elements(1_000))).unwrap();
    let listed = socket.elements(&table(), "s").unwrap().unwrap();
    assert_eq!(listed.len(), 1_000);
    assert_eq!(kernel.lock().opened, 1);
}

#[test]
fn a_transaction_whose_answer_is_lost_is_unknown() {
    let (kernel, mut socket) = begin();
    fail(&kernel, &[Fault::AnswersLost(0)]);
    let error = socket.commit(&adding(&elements(10))).unwrap_err();
    assert!(error.is_of_socket(), "{error}");
    assert!(
        error
            .to_string()
            .contains("unknown until the state is read"),
        "{error}"
    );
    socket.commit(&adding(&elements(20))).unwrap();
    assert_eq!(count(&kernel), 20);
    assert_eq!(kernel.lock().opened, 2);
}

#[test]
fn refusals_that_were_lost_are_found_in_the_next_attempt() {
    let (kernel, mut socket) = begin();
    kernel.lock().kernel.refused.extend((0..500).map(key));
    let mut batch = Batch::new();
    for element in elements(1_000) {
        batch.add_elements(&table(), "s", [element]);
    }
    fail(&kernel, &[Fault::AnswersLost(100)]);
    let committed = socket.commit_without_refused(&batch).unwrap();
    assert_eq!((committed.refusals.len(), committed.attempts), (500, 3));
    assert_eq!(count(&kernel), 500);
    fail(&kernel, &[Fault::AnswersLost(100)]);
    let Err(Error::Refused(refused)) = socket.commit(&batch) else {
        panic!("it is refused")
    };
    assert_eq!((refused.refusals.len(), refused.incomplete), (100, true));
}

#[test]
fn a_send_without_memory_executes_nothing() {
    let (kernel, mut socket) = begin();
    fail(&kernel, &[Fault::NoMemory]);
    let error = socket.commit(&adding(&elements(10))).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(ENOBUFS)));
    assert_eq!(count(&kernel), 0);
    socket.commit(&adding(&elements(10))).unwrap();
    assert_eq!(count(&kernel), 10);
}

#[test]
fn a_list_that_changes_is_read_again_from_its_start() {
    let (kernel, mut socket) = begin();
    socket.commit(&adding(&elements(200))).unwrap();
    // The generation is read before each list.
    let faults = [Fault::ListChanged, Fault::AnswersLost(2), Fault::None];
    let faults = faults.into_iter().flat_map(|fault| [Fault::None, fault]);
    fail(&kernel, &faults.collect::<Vec<_>>());
    let mut begun = 0;
    let listed = socket
        .fold_elements(
            &table(),
            "s",
            || {
                begun += 1;
                0
            },
            |number, _| *number += 1,
        )
        .unwrap();
    assert_eq!((listed, begun), (Some(200), 3));
    fail(&kernel, &[Fault::None, Fault::ListChanged].repeat(30));
    let error = socket.elements(&table(), "s").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("list the elements of set s of table ip t"),
        "{error}"
    );
    assert!(error.to_string().contains("20 times"), "{error}");
    assert_eq!(socket.elements(&table(), "absent").unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same for kernels that name places and for those that do not.
    #[test]
    fn exactly_what_is_refused_is_left_out(
        count in 1_u32..5_000,
        refused_keys in prop::collection::btree_set(0_u32..5_000, 0..300),
        names_places: bool,
    ) {
        let (kernel, mut socket) = begin();
        kernel.lock().kernel.names_places = names_places;
        kernel.lock().kernel.refused.extend(refused_keys.iter().copied().map(key));
        let committed = socket.commit_without_refused(&adding(&elements(count))).unwrap();
        let expected: Vec<usize> = refused_keys
            .iter()
            .filter(|number| **number < count)
            .map(|number| usize::try_from(*number).unwrap())
            .collect();
        prop_assert_eq!(refused(&committed), expected);
        prop_assert!(committed.attempts <= 14, "{} attempts", committed.attempts);
        let has: BTreeSet<Bytes> = kernel.lock().kernel.sets["s"].keys().cloned().collect();
        let wanted: BTreeSet<Bytes> = (0..count)
            .filter(|number| !refused_keys.contains(number))
            .map(key)
            .collect();
        prop_assert_eq!(has, wanted);
        for refusal in &committed.refusals {
            let number = u32::try_from(refusal.element.unwrap()).unwrap();
            let names = format!("add element {} to", key(number));
            prop_assert!(refusal.to_string().starts_with(&names), "{}", refusal);
        }
    }
}
