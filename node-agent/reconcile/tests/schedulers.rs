//! Laws of changing schedulers: new connections are held while one changes and no longer, one virtual server at a
//! time, and a scheduler that the kernel lacks does not stop other changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use portolan_plan::{PlanDocument, Protocol};
use portolan_reconcile::{
    Desired, HostNetwork, IpvsOp, ModelKernel, Observed, Op, Owned, Phase, PhaseWork,
    RESCHEDULED_AT_ONCE, RealServerKey, RealServers, SetEntry, SetId, SetOp, SetRole,
    VirtualServer, VirtualServerKey, compare, diff, postpones, ready,
};
use proptest::prelude::*;
use proptest::sample::select;

/// The desired state of the small plan's node, with only these virtual servers.
fn desired(schedulers: &[&str], flags: u32) -> Desired {
    let document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let mut desired =
        Desired::new(&document.into_plan().unwrap(), &HostNetwork::default()).unwrap();
    desired.virtual_servers.clear();
    desired.boot_critical.clear();
    desired.routes.clear();
    desired.policy.clear();
    for set in desired.sets.values_mut() {
        set.entries.clear();
    }
    for (number, scheduler) in (1u16..).zip(schedulers) {
        let address = match number % 2 {
            0 => IpAddr::from([10, 96, 0, 1]),
            _ => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        let key = VirtualServerKey {
            address,
            port: number,
            protocol: Protocol::Tcp,
        };
        let backend = RealServerKey {
            address,
            port: 8080,
        };
        let server = VirtualServer {
            scheduler: (*scheduler).into(),
            flags,
            timeout: 0,
            real_servers: RealServers::from_iter([(backend, 1)]),
        };
        desired.virtual_servers.insert(key, server);
        for (id, set) in &mut desired.sets {
            let fits = SetEntry::of(key).family() == Some(id.family);
            if id.role == SetRole::Frontend && fits {
                set.entries.insert(SetEntry::of(key));
            }
        }
    }
    desired
}

fn held(state: &Observed) -> BTreeSet<SetEntry> {
    let sets = state.sets.iter().filter(|(id, _)| id.role == SetRole::Hold);
    sets.flat_map(|(_, set)| set.entries.iter().copied())
        .collect()
}

/// The result of a pass: refused and held-back operations in words, and whether changes were postponed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    operations: usize,
    edits: usize,
    failures: Vec<String>,
    unfinished: bool,
}

/// One pass of the agent; `refuse` selects the operations that the kernel refuses.
fn pass(kernel: &mut ModelKernel, desired: &Desired, mut refuse: impl FnMut(&Op) -> bool) -> Done {
    let mut owned = Owned::default();
    owned.claim(desired);
    let mut done = Done::default();
    for (phase, ops) in diff(&kernel.state, desired, &owned) {
        done.unfinished |= postpones(phase, &ops);
        let (ops, held_back) = ready(ops, &kernel.state, desired);
        let described = |(op, reason): (Op, &str)| format!("{op}: {reason}");
        done.failures.extend(held_back.into_iter().map(described));
        for op in ops {
            done.operations += 1;
            let refused = refuse(&op);
            let result = (!refused).then(|| judged(kernel, &op));
            if let Some(Err(reason)) = result.as_ref().map(|r| r.as_ref().map_err(|e| e.as_str())) {
                done.failures.push(format!("{op}: {reason}"));
            } else if refused {
                done.failures.push(format!("{op}: refused"));
            } else if matches!(op, Op::Ipvs(IpvsOp::EditVirtualServer { .. })) {
                done.edits += 1;
            }
            assert!(held(&kernel.state).len() <= 1, "one at a time");
        }
    }
    done
}

/// Applies one operation, and checks that a scheduler changes only while exactly that virtual server is held.
fn judged(kernel: &mut ModelKernel, op: &Op) -> Result<(), String> {
    if let Op::Ipvs(IpvsOp::EditVirtualServer { server, scheduling }) = op
        && kernel.state.virtual_servers[server].scheduler != scheduling.scheduler
    {
        assert_eq!(held(&kernel.state), [SetEntry::of(*server)].into(), "{op}");
    }
    kernel.apply(op).map_err(|refusal| refusal.to_string())
}

fn scheduler() -> impl Strategy<Value = &'static str> {
    select(vec!["rr", "wrr", "lc", "sh", "mh"])
}

fn schedulers_of(state: &Observed) -> BTreeMap<VirtualServerKey, Arc<str>> {
    let servers = state.virtual_servers.iter();
    servers
        .map(|(key, server)| (*key, server.scheduler.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// S-104: and nothing is held after the pass, whichever operations were refused.
    #[test]
    fn a_scheduler_changes_only_while_its_new_connections_are_held(
        pairs in prop::collection::vec((scheduler(), scheduler()), 0..12),
        refused in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let (before, after): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut kernel = ModelKernel::default();
        prop_assert_eq!(pass(&mut kernel, &desired(&before, 0), |_| false).failures.len(), 0);
        let wanted = desired(&after, 1);
        let mut refused = refused.iter().cycle();
        let edits_fail = |op: &Op| {
            matches!(op, Op::Ipvs(IpvsOp::EditVirtualServer { .. })) && refused.next() == Some(&true)
        };
        pass(&mut kernel, &wanted, edits_fail);
        prop_assert!(held(&kernel.state).is_empty(), "an edit that failed leaves no hold");
        pass(&mut kernel, &wanted, |_| false);
        prop_assert_eq!(&kernel.state.virtual_servers, &wanted.virtual_servers);
        prop_assert!(held(&kernel.state).is_empty());
        prop_assert_eq!(pass(&mut kernel, &wanted, |_| false), Done::default());
    }

    /// S-104, I-5: the agent crashed between hold and release.
    #[test]
    fn connections_held_by_a_crashed_pass_are_released_first(
        after in prop::collection::vec(scheduler(), 1..6),
        done in any::<prop::sample::Index>(),
    ) {
        let before: Vec<_> = after.iter().map(|_| "nq").collect();
        let mut kernel = ModelKernel::default();
        pass(&mut kernel, &desired(&before, 0), |_| false);
        let wanted = desired(&after, 0);
        let (ground, changes): (Vec<_>, Vec<_>) = diff(&kernel.state, &wanted, &Owned::default())
            .into_iter()
            .partition(|(phase, _)| *phase != Phase::Reschedule);
        for op in ground.iter().flat_map(|(_, ops)| ops) {
            kernel.apply(op).unwrap();
        }
        let changes: Vec<_> = changes.into_iter().flat_map(|(_, ops)| ops).collect();
        for op in &changes[..done.index(changes.len())] {
            kernel.apply(op).unwrap();
        }
        let left = held(&kernel.state);
        let next = diff(&kernel.state, &wanted, &Owned::default());
        if let Some(entry) = left.first() {
            let (phase, ops) = &next[0];
            prop_assert_eq!(*phase, Phase::ReleaseHolds);
            let released = matches!(&ops[..], [Op::Set(SetOp::DeleteEntry { entry: gone, .. })] if gone == entry);
            prop_assert!(released, "{:?}", ops);
        }
        pass(&mut kernel, &wanted, |_| false);
        prop_assert!(held(&kernel.state).is_empty());
        prop_assert_eq!(&kernel.state.virtual_servers, &wanted.virtual_servers);
    }
}

/// S-97: affinity is changed in place, without holding connections.
#[test]
fn flags_and_timeouts_change_without_a_hold() {
    let mut kernel = ModelKernel::default();
    pass(&mut kernel, &desired(&["rr", "rr"], 0), |_| false);
    let names = |phases: Vec<(Phase, Vec<Op>)>| -> Vec<_> {
        phases
            .into_iter()
            .map(|(phase, ops)| (phase, ops.len()))
            .collect()
    };
    let wanted = desired(&["rr", "rr"], 1);
    let phases = diff(&kernel.state, &wanted, &Owned::default());
    assert_eq!(names(phases), [(Phase::AddServers, 2)]);
}

/// S-104: many changes are split over several passes, so that a newer plan does not wait for all of them.
#[test]
fn a_pass_changes_a_limited_number_of_schedulers_and_the_rest_follows() {
    let many = RESCHEDULED_AT_ONCE * 2 + 5;
    let mut kernel = ModelKernel::default();
    assert!(!pass(&mut kernel, &desired(&vec!["rr"; many], 0), |_| false).unfinished);
    let wanted = desired(&vec!["mh"; many], 0);
    let passes: Vec<_> = (0..4)
        .map(|_| pass(&mut kernel, &wanted, |_| false))
        .map(|done| (done.edits, done.unfinished, done.failures.len()))
        .collect();
    let whole = (RESCHEDULED_AT_ONCE, true, 0);
    assert_eq!(passes, [whole, whole, (5, false, 0), (0, false, 0)]);
    assert_eq!(kernel.state.virtual_servers, wanted.virtual_servers);
}

/// S-101, S-104: existing virtual servers keep their scheduler and are never held in vain, new ones are not created,
/// and all other changes are made. Once the scheduler is available, all virtual servers get it.
#[test]
fn a_scheduler_that_the_kernel_lacks_stops_nothing_else() {
    let mut kernel = ModelKernel::default();
    // More changes that cannot succeed than one pass makes, before others that can.
    let many = RESCHEDULED_AT_ONCE + 1;
    let mut names = vec!["rr"; many + 1];
    pass(&mut kernel, &desired(&names, 0), |_| false);
    let stood = schedulers_of(&kernel.state);
    names[..many].fill("fair");
    names[many] = "sh";
    names.extend(["fair", "rr"]);
    let wanted = desired(&names, 0);
    let mut touched = BTreeSet::new();
    let done = pass(&mut kernel, &wanted, |op| {
        if let Op::Set(SetOp::AddEntry { set, entry }) = op
            && set.role == SetRole::Hold
        {
            touched.insert(*entry);
        }
        false
    });
    assert_eq!(
        done.failures[0],
        "load scheduler fair: No such file or directory"
    );
    let not_made = "the kernel does not have its scheduler";
    assert!(done.failures[1].contains(not_made), "{:?}", done.failures);
    let key = |port: usize| {
        let mut keys = wanted.virtual_servers.keys();
        *keys.find(|key| usize::from(key.port) == port).unwrap()
    };
    assert_eq!(
        touched,
        [SetEntry::of(key(many + 1))].into(),
        "only the virtual server that changed"
    );
    let now = schedulers_of(&kernel.state);
    for port in 1..=many {
        assert_eq!(now[&key(port)], stood[&key(port)], "S-104");
    }
    assert_eq!(&*now[&key(many + 1)], "sh");
    assert!(
        !now.contains_key(&key(many + 2)),
        "it is not created with another scheduler"
    );
    assert!(now.contains_key(&key(many + 3)), "others are created");
    names.fill("lc");
    let wanted = desired(&names, 0);
    while pass(&mut kernel, &wanted, |_| false).unfinished {}
    assert_eq!(kernel.state.virtual_servers, wanted.virtual_servers);
}

/// I-8: entries of a hold set without a timeout would stay forever if the agent did not return to release them.
#[test]
fn a_hold_set_without_timeout_is_replaced_by_one_with_a_timeout() {
    let desired = desired(&["rr"], 0);
    let mut kernel = ModelKernel::default();
    let pass = |kernel: &mut ModelKernel| {
        let mut written = Vec::new();
        for (_, ops) in diff(&kernel.state, &desired, &Owned::default()) {
            for op in ops {
                kernel.apply(&op).unwrap();
                written.push(op);
            }
        }
        written
    };
    assert_ne!(pass(&mut kernel), []);
    assert_eq!(pass(&mut kernel), []);
    let hold = |id: &SetId| id.role == SetRole::Hold;
    for (id, set) in &mut kernel.state.sets {
        assert_eq!(set.timeout_seconds.is_some(), hold(id), "{id}");
        if hold(id) {
            set.timeout_seconds = None;
        }
    }
    let written = pass(&mut kernel);
    let replaced = written.iter().filter(
        |op| matches!(op, Op::Set(SetOp::Replace { set, entries, .. }) if hold(set) && entries.is_empty()),
    );
    assert_eq!((replaced.count(), written.len()), (2, 2), "{written:?}");
    assert_eq!(pass(&mut kernel), []);
}

/// The agent makes the operations of new virtual servers later than others. They are the same as in the whole list.
#[test]
fn new_virtual_servers_are_held_back_like_others() {
    let desired = desired(&["rr", "sh", "rr", "mh", "sh"], 0);
    for known in [&[][..], &["rr"], &["rr", "mh", "sh"]] {
        let state = Observed {
            loaded_schedulers: known.iter().map(|name| (*name).into()).collect(),
            ..Observed::default()
        };
        let all = diff(&state, &desired, &Owned::default());
        let later = compare(&state, &desired, &Owned::default());
        let mut new_servers = 0;
        for (
            (phase, ops),
            (
                same,
                PhaseWork {
                    ops: early,
                    mut new,
                },
            ),
        ) in all.into_iter().zip(later)
        {
            assert_eq!(phase, same);
            new_servers += new.len();
            let wanted = ready(ops, &state, &desired);
            let (mut ops, mut held_back) = ready(early, &state, &desired);
            held_back.extend(new.hold_back(&state, &desired));
            // Few at once, so that they are divided.
            ops.extend(new.operations(&desired, 3).flatten());
            assert_eq!((ops, held_back), wanted, "{phase:?} with {known:?}");
        }
        assert_eq!(new_servers, 5);
    }
}
