//! Connection draining: connections to backends that left their frontend (section K).
//!
//! Connection tracking keeps such connections, so nothing has to be done for them to go on. They are found there: a
//! connection to a frontend whose backend is not in the plan drains. Nothing is stored, so a restarted agent finds them
//! again (S-118), and a backend that comes back drains no longer (S-117). Connections to a backend whose endpoint left
//! the cluster longer ago than the deadline are deleted (S-115): the next packet is sent to another backend, which
//! resets the connection.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::{Family, Protocol};
use portolan_reconcile::nftables::{Operation, TableElement, Tables};
use portolan_reconcile::{
    Departures, DrainDeadlines, Facts, Flow, RealServerKey, VirtualServerKey,
};
use tracing::info;

use super::flows::{ends, is_untranslated};
use crate::drains::Drain;
use crate::kernel::{KernelError, TablesKernel};

/// Interval between two searches for draining connections.
const INTERVAL: Duration = Duration::from_secs(1);
/// Searching takes at most `1 / MAX_TIME_SHARE` of the thread's time while nothing changes.
const MAX_TIME_SHARE: u32 = 20;
/// The same when a backend has left, or a deadline has passed: those must not wait long.
const MAX_URGENT_SHARE: u32 = 5;
/// The protocols whose connections drain.
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Sctp];

/// The backends with draining connections, by frontend.
type Draining = BTreeMap<VirtualServerKey, BTreeSet<RealServerKey>>;

/// The result of a search for draining connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainCount {
    /// The draining backends.
    pub drains: Vec<Drain>,
    /// Their addresses, for the controller.
    pub addresses: BTreeSet<IpAddr>,
    /// Number of connections that were deleted after their deadline.
    pub ended: usize,
    /// Failures; the search is repeated.
    pub errors: Vec<KernelError>,
}

/// The draining backends.
#[derive(Debug)]
pub(super) struct Drains {
    deadlines: DrainDeadlines,
    departures: Departures,
    draining: Draining,
    /// Time of the next search; `None` while nothing drains.
    due: Option<Instant>,
    /// No search before this time.
    earliest: Instant,
    /// Reference point for the departure times of endpoints.
    epoch: Instant,
}

impl Drains {
    /// A search is due: an earlier agent may have left draining backends.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            deadlines: DrainDeadlines::default(),
            departures: Departures::default(),
            draining: Draining::new(),
            due: Some(now),
            earliest: now,
            epoch: now,
        }
    }

    /// Time until the next search. `gone` are the addresses that belong to no endpoint of the cluster.
    pub(super) fn left(&mut self, gone: &BTreeSet<IpAddr>, now: Instant) -> Duration {
        self.note_gone(gone, now);
        let Some(due) = self.due else {
            return Duration::MAX;
        };
        let deadline = self.next_deadline();
        let deadline = deadline.map_or(due, |deadline| deadline.max(self.earliest));
        due.min(deadline).saturating_duration_since(now)
    }

    /// Deadlines begin when an address is first in `gone`.
    fn note_gone(&mut self, gone: &BTreeSet<IpAddr>, now: Instant) {
        let of_drains = self.addresses();
        let gone = gone.intersection(&of_drains).copied().collect();
        let since = now.saturating_duration_since(self.epoch);
        self.departures.note(&gone, since);
    }

    /// When connections have to end next.
    fn next_deadline(&self) -> Option<Instant> {
        let backends = self.draining.iter();
        let deadlines = backends.flat_map(|(frontend, backends)| {
            let deadline = self.deadlines.of(frontend);
            let since = |backend: &RealServerKey| self.departures.since(backend.address);
            let gone = backends.iter().filter_map(since);
            gone.filter_map(move |since| since.checked_add(deadline))
        });
        self.epoch.checked_add(deadlines.min()?)
    }

    /// Takes the deadlines of all frontends.
    pub(super) fn set_deadlines(&mut self, facts: &Facts) {
        self.deadlines = DrainDeadlines {
            default: facts.settings().drain.deadline.as_duration(),
            of: BTreeMap::new(),
        };
        self.add_deadlines(facts);
    }

    /// Replaces the deadlines of some Services.
    pub(super) fn replace_deadlines(&mut self, before: &Facts, after: &Facts) {
        for frontend in &before.frontends {
            self.deadlines.of.remove(&frontend.key);
        }
        self.add_deadlines(after);
    }

    fn add_deadlines(&mut self, facts: &Facts) {
        let own = facts.frontends.iter().filter_map(|frontend| {
            let seconds = frontend.drain_seconds?;
            Some((frontend.key, Duration::from_secs(seconds.into())))
        });
        self.deadlines.of.extend(own);
    }

    /// A backend that left its frontend may have connections.
    pub(super) fn note(&mut self, operation: &Operation, now: Instant) {
        let left = match operation {
            Operation::Delete(TableElement::Slot { frontend, .. }) => {
                PROTOCOLS.contains(&frontend.protocol)
            }
            Operation::Build { replaces, .. } => *replaces,
            _ => false,
        };
        if left {
            let soon = now.max(self.earliest);
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
    }

    /// Searches for draining connections, and deletes those whose deadline has passed. `gone` are the addresses that
    /// belong to no endpoint of the cluster.
    pub(super) fn search(
        &mut self,
        kernel: &mut impl TablesKernel,
        tables: &Tables,
        gone: &BTreeSet<IpAddr>,
        now: Instant,
    ) -> DrainCount {
        self.note_gone(gone, now);
        let since = now.saturating_duration_since(self.epoch);
        let started = Instant::now();
        let mut count = DrainCount::default();
        let mut draining = Draining::new();
        for (protocol, family) in concerned(tables) {
            match self.search_in(kernel, tables, (protocol, family), since) {
                Ok((found, ended)) => {
                    draining.extend(found);
                    count.ended += ended;
                }
                Err(error) => {
                    // What was draining may still be.
                    let of_list = |key: &VirtualServerKey| {
                        (key.protocol, Family::of(key.address)) == (protocol, family)
                    };
                    let before = self.draining.iter().filter(|(key, _)| of_list(key));
                    draining.extend(before.map(|(key, backends)| (*key, backends.clone())));
                    count.errors.push(error);
                }
            }
        }
        self.draining = draining;
        let took = started.elapsed();
        let after = |share: u32| now.checked_add(INTERVAL.max(took * share));
        let again = !self.draining.is_empty() || !count.errors.is_empty();
        self.due = after(MAX_TIME_SHARE).filter(|_| again);
        self.earliest = after(MAX_URGENT_SHARE).unwrap_or(now);
        count.drains = self.list(tables);
        count.addresses = self.addresses();
        count
    }

    /// Searches among the connections of a protocol and family. Returns the backends that still drain, and the number
    /// of deleted connections.
    fn search_in(
        &self,
        kernel: &mut impl TablesKernel,
        tables: &Tables,
        (protocol, family): (Protocol, Family),
        since: Duration,
    ) -> Result<(Draining, usize), KernelError> {
        let found = RefCell::new(Draining::new());
        let is_over = |flow: &Flow| {
            let (frontend, backend) = ends(protocol, flow);
            let wanted = tables.frontend(&frontend);
            let drains = wanted.is_some_and(|one| !one.backends.contains_key(&backend));
            if !drains || is_untranslated(flow) {
                return false;
            }
            if self.is_over(&frontend, &backend, since) {
                return true;
            }
            found
                .borrow_mut()
                .entry(frontend)
                .or_default()
                .insert(backend);
            false
        };
        let over = kernel.flows(protocol, family, &is_over)?;
        let mut draining = found.into_inner();
        let mut ended = 0;
        for (flow, result) in over
            .stale
            .iter()
            .zip(kernel.forget_flows(protocol, &over.stale))
        {
            match result {
                Ok(()) => ended += 1,
                Err(error) => {
                    // It is found again by the next search.
                    let (frontend, backend) = ends(protocol, flow);
                    draining.entry(frontend).or_default().insert(backend);
                    tracing::warn!(%error, "could not end a drained connection; retrying");
                }
            }
        }
        if let (true, Some(flow)) = (over.more, over.stale.first()) {
            let (frontend, backend) = ends(protocol, flow);
            draining.entry(frontend).or_default().insert(backend);
        }
        if ended > 0 {
            info!(%protocol, %family, ended, "ended connections to backends that left the cluster");
        }
        Ok((draining, ended))
    }

    fn is_over(&self, frontend: &VirtualServerKey, backend: &RealServerKey, now: Duration) -> bool {
        let since = self.departures.since(backend.address);
        let deadline = self.deadlines.of(frontend);
        since.is_some_and(|since| now.saturating_sub(since) >= deadline)
    }

    fn addresses(&self) -> BTreeSet<IpAddr> {
        let backends = self.draining.values().flatten();
        backends.map(|backend| backend.address).collect()
    }

    fn list(&self, tables: &Tables) -> Vec<Drain> {
        let of_frontend = |(server, backends): (&VirtualServerKey, &BTreeSet<RealServerKey>)| {
            let is_served = tables.frontend(server).is_some_and(|one| one.is_served());
            let drain = |backend: &RealServerKey| Drain {
                server: *server,
                backend: *backend,
                rests: !is_served,
                deadline: self.deadlines.of(server),
                gone: self
                    .departures
                    .since(backend.address)
                    .and_then(|since| self.epoch.checked_add(since)),
            };
            backends.iter().map(drain).collect::<Vec<_>>()
        };
        self.draining.iter().flat_map(of_frontend).collect()
    }
}

/// The protocols and families of frontends whose connections can drain.
fn concerned(tables: &Tables) -> BTreeSet<(Protocol, Family)> {
    let frontends = tables
        .families
        .values()
        .flat_map(|table| table.frontends.keys());
    frontends
        .map(|key| (key.protocol, Family::of(key.address)))
        .filter(|(protocol, _)| PROTOCOLS.contains(protocol))
        .collect()
}
