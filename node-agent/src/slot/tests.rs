//! Tests of taking plans and of wake-ups.

use portolan_plan::{Entry, EntryHash, EntryKey};

use super::*;

fn service(name: &str) -> ServiceId {
    ServiceId::new("default", name)
}

fn put(slot: &PlanSlot, mut staged: StagedChanges, names: &[&str]) {
    for name in names {
        staged.push(portolan_plan::Change::Upsert {
            key: EntryKey::Head(service(name)),
            hash: EntryHash::default(),
            entry: Some(Entry::Head(Arc::default())),
        });
    }
    slot.commit(staged, PlanHash::default()).unwrap();
}

fn names(plan: &NodePlan) -> Vec<&str> {
    plan.heads().map(|(service, _)| &*service.name).collect()
}

#[test]
fn a_plan_can_be_committed_while_the_previous_one_is_being_read() {
    let slot = PlanSlot::default();
    let TakenPlan::Whole(before) = slot.take().what else {
        panic!("a part of what was never taken");
    };
    put(&slot, StagedChanges::snapshot(), &["web"]);
    assert!(before.is_empty());
    assert_eq!(
        slot.wait(Duration::ZERO),
        Woken::Changed,
        "it was not taken"
    );
}

#[test]
fn a_paced_plan_wakes_the_thread_after_its_pause() {
    let slot = PlanSlot::default();
    put(&slot, StagedChanges::snapshot(), &["web"]);
    let hour = |_: &NodePlan| Duration::from_secs(3600);
    assert_eq!(slot.wait_paced(Duration::ZERO, hour), Woken::TimedOut);
    slot.disturb();
    assert_eq!(slot.wait_paced(Duration::MAX, hour), Woken::Disturbed);
    slot.take_disturbance();
    // A newer plan may have a shorter pause.
    let asked = std::cell::Cell::new(0);
    let twice = |_: &NodePlan| {
        asked.set(asked.get() + 1);
        Duration::from_millis(u64::from(asked.get() < 3))
    };
    assert_eq!(slot.wait_paced(Duration::MAX, twice), Woken::Changed);
}

#[test]
fn changes_since_the_plan_was_taken_accumulate() {
    let slot = PlanSlot::default();
    put(&slot, StagedChanges::snapshot(), &["cart", "web"]);
    assert!(matches!(slot.take_changed().what, TakenPlan::Whole(_)));
    put(&slot, StagedChanges::delta(), &["shop"]);
    let mut gone = StagedChanges::delta();
    gone.push(portolan_plan::Change::Remove {
        key: EntryKey::Head(service("web")),
    });
    slot.commit(gone, PlanHash::default()).unwrap();
    put(&slot, StagedChanges::delta(), &["shop"]);
    let taken = slot.take_changed();
    let TakenPlan::Part { before, after, .. } = taken.what else {
        panic!("all of it was taken");
    };
    assert_eq!(
        (taken.generation, names(&before), names(&after)),
        (4, vec!["web"], vec!["shop"])
    );
    assert!(matches!(slot.take_changed().what, TakenPlan::Part { after, .. } if after.is_empty()));
}

#[test]
fn a_plan_with_unknown_or_too_many_changes_is_taken_completely() {
    let slot = PlanSlot::default();
    slot.take();
    put(&slot, StagedChanges::snapshot(), &["web"]);
    assert!(matches!(slot.take_changed().what, TakenPlan::Whole(_)));
    let many: Vec<_> = (0..=MANY).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    put(&slot, StagedChanges::delta(), &many);
    assert!(matches!(slot.take_changed().what, TakenPlan::Whole(_)));
    put(&slot, StagedChanges::delta(), &many[..MANY]);
    assert!(matches!(slot.take_changed().what, TakenPlan::Part { .. }));
}
