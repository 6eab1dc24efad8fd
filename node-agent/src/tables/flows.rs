//! Deletes stale UDP flows from conntrack (connection tracking) after changes of backends or frontends (S-128, S-129).
//!
//! A flow keeps the backend of its first datagram for as long as its client sends, so it is stale when that backend has
//! left (S-124, S-125). That is so even if the frontend has no other: connection tracking would go on translating its
//! datagrams to the removed pod (S-238). TCP connections and SCTP associations drain instead (S-123).
//!
//! If the frontend has others, the flows of a backend that leaves go on for [`UDP_GRACE`], because without them its answers
//! to the last requests would reach the clients with its own address (S-116).
//!
//! The only state is one mark per family, as in `programmer::flows`, and the backends that left a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{Operation, TableElement, Tables};
use portolan_reconcile::{Flow, RealServerKey, UDP_GRACE, VirtualServerKey};
use tracing::{info, warn};

use crate::kernel::{KernelError, TablesKernel};

/// Maximum number of reads of a list in one search, if it has more stale flows than one read returns.
const MAX_READS: usize = 64;

/// A search for stale UDP flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowCleanup {
    /// The family of the flows.
    pub family: Family,
    /// Number of UDP flows of this family.
    pub seen: u64,
    /// Number of deleted flows.
    pub deleted: u64,
    /// Whether all flows were read and every stale one deleted. Otherwise it is done again.
    pub finished: bool,
    /// Why some may be left.
    pub error: Option<KernelError>,
    /// Its duration.
    pub took: Duration,
}

/// The backends of UDP frontends that left a moment ago, and when their flows end.
type Leaving = BTreeMap<(VirtualServerKey, RealServerKey), Instant>;

/// The families to search.
#[derive(Debug)]
pub(super) struct Flows {
    due: BTreeSet<Family>,
    leaving: Leaving,
}

impl Default for Flows {
    /// All are due once after the start, because an earlier agent may have left stale flows.
    fn default() -> Self {
        Self {
            due: Family::BOTH.into(),
            leaving: Leaving::new(),
        }
    }
}

impl Flows {
    /// Whether no search is due.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty()
    }

    /// Time until flows of a backend end that has left.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let first = self.leaving.values().min();
        first.map_or(Duration::MAX, |end| end.saturating_duration_since(now))
    }

    /// Marks what this operation may have left stale.
    pub(super) fn note(&mut self, operation: &Operation, now: Instant) {
        match operation {
            Operation::Build { family, .. } => {
                self.due.insert(*family);
            }
            // Until now, rules may have been missing, or may have left new flows to another dataplane.
            Operation::ReplaceRules { family, .. } if operation.is_of_other_rules() => {
                self.due.insert(*family);
            }
            Operation::Add(TableElement::Slot { frontend, .. })
                if frontend.protocol == Protocol::Udp =>
            {
                self.due.insert(Family::of(frontend.address));
            }
            Operation::Delete(TableElement::Slot {
                frontend, backend, ..
            }) if frontend.protocol == Protocol::Udp => {
                let end = now.checked_add(UDP_GRACE).unwrap_or(now);
                self.leaving.insert((*frontend, *backend), end);
            }
            _ => {}
        }
    }

    /// Deletes stale flows, if there may be any. A failure is retried the next time. It is not a failure of the plan,
    /// because new connections are served regardless (S-130).
    pub(super) fn clean(
        &mut self,
        kernel: &mut impl TablesKernel,
        tables: &Tables,
        now: Instant,
    ) -> Vec<FlowCleanup> {
        // A backend slot may have moved only, and the last backend of a frontend leaves at once.
        let ends = |(frontend, backend): &(VirtualServerKey, RealServerKey), end: &Instant| {
            let wanted = tables.frontend(frontend);
            let others = wanted.filter(|wanted| wanted.is_served());
            *end <= now || others.is_none_or(|wanted| wanted.backends.contains_key(backend))
        };
        let ended: Vec<_> = self
            .leaving
            .extract_if(.., |key, end| ends(key, end))
            .collect();
        let families = ended
            .iter()
            .map(|((frontend, _), _)| Family::of(frontend.address));
        self.due.extend(families);
        if self.due.is_empty() {
            return Vec::new();
        }
        let concerned = concerned(tables);
        self.due.retain(|one| concerned.contains(one));
        let mut cleanups = Vec::new();
        for family in self.due.clone() {
            let done = clean(kernel, tables, &self.leaving, family);
            log_cleanup(&done);
            if done.finished {
                self.due.remove(&family);
            }
            cleanups.push(done);
        }
        cleanups
    }
}

/// The families that can have stale flows: those of UDP frontends.
fn concerned(tables: &Tables) -> BTreeSet<Family> {
    let frontends = tables.families.values().flat_map(|table| &table.frontends);
    frontends
        .filter(|(key, _)| key.protocol == Protocol::Udp)
        .map(|(key, _)| Family::of(key.address))
        .collect()
}

/// Whether a UDP flow goes to a frontend, but to none of its backends. Without backends, a flow that was never translated
/// is not stale, because there is nothing that it could reach instead (S-127). No flow is stale at an address that is
/// not a frontend (S-131).
fn is_stale(flow: &Flow, tables: &Tables, leaving: &Leaving) -> bool {
    let (frontend, backend) = ends(Protocol::Udp, flow);
    if leaving.contains_key(&(frontend, backend)) {
        return false;
    }
    let Some(wanted) = tables.frontend(&frontend) else {
        return false;
    };
    if wanted.is_served() {
        !wanted.backends.contains_key(&backend)
    } else {
        !is_untranslated(flow)
    }
}

/// The frontend of a flow, and its backend.
pub(super) fn ends(protocol: Protocol, flow: &Flow) -> (VirtualServerKey, RealServerKey) {
    let frontend = VirtualServerKey {
        address: flow.destination.ip(),
        port: flow.destination.port(),
        protocol,
    };
    let backend = RealServerKey {
        address: flow.reply_source.ip(),
        port: flow.reply_source.port(),
    };
    (frontend, backend)
}

/// Whether a flow has no backend: it is older than its frontend.
pub(super) fn is_untranslated(flow: &Flow) -> bool {
    flow.reply_source == flow.destination
}

fn clean(
    kernel: &mut impl TablesKernel,
    tables: &Tables,
    leaving: &Leaving,
    family: Family,
) -> FlowCleanup {
    let started = Instant::now();
    let mut done = FlowCleanup {
        family,
        seen: 0,
        deleted: 0,
        finished: false,
        error: None,
        took: Duration::ZERO,
    };
    let is_stale = |flow: &Flow| is_stale(flow, tables, leaving);
    for _ in 0..MAX_READS {
        let found = match kernel.flows(Protocol::Udp, family, &is_stale) {
            Ok(found) => found,
            Err(error) => {
                done.error = Some(error);
                break;
            }
        };
        done.seen = done.seen.max(found.seen);
        for result in kernel.forget_flows(Protocol::Udp, &found.stale) {
            match result {
                Ok(()) => done.deleted += 1,
                Err(error) => done.error = Some(error),
            }
        }
        if done.error.is_some() || !found.more {
            done.finished = done.error.is_none() && !found.interrupted;
            break;
        }
    }
    done.took = started.elapsed();
    done
}

fn log_cleanup(done: &FlowCleanup) {
    let FlowCleanup {
        family,
        seen,
        deleted,
        took,
        ..
    } = done;
    if let Some(error) = &done.error {
        warn!(%family, %error, "stale UDP flows may be left; retrying in the next pass");
    }
    let milliseconds = took.as_millis();
    info!(%family, seen, deleted, milliseconds, "searched for stale UDP flows");
}
