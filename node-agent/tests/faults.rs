//! The programmer on a failing model kernel: unknown state is read again, families do not affect each other, and each
//! cause is reported once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::BTreeSet;

use portolan_agent::kernel::SharedModel;
use portolan_plan::{Family, PlanDocument};
use portolan_reconcile::Observed;
use tempfile::TempDir;

use running::{Running, document};

fn without_web() -> PlanDocument {
    let mut document = document();
    document.services.retain(|service| &*service.name != "web");
    document
}

fn state(kernel: &SharedModel) -> Observed {
    kernel.lock().state.clone()
}

/// S-169: after a lost answer the effect of the operation is unknown, so the kernel is read before the next decision.
#[test]
fn after_lost_answers_the_kernel_is_read_before_the_next_plan() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    assert_eq!(running.program(document()).failed, 0);
    let whole = state(&running.kernel);
    for lost in 1..40 {
        running.kernel.faults().lost_answers = lost;
        let applied = running.program(without_web());
        assert!(applied.failed > 0, "{applied:?}");
        running.kernel.faults().lost_answers = 0;
        // Before the retry.
        let applied = running.program(document());
        assert_eq!(applied.failures, [""; 0], "{lost} answers were lost");
        assert_eq!(state(&running.kernel), whole, "{lost} answers were lost");
    }
    running.stop();
}

#[test]
fn many_failures_with_one_reason_are_reported_once_and_retried() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    running.kernel.faults().lost_answers = 64;
    let applied = running.program(document());
    let [failure] = &applied.failures[..] else {
        panic!("{:?}", applied.failures)
    };
    let expected = ": the answer was lost (and ";
    assert!(failure.contains(expected), "{failure}");
    assert!(applied.failed > 5, "{applied:?}");
    assert_eq!(
        running.wait(|applied| applied.failed == 0).failures,
        [""; 0]
    );
    running.stop();
}

/// S-7, S-169: unreadable rules are not overwritten, and the other family is programmed completely.
#[test]
fn unreadable_rules_of_one_family_do_not_affect_the_other() {
    for (unread, other) in [(Family::Ipv4, Family::Ipv6), (Family::Ipv6, Family::Ipv4)] {
        let folder = TempDir::new().unwrap();
        let running = Running::start(SharedModel::default(), folder.path());
        let why = "run the tool: it gave up".to_owned();
        running.kernel.faults().unread_rules.insert(unread, why);
        let applied = running.program(document());
        let failure = format!("read {unread} rules: run the tool: it gave up");
        assert_eq!(applied.failures, [failure]);
        let found = state(&running.kernel);
        assert!(!found.rules.contains_key(&unread) && found.rules.contains_key(&other));
        let served = found
            .virtual_servers
            .keys()
            .map(|key| Family::of(key.address));
        assert_eq!(served.collect::<BTreeSet<_>>(), Family::BOTH.into());
        running.kernel.faults().unread_rules.clear();
        running.wait(|applied| applied.failed == 0);
        let found = state(&running.kernel);
        assert!(found.rules.contains_key(&unread));
        running.stop();
    }
}

/// S-7, S-169: the other family is programmed completely.
#[test]
fn rules_that_fail_to_load_in_one_family_do_not_affect_the_other() {
    for (refused, other) in [(Family::Ipv4, Family::Ipv6), (Family::Ipv6, Family::Ipv4)] {
        let folder = TempDir::new().unwrap();
        let running = Running::start(SharedModel::default(), folder.path());
        running.kernel.faults().refused_rules = Some(refused);
        let applied = running.program(document());
        let failure = format!("load {refused} rules: the tool gave up");
        assert_eq!((applied.failures, applied.failed), (vec![failure], 1));
        let found = state(&running.kernel);
        assert!(!found.rules.contains_key(&refused) && found.rules.contains_key(&other));
        running.kernel.faults().refused_rules = None;
        running.wait(|applied| applied.failed == 0);
        let found = state(&running.kernel);
        assert!(found.rules.contains_key(&refused));
        running.stop();
    }
}

/// Unreadable rules do not count as drift.
#[test]
fn temporarily_unreadable_rules_are_not_drift() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    let mut hasty = document();
    hasty.settings.sync.period = "50ms".parse().unwrap();
    assert_eq!(running.program(hasty).failed, 0);
    let why = "it gave up".to_owned();
    running
        .kernel
        .faults()
        .unread_rules
        .insert(Family::Ipv6, why);
    running.wait(|applied| applied.failed == 1);
    running.kernel.faults().unread_rules.clear();
    let applied = running.wait(|applied| applied.failed == 0);
    assert_eq!(applied.drift, Default::default());
    running.stop();
}
