//! Stale flows with netlink faults: no other flow is deleted, no existing flow is reported as deleted, and repeated
//! attempts delete all stale ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::net::SocketAddr;

use netlink_blocking::testing::Fault;
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;
use proptest::prelude::*;

use super::Conntrack;
use super::fake::{FakeKernel, open};

/// Flow `number`; odd ones are stale.
fn flow(number: u16) -> Flow {
    let at = |last, port| SocketAddr::from(([10, 0, 0, last], port));
    Flow {
        source: at(1, 40_000 + number),
        destination: at(2, 53),
        reply_source: at(3, 5353),
        zone: 0,
        id: Some(number.into()),
        by_rules: false,
    }
}

fn is_stale(flow: &Flow) -> bool {
    flow.source.port() % 2 == 1
}

fn begin(flows: u16, faults: &[Fault]) -> (FakeKernel, Conntrack) {
    let kernel = FakeKernel::default();
    let conntrack = open(&kernel);
    kernel.lock().kernel.flows = (0..flows).map(flow).collect();
    kernel.lock().kernel.protocol = Protocol::Udp;
    kernel.lock().faults = faults.iter().copied().collect();
    (kernel, conntrack)
}

fn stale(conntrack: &mut Conntrack) -> Option<usize> {
    let found = conntrack.stale(Family::Ipv4, &is_stale).ok()?;
    (!found.interrupted).then_some(found.stale.len())
}

/// S-130.
#[test]
fn an_interrupted_lost_or_changed_list_is_read_again_at_once() {
    for fault in [
        Fault::Interrupted(1),
        Fault::AnswersLost(0),
        Fault::AnswersLost(1),
        Fault::ListChanged,
    ] {
        let (_, mut conntrack) = begin(100, &[fault, fault, fault]);
        assert_eq!(stale(&mut conntrack), Some(50), "{fault:?}");
    }
}

/// S-130: the kernel refuses a list on a socket where another one was not read to its end.
#[test]
fn after_an_incomplete_list_the_next_one_is_complete() {
    for fault in [
        Fault::NoMemory,
        Fault::Silent(0),
        Fault::Silent(3),
        Fault::Cut(0),
        Fault::Cut(3),
    ] {
        let (_, mut conntrack) = begin(100, &[fault]);
        let error = conntrack.stale(Family::Ipv4, &is_stale).unwrap_err();
        assert!(
            error.to_string().starts_with("read IPv4 flows: "),
            "{error}"
        );
        assert_eq!(stale(&mut conntrack), Some(50), "{fault:?}");
    }
}

#[test]
fn a_list_that_always_changes_is_reported_as_possibly_incomplete() {
    let (_, mut conntrack) = begin(100, &[Fault::ListChanged; 4]);
    let found = conntrack.stale(Family::Ipv4, &is_stale).unwrap();
    assert!(found.interrupted);
    assert_eq!(found.stale.len(), 50);
}

/// Kernels before 5.8 list all protocols.
#[test]
fn flows_of_other_protocols_in_a_list_are_neither_returned_nor_deleted() {
    let (kernel, mut conntrack) = begin(100, &[]);
    kernel.lock().kernel.protocol = Protocol::Sctp;
    assert_eq!(stale(&mut conntrack), Some(0));
    assert_eq!(conntrack.forget(&[flow(1)]), [Ok(())], "no UDP flow");
    assert_eq!(kernel.lock().kernel.flows.len(), 100);
    let found = conntrack.stale_of(Protocol::Sctp, Family::Ipv4, &is_stale);
    let stale = found.unwrap().stale;
    assert_eq!(stale.len(), 50);
    let deleted = conntrack.forget_of(Protocol::Sctp, &stale);
    assert!(deleted.iter().all(Result::is_ok));
    assert_eq!(kernel.lock().kernel.flows.len(), 50);
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        Just(Fault::Interrupted(1)),
        Just(Fault::NoMemory),
        (0_usize..4).prop_map(Fault::AnswersLost),
        Just(Fault::ListChanged),
        (0_usize..4).prop_map(Fault::Silent),
        (0_usize..4).prop_map(Fault::Cut),
    ]
}

proptest! {
    /// S-130.
    #[test]
    fn after_any_faults_all_stale_flows_are_gone_and_no_other(
        faults in proptest::collection::vec(any_fault(), 0..12),
        flows in 0_u16..300,
    ) {
        let (kernel, mut conntrack) = begin(flows, &faults);
        for _ in 0..=faults.len() {
            let Ok(found) = conntrack.stale(Family::Ipv4, &is_stale) else { continue };
            let results = conntrack.forget(&found.stale);
            for (flow, result) in found.stale.iter().zip(results) {
                prop_assert!(result.is_err() || !kernel.lock().kernel.flows.contains(flow), "{:?}", flow);
            }
        }
        kernel.lock().faults.clear();
        let found = conntrack.stale(Family::Ipv4, &is_stale).unwrap();
        prop_assert!(conntrack.forget(&found.stale).iter().all(Result::is_ok));
        let left: Vec<_> = kernel.lock().kernel.flows.iter().copied().collect();
        let expected: Vec<_> = (0..flows).map(flow).filter(|flow| !is_stale(flow)).collect();
        prop_assert_eq!(left, expected);
    }
}
