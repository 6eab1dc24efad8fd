//! The programmer on a model kernel that fails: what nobody knows is looked at, what one family lacks
//! is no matter of the other, and one cause is told once.

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

/// S-169: an answer that is lost says nothing about what was done, so nothing is decided without a look.
#[test]
fn what_may_have_been_done_is_looked_at_before_the_next_plan() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    assert_eq!(running.program(document()).failed, 0);
    let whole = state(&running.kernel);
    for lost in 1..40 {
        running.kernel.eyes().lost_answers = lost;
        let applied = running.program(without_web());
        assert!(applied.failed > 0, "{applied:?}");
        running.kernel.eyes().lost_answers = 0;
        // Sooner than it is tried again.
        let applied = running.program(document());
        assert_eq!(applied.failures, [""; 0], "{lost} answers were lost");
        assert_eq!(state(&running.kernel), whole, "{lost} answers were lost");
    }
    running.stop();
}

#[test]
fn many_operations_that_fail_for_one_reason_are_told_once_and_tried_again() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    running.kernel.eyes().lost_answers = 64;
    let applied = running.program(document());
    let [told] = &applied.failures[..] else {
        panic!("{:?}", applied.failures)
    };
    assert!(told.contains(": the answer was lost (and "), "{told}");
    assert!(applied.failed > 5, "{applied:?}");
    assert_eq!(
        running.wait(|applied| applied.failed == 0).failures,
        [""; 0]
    );
    running.stop();
}

/// S-7, S-169: nothing is written over rules that nobody could read, and the other family has all of its own.
#[test]
fn rules_of_one_family_that_cannot_be_read_stop_nothing_of_the_other() {
    for (unread, other) in [(Family::Ipv4, Family::Ipv6), (Family::Ipv6, Family::Ipv4)] {
        let folder = TempDir::new().unwrap();
        let running = Running::start(SharedModel::default(), folder.path());
        let why = "run the tool: it gave up".to_owned();
        running.kernel.eyes().unread_rules.insert(unread, why);
        let applied = running.program(document());
        let told = format!("read {unread} rules: run the tool: it gave up");
        assert_eq!(applied.failures, [told]);
        let found = state(&running.kernel);
        assert!(!found.rules.contains_key(&unread) && found.rules.contains_key(&other));
        let served = found
            .virtual_servers
            .keys()
            .map(|key| Family::of(key.address));
        assert_eq!(served.collect::<BTreeSet<_>>(), Family::BOTH.into());
        running.kernel.eyes().unread_rules.clear();
        running.wait(|applied| applied.failed == 0);
        let found = state(&running.kernel);
        assert!(found.rules.contains_key(&unread));
        running.stop();
    }
}

/// S-7, S-169: the other family has all of its own.
#[test]
fn rules_of_one_family_that_cannot_be_loaded_stop_nothing_of_the_other() {
    for (refused, other) in [(Family::Ipv4, Family::Ipv6), (Family::Ipv6, Family::Ipv4)] {
        let folder = TempDir::new().unwrap();
        let running = Running::start(SharedModel::default(), folder.path());
        running.kernel.eyes().refused_rules = Some(refused);
        let applied = running.program(document());
        let told = format!("load {refused} rules: the tool gave up");
        assert_eq!((applied.failures, applied.failed), (vec![told], 1));
        let found = state(&running.kernel);
        assert!(!found.rules.contains_key(&refused) && found.rules.contains_key(&other));
        running.kernel.eyes().refused_rules = None;
        running.wait(|applied| applied.failed == 0);
        let found = state(&running.kernel);
        assert!(found.rules.contains_key(&refused));
        running.stop();
    }
}

/// What cannot be read has not drifted.
#[test]
fn rules_that_cannot_be_read_for_a_while_are_no_drift() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), folder.path());
    let mut hasty = document();
    hasty.settings.sync.period = "50ms".parse().unwrap();
    assert_eq!(running.program(hasty).failed, 0);
    let why = "it gave up".to_owned();
    running.kernel.eyes().unread_rules.insert(Family::Ipv6, why);
    running.wait(|applied| applied.failed == 1);
    running.kernel.eyes().unread_rules.clear();
    let applied = running.wait(|applied| applied.failed == 0);
    assert_eq!(applied.drift, Default::default());
    running.stop();
}
