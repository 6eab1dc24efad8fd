//! Connection draining: real servers that wait for their last connections. Their connections are counted about once
//! per second, and when they begin to drain (section K).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::Protocol;
use portolan_reconcile::{
    Departures, Desired, Draining, DrainingServer, IpvsOp, Observed, Op, Owned, RealServerKey,
    Scope, VirtualServerKey, draining,
};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Programmer;
use crate::drains::Drain;
use crate::kernel::{Kernel, KernelError};
use crate::tables::DrainCount;

/// Interval between two counts of connections.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two attempts to remove a real server of UDP whose time is over.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Counting takes at most `1 / MAX_TIME_SHARE` of the thread's time.
const MAX_TIME_SHARE: u32 = 20;

/// The draining real servers.
#[derive(Debug)]
pub(super) struct Drains {
    draining: Draining,
    departures: Departures,
    /// Time of the next count; `None` while nothing drains.
    count_due: Option<Instant>,
    /// Time of the next count, or of the end of a real server of UDP.
    due: Option<Instant>,
    /// Reference point for the departure times of endpoints.
    epoch: Instant,
    /// The addresses that drain, for the controller.
    addresses: watch::Sender<BTreeSet<IpAddr>>,
    /// All draining real servers, for the page `/drains`.
    listed: watch::Sender<Vec<Drain>>,
    /// Those of the tables of nftables.
    of_tables: DrainCount,
    /// Whether some were removed since the last question.
    finished: bool,
}

impl Drains {
    /// Starts with nothing draining; `addresses` publishes the addresses that drain.
    pub(super) fn new(addresses: watch::Sender<BTreeSet<IpAddr>>) -> Self {
        Self {
            draining: Draining::new(),
            departures: Departures::default(),
            count_due: None,
            due: None,
            epoch: Instant::now(),
            addresses,
            listed: watch::Sender::default(),
            of_tables: DrainCount::default(),
            finished: false,
        }
    }

    /// Subscribes to the list of draining real servers.
    pub(super) fn listed(&self) -> watch::Receiver<Vec<Drain>> {
        self.listed.subscribe()
    }

    /// Time until connections have to be counted, or a real server removed.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::MAX, |due| due.saturating_duration_since(now))
    }

    /// The draining real servers of IPVS.
    pub(super) fn all(&self) -> &Draining {
        &self.draining
    }

    /// Whether real servers of IPVS drain.
    pub(super) fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Whether real servers of IPVS were removed since the last call.
    pub(super) fn take_finished(&mut self) -> bool {
        std::mem::take(&mut self.finished)
    }

    /// Replaces the draining backends of the tables of nftables.
    pub(super) fn set_of_tables(&mut self, count: DrainCount) {
        self.of_tables = count;
        self.publish();
    }

    /// Replaces the draining real servers in scope. Returns the virtual servers with new ones.
    fn follow(&mut self, now_draining: Draining, scope: &Scope) -> Vec<VirtualServerKey> {
        let is_new =
            |(server, drains): &(&VirtualServerKey, &_)| self.draining.get(server) != Some(*drains);
        let new = now_draining.iter().filter(is_new);
        let new = new.map(|(server, _)| *server).collect();
        self.draining.retain(|server, _| !scope.contains(server));
        self.draining.extend(now_draining);
        new
    }

    /// Updates since when real servers drain, and endpoints are not in the cluster. This is necessary in every pass: one
    /// that has come back must not keep the time of its first departure.
    fn note_departures(&mut self, gone: &BTreeSet<IpAddr>) {
        let now = self.epoch.elapsed();
        let backends = self.draining.values().flat_map(|drains| &drains.backends);
        let addresses: BTreeSet<_> = backends.map(|backend| backend.address).collect();
        let gone = gone.intersection(&addresses).copied().collect();
        self.departures.note(&gone, now);
        self.departures.note_udp(&self.draining, now);
    }

    /// Sets the time of the next count. Real servers of UDP end in between, so that their clients move in time even if
    /// counting takes long.
    fn set_due(&mut self, count: Option<Instant>, now: Instant) {
        self.count_due = count.filter(|_| self.is_draining());
        let end = self.departures.next_udp_end();
        let end = end.and_then(|end| self.epoch.checked_add(end));
        // One that could not be removed is tried again.
        let end = end.map(|end| end.max(now + RETRY_INTERVAL));
        self.due = self
            .count_due
            .map(|count| end.map_or(count, |end| end.min(count)));
    }

    fn publish(&self) {
        let backends = self.lasting().flat_map(|(_, drains)| &drains.backends);
        let addresses = backends.map(|backend| backend.address);
        let addresses: BTreeSet<_> = addresses
            .chain(self.of_tables.addresses.iter().copied())
            .collect();
        let replace = |published: &mut BTreeSet<IpAddr>| {
            let differs = *published != addresses;
            *published = addresses;
            differs
        };
        self.addresses.send_if_modified(replace);
        self.listed.send_replace(self.list());
    }
}

impl<K: Kernel> Programmer<K> {
    /// Tracks the real servers that a pass left draining, and removes those without connections at once. Returns
    /// false if the kernel differed from the shadow.
    pub(super) fn begin_drains(
        &mut self,
        shadow: &mut Observed,
        desired: &Desired,
        owned: &Owned,
        scope: &Scope,
    ) -> bool {
        let now_draining = draining(shadow, desired, owned);
        let new = self.drains.follow(now_draining, scope);
        self.drains.note_departures(&self.plans.gone());
        let sound = new.is_empty() || self.finish_drains(shadow, &new);
        self.drains.publish();
        let now = Instant::now();
        let count = self.drains.count_due;
        let count = count.or_else(|| now.checked_add(COUNT_INTERVAL));
        self.drains.set_due(count, now);
        sound
    }

    /// Counts the connections of all draining real servers if it is time, and removes those that are finished. Returns
    /// whether that was the last one.
    pub(super) fn count_drains(&mut self) -> bool {
        let started = Instant::now();
        if !self.drains.left(started).is_zero() {
            return false;
        }
        let count = self.drains.count_due;
        let counts = count.is_some_and(|due| due <= started);
        // Without a shadow, the next pass finds the draining real servers.
        if let Some(mut shadow) = self.shadow.take() {
            self.drains.note_departures(&self.plans.gone());
            let servers = self.drains.draining.keys().filter(|_| counts);
            let servers: Vec<_> = servers.copied().collect();
            let sound = self.finish_drains(&mut shadow, &servers);
            self.shadow = Some(shadow);
            if !sound {
                self.discard_shadow();
            }
            self.drains.publish();
        }
        let now = Instant::now();
        let pause = COUNT_INTERVAL.max(started.elapsed() * MAX_TIME_SHARE);
        let count = if counts {
            now.checked_add(pause)
        } else {
            count
        };
        self.drains.set_due(count, now);
        !self.drains.is_draining()
    }

    /// Removes finished real servers of these virtual servers. Returns false if the kernel differed from the shadow.
    fn finish_drains(&mut self, shadow: &mut Observed, servers: &[VirtualServerKey]) -> bool {
        let connections = match self.kernel.connections(servers) {
            Ok(connections) => connections,
            Err(error) => {
                warn!(%error, "could not count the connections of draining real servers; retrying");
                return false;
            }
        };
        let drains = &self.drains;
        let now = drains.epoch.elapsed();
        let departures = &drains.departures;
        let ops = departures.finish(&drains.draining, &connections, shadow, now);
        let results = self.kernel.apply(&ops);
        let mut sound = true;
        for (op, result) in ops.iter().zip(results) {
            match result {
                Ok(()) => {
                    self.drains.finished = true;
                    drained(op);
                    shadow.note(op);
                }
                Err(error) => {
                    sound = false;
                    self.drift.failed(op);
                    refused(&error);
                }
            }
            self.drains.forget(op);
        }
        sound
    }
}

impl Drains {
    /// Those that drain for longer than a moment.
    fn lasting(&self) -> impl Iterator<Item = (&VirtualServerKey, &DrainingServer)> {
        let all = self.draining.iter();
        all.filter(|(server, _)| server.protocol != Protocol::Udp)
    }

    fn list(&self) -> Vec<Drain> {
        let of_server = |(server, drains): (&VirtualServerKey, &DrainingServer)| {
            let (server, rests, deadline) = (*server, drains.rests, drains.deadline);
            let drain = |backend: &RealServerKey| Drain {
                server,
                backend: *backend,
                rests,
                deadline,
                gone: self
                    .departures
                    .since(backend.address)
                    .and_then(|since| self.epoch.checked_add(since)),
            };
            drains.backends.iter().map(drain).collect::<Vec<_>>()
        };
        let of_servers = self.lasting().flat_map(of_server);
        of_servers.chain(self.of_tables.drains.clone()).collect()
    }

    /// Stops tracking the real server that an operation removed. If the operation failed, the next read of the kernel
    /// finds the real server again, if it still exists.
    fn forget(&mut self, op: &Op) {
        let Op::Ipvs(IpvsOp::DeleteRealServer { server, backend }) = op else {
            return;
        };
        if let Some(drains) = self.draining.get_mut(server) {
            drains.backends.remove(backend);
            if drains.backends.is_empty() {
                self.draining.remove(server);
            }
        }
    }
}

fn drained(op: &Op) {
    match op {
        Op::Ipvs(IpvsOp::DeleteRealServer { server, backend }) => {
            info!(%server, %backend, "drained");
        }
        other => debug!("{other}"),
    }
}

fn refused(error: &KernelError) {
    warn!(%error, "could not remove a drained real server; reading the complete kernel state again");
}
