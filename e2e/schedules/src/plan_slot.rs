//! The slot of the latest plan: the stream writes it, the disk may have been read before, the thread that programs the
//! kernel takes it, and other threads report changes of the network.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portolan_plan::{
    Change, Entry, EntryHash, EntryKey, NodePlan, PlanHash, ServiceId, StagedChanges,
};
use shuttle::thread;

use crate::plan_watch::{PlanWatch, Source, TakenPlan, Woken};
use crate::sync::{AtomicU64, Ordering};

/// A wait that only a wake-up ends: waits of shuttle have no timeout.
const LONG: Duration = Duration::from_secs(3600);
/// Number of plans that a controller sends.
const PLANS: u64 = 3;

/// A Service of which only the number matters, and its hash.
fn service(number: u64) -> (ServiceId, EntryHash) {
    let id = ServiceId::new("shop", number.to_string());
    (id, EntryHash(u128::from(number)))
}

/// The change that adds a Service.
fn added(number: u64) -> Change {
    let (id, hash) = service(number);
    Change::Upsert {
        key: EntryKey::Head(id),
        hash,
        entry: Some(Entry::Head(Arc::default())),
    }
}

/// A plan with one Service.
fn plan(number: u64) -> NodePlan {
    let (id, hash) = service(number);
    NodePlan::from_entries([(EntryKey::Head(id), hash, Entry::Head(Arc::default()))])
}

fn services(plan: &NodePlan) -> BTreeSet<ServiceId> {
    plan.heads().map(|(id, _)| id.clone()).collect()
}

/// The last plan is taken, and the changes that were taken before lead to it.
pub fn the_last_plan_is_taken() {
    let plans: Arc<PlanWatch> = Arc::default();
    let stream = plans.clone();
    let sends = thread::spawn(move || {
        (1..=PLANS).fold(PlanHash::default(), |before, number| {
            let mut staged = StagedChanges::delta();
            staged.push(added(number));
            let after = before.with(service(number).1);
            assert_eq!(stream.commit(staged, after), Ok(number));
            after
        })
    });
    let (mut held, mut last) = (BTreeSet::new(), (0, PlanHash::default()));
    while last.0 < PLANS {
        assert_eq!(plans.wait(LONG), Woken::Changed);
        let taken = plans.take_changed();
        assert!(taken.generation > last.0, "{taken:?}");
        last = (taken.generation, taken.hash);
        match taken.what {
            TakenPlan::Whole(plan) => held = services(&plan),
            TakenPlan::Part {
                services: changed,
                before,
                after,
            } => {
                let known: BTreeSet<_> = held.intersection(&changed).cloned().collect();
                assert_eq!(services(&before), known);
                held.extend(services(&after));
            }
        }
    }
    let hash = sends.join().unwrap();
    assert_eq!(last, (PLANS, hash));
    assert_eq!(held, services(&plans.plan()));
    assert_eq!(plans.live().map(|(generation, _)| generation), Some(PLANS));
}

/// The end of the program ends the wait, whatever else happens.
pub fn the_end_of_the_program_ends_the_wait() {
    let plans: Arc<PlanWatch> = Arc::default();
    let programmer = plans.clone();
    let takes = thread::spawn(move || {
        while programmer.wait(LONG) != Woken::Stopped {
            programmer.take_disturbance();
            programmer.take_changed();
        }
    });
    let events = plans.clone();
    let disturbs = thread::spawn(move || events.disturb());
    plans.restore_saved(plan(1), Source::Disk);
    plans.stop();
    takes.join().unwrap();
    disturbs.join().unwrap();
    assert_eq!(plans.wait(LONG), Woken::Stopped, "also a later one");
}

/// A change of the network after it was read wakes the thread once more.
pub fn no_change_of_the_network_is_lost() {
    const STATES: u64 = 3;
    let plans: Arc<PlanWatch> = Arc::default();
    let network = Arc::new(AtomicU64::new(0));
    let (events, changed) = (plans.clone(), network.clone());
    let changes = thread::spawn(move || {
        for state in 1..=STATES {
            changed.store(state, Ordering::SeqCst);
            events.disturb();
        }
    });
    let mut read = 0;
    while read < STATES {
        assert_eq!(plans.wait(LONG), Woken::Disturbed);
        // In this order, as in a pass.
        assert!(plans.take_disturbance());
        read = network.load(Ordering::SeqCst);
    }
    changes.join().unwrap();
}

/// A plan from disk never replaces one from a controller, which is taken as a whole.
pub fn a_saved_plan_never_replaces_that_of_a_controller() {
    const SENT: u64 = 9;
    let plans: Arc<PlanWatch> = Arc::default();
    let disk = plans.clone();
    let restores = thread::spawn(move || {
        disk.restore_saved(plan(1), Source::BootCritical);
        disk.restore_saved(plan(2), Source::Disk);
    });
    let stream = plans.clone();
    let sends = thread::spawn(move || {
        let mut staged = StagedChanges::snapshot();
        staged.push(added(SENT));
        assert!(stream.commit(staged, plan(SENT).hash()).is_ok());
    });
    loop {
        assert_eq!(plans.wait(LONG), Woken::Changed);
        let taken = plans.take_changed();
        if taken.source == Source::Controller {
            assert!(matches!(taken.what, TakenPlan::Whole(_)), "{taken:?}");
            break;
        }
    }
    restores.join().unwrap();
    sends.join().unwrap();
    assert_eq!(plans.wait(Duration::ZERO), Woken::TimedOut);
    assert_eq!(plans.hash(), Some(plan(SENT).hash()));
    assert!(plans.is_live());
}
