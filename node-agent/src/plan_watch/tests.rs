//! Tests of taking plans and of wake-ups.

use portolan_plan::{Entry, EntryHash, EntryKey};

use super::*;

fn service(name: &str) -> ServiceId {
    ServiceId::new("default", name)
}

fn put(plans: &PlanWatch, mut staged: StagedChanges, names: &[&str]) {
    for name in names {
        staged.push(portolan_plan::Change::Upsert {
            key: EntryKey::Head(service(name)),
            hash: EntryHash::default(),
            entry: Some(Entry::Head(Arc::default())),
        });
    }
    plans.commit(staged, PlanHash::default()).unwrap();
}

fn names(plan: &NodePlan) -> Vec<&str> {
    plan.heads().map(|(service, _)| &*service.name).collect()
}

#[test]
fn a_plan_can_be_committed_while_the_previous_one_is_being_read() {
    let plans = PlanWatch::default();
    let TakenPlan::Whole(before) = plans.take().what else {
        panic!("a part of what was never taken");
    };
    put(&plans, StagedChanges::snapshot(), &["web"]);
    assert!(before.is_empty());
    assert_eq!(
        plans.wait(Duration::ZERO),
        Woken::Changed,
        "it was not taken"
    );
}

#[test]
fn a_paced_plan_wakes_the_thread_after_its_pause() {
    let plans = PlanWatch::default();
    put(&plans, StagedChanges::snapshot(), &["web"]);
    let hour = |_: &NodePlan| Duration::from_secs(3600);
    assert_eq!(plans.wait_paced(Duration::ZERO, hour), Woken::TimedOut);
    plans.disturb();
    assert_eq!(plans.wait_paced(Duration::MAX, hour), Woken::Disturbed);
    plans.take_disturbance();
    // A newer plan may have a shorter pause.
    let asked = std::cell::Cell::new(0);
    let twice = |_: &NodePlan| {
        asked.set(asked.get() + 1);
        Duration::from_millis(u64::from(asked.get() < 3))
    };
    assert_eq!(plans.wait_paced(Duration::MAX, twice), Woken::Changed);
}

#[test]
fn news_of_gone_addresses_end_one_wait_and_a_repetition_none() {
    let plans = PlanWatch::default();
    let gone = BTreeSet::from(["10.244.1.5".parse().unwrap()]);
    plans.set_gone(gone.clone());
    assert_eq!(plans.wait(Duration::from_secs(3600)), Woken::TimedOut);
    plans.set_gone(gone.clone());
    let started = Instant::now();
    assert_eq!(plans.wait(Duration::from_millis(30)), Woken::TimedOut);
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(plans.gone(), gone);
}

#[test]
fn changes_since_the_plan_was_taken_accumulate() {
    let plans = PlanWatch::default();
    put(&plans, StagedChanges::snapshot(), &["cart", "web"]);
    assert!(matches!(plans.take_changed().what, TakenPlan::Whole(_)));
    put(&plans, StagedChanges::delta(), &["shop"]);
    let mut gone = StagedChanges::delta();
    gone.push(portolan_plan::Change::Remove {
        key: EntryKey::Head(service("web")),
    });
    plans.commit(gone, PlanHash::default()).unwrap();
    put(&plans, StagedChanges::delta(), &["shop"]);
    let taken = plans.take_changed();
    let TakenPlan::Part { before, after, .. } = taken.what else {
        panic!("all of it was taken");
    };
    assert_eq!(
        (taken.generation, names(&before), names(&after)),
        (4, vec!["web"], vec!["shop"])
    );
    assert!(matches!(plans.take_changed().what, TakenPlan::Part { after, .. } if after.is_empty()));
}

#[test]
fn a_plan_with_unknown_or_too_many_changes_is_taken_completely() {
    let plans = PlanWatch::default();
    plans.take();
    put(&plans, StagedChanges::snapshot(), &["web"]);
    assert!(matches!(plans.take_changed().what, TakenPlan::Whole(_)));
    let many: Vec<_> = (0..=MAX_TRACKED_SERVICES)
        .map(|number| number.to_string())
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    put(&plans, StagedChanges::delta(), &many);
    assert!(matches!(plans.take_changed().what, TakenPlan::Whole(_)));
    put(
        &plans,
        StagedChanges::delta(),
        &many[..MAX_TRACKED_SERVICES],
    );
    assert!(matches!(plans.take_changed().what, TakenPlan::Part { .. }));
}

/// A thread that waits for a plan does not hang, however long it waits.
#[test]
fn progress_is_counted_only_while_the_thread_works() {
    let plans = PlanWatch::default();
    assert_eq!(plans.progress(), None, "it has not begun");
    assert_eq!(plans.wait(Duration::ZERO), Woken::TimedOut);
    let begun = plans.progress();
    assert!(begun.is_some());
    plans.heartbeat().beat();
    assert!(plans.progress() > begun);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| plans.wait(Duration::MAX));
        while plans.progress().is_some() {
            std::thread::yield_now();
        }
        plans.stop();
        assert_eq!(waits.join().unwrap(), Woken::Stopped);
    });
    assert!(plans.progress() > begun);
}
