//! Changes the scheduler of a virtual server that is in use.
//!
//! The kernel removes the old scheduler, waits until no packet uses it any more, and then sets the new one. In
//! between, the virtual server refuses new connections. Therefore new connections are dropped during the change, one
//! virtual server after the other: clients that receive no answer retransmit (S-104).

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_plan::Family;

use crate::VirtualServerKey;
use crate::phase::{Batch, Phase};
use crate::{
    Desired, IpvsOp, Observed, Op, SchedulerOp, Scheduling, SetEntry, SetId, SetOp, SetRole,
};

/// The maximum number of schedulers changed in one pass. Each change waits for all processors, some tens of
/// milliseconds, so a newer plan waits for about one second at most. The remaining changes follow in the next pass,
/// which starts at once.
pub const RESCHEDULED_AT_ONCE: usize = 32;

/// The number of operations of one change: hold, edit, release.
const OPS_OF_ONE: usize = 3;

/// Whether [`crate::diff()`] left some scheduler changes to the next pass; `ops` are the operations of `phase`.
pub fn postpones(phase: Phase, ops: &[Op]) -> bool {
    phase == Phase::Reschedule && ops.len() >= RESCHEDULED_AT_ONCE * OPS_OF_ONE
}

/// The set and entry that hold new connections to a virtual server.
pub(crate) fn hold(server: VirtualServerKey) -> (SetId, SetEntry) {
    let set = SetId {
        role: SetRole::Hold,
        family: Family::of(server.address),
    };
    (set, SetEntry::of(server))
}

/// Loads schedulers that are not known to be loaded, and changes those of virtual servers.
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
        batch.push(Phase::Prepare, Op::Scheduler(SchedulerOp { scheduler }));
    }
    // Changes to a scheduler that is not loaded yet may fail, so they must not displace those that can succeed.
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
