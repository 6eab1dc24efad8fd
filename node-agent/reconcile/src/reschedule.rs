//! Changing the scheduler of a virtual server that is in use.
//!
//! The kernel takes the old scheduler away, waits until nobody uses it any more, and then gives the
//! new one. In between the virtual server refuses new connections. So they are held for that moment,
//! one virtual server after the other: clients that hear nothing send again (S-104).

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_plan::Family;

use crate::{
    Desired, IpvsOp, Observed, Op, Phase, SchedulerOp, Scheduling, SetEntry, SetId, SetOp, SetRole,
};
use crate::{VirtualServerKey, diff::Batch};

/// So many schedulers are changed in one pass. Each change waits for all processors, some tens of
/// milliseconds: these take about a second, for which a newer plan waits at most. What is left
/// follows with the next pass at once.
pub const RESCHEDULED_AT_ONCE: usize = 32;

/// The operations of one change: hold, edit, release.
const OPS_OF_ONE: usize = 3;

/// Whether [`crate::diff()`] left some scheduler changes to a next pass; `ops` are those of `phase`.
pub fn puts_off(phase: Phase, ops: &[Op]) -> bool {
    phase == Phase::Reschedule && ops.len() >= RESCHEDULED_AT_ONCE * OPS_OF_ONE
}

/// Where a virtual server stands while new connections to it are held.
pub(crate) fn hold(server: VirtualServerKey) -> (SetId, SetEntry) {
    let set = SetId {
        role: SetRole::Hold,
        family: Family::of(server.address),
    };
    (set, SetEntry::of(server))
}

/// Loads schedulers that no virtual server shows to be there, and changes those of virtual servers.
pub(crate) fn schedulers(
    batch: &mut Batch,
    observed: &Observed,
    desired: &Desired,
    changes: Vec<(VirtualServerKey, Scheduling)>,
) {
    let known = observed.schedulers();
    let wanted: BTreeSet<&Arc<str>> = desired
        .virtual_servers
        .values()
        .map(|server| &server.scheduler)
        .collect();
    for scheduler in wanted.difference(&known) {
        let scheduler = Arc::clone(scheduler);
        batch.push(Phase::Ground, Op::Scheduler(SchedulerOp { scheduler }));
    }
    // Those that cannot succeed yet must not take the place of those that can.
    let (ready, waiting): (Vec<_>, Vec<_>) = changes
        .into_iter()
        .partition(|(_, scheduling)| known.contains(&scheduling.scheduler));
    let now = ready.into_iter().chain(waiting).take(RESCHEDULED_AT_ONCE);
    for (server, scheduling) in now {
        let (set, entry) = hold(server);
        batch.push(Phase::Reschedule, Op::Set(SetOp::AddEntry { set, entry }));
        batch.push(
            Phase::Reschedule,
            Op::Ipvs(IpvsOp::EditVirtualServer { server, scheduling }),
        );
        batch.push(
            Phase::Reschedule,
            Op::Set(SetOp::DeleteEntry { set, entry }),
        );
    }
}
