//! Real servers that wait for their last connections: looked at about once a second, and as soon as
//! they begin to drain (section K).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_reconcile::{
    Departures, Desired, Draining, DrainingServer, IpvsOp, Observed, Op, Owned, RealServerKey,
    Scope, VirtualServerKey, draining,
};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Programmer;
use crate::drains::Drain;
use crate::kernel::{Kernel, KernelError};

/// How often connections are counted.
const EVERY: Duration = Duration::from_secs(1);
/// Counting takes at most one part in so many of the thread's time.
const SHARE: u32 = 20;

/// What drains, and since when.
#[derive(Debug)]
pub(super) struct Drains {
    draining: Draining,
    departures: Departures,
    /// When to count next; `None` while nothing drains.
    due: Option<Instant>,
    /// From when times of departure count.
    epoch: Instant,
    told: watch::Sender<BTreeSet<IpAddr>>,
    /// All of it, for whoever asks.
    listed: watch::Sender<Vec<Drain>>,
}

impl Drains {
    /// Nothing drains; `told` hears of the addresses that do.
    pub(super) fn new(told: watch::Sender<BTreeSet<IpAddr>>) -> Self {
        Self {
            draining: Draining::new(),
            departures: Departures::default(),
            due: None,
            epoch: Instant::now(),
            told,
            listed: watch::Sender::default(),
        }
    }

    /// What drains, from now on.
    pub(super) fn listed(&self) -> watch::Receiver<Vec<Drain>> {
        self.listed.subscribe()
    }

    /// How long until connections have to be counted.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::MAX, |due| due.saturating_duration_since(now))
    }

    /// Takes what drains now of what a pass took care of, and gives the virtual servers where some did
    /// not before.
    fn follow(&mut self, now_draining: Draining, scope: &Scope) -> Vec<VirtualServerKey> {
        let is_new =
            |(server, drains): &(&VirtualServerKey, &_)| self.draining.get(server) != Some(*drains);
        let new = now_draining.iter().filter(is_new);
        let new = new.map(|(server, _)| *server).collect();
        self.draining.retain(|server, _| !scope.contains(server));
        self.draining.extend(now_draining);
        new
    }

    fn tell(&self) {
        let backends = self.draining.values().flat_map(|drains| &drains.backends);
        let addresses: BTreeSet<_> = backends.map(|backend| backend.address).collect();
        let replace = |told: &mut BTreeSet<IpAddr>| {
            let differs = *told != addresses;
            *told = addresses;
            differs
        };
        self.told.send_if_modified(replace);
        self.listed.send_replace(self.list());
    }
}

impl<K: Kernel> Programmer<K> {
    /// Follows what a pass left draining: what has no connections goes at once. False when the kernel
    /// was not as it was known.
    pub(super) fn begin_drains(
        &mut self,
        shadow: &mut Observed,
        desired: &Desired,
        owned: &Owned,
        scope: &Scope,
    ) -> bool {
        let now_draining = draining(shadow, desired, owned);
        let new = self.drains.follow(now_draining, scope);
        let sound = new.is_empty() || self.finish_drains(shadow, &new);
        self.drains.tell();
        self.drains.due = match (self.drains.draining.is_empty(), self.drains.due) {
            (true, _) => None,
            (false, due) => due.or_else(|| Instant::now().checked_add(EVERY)),
        };
        sound
    }

    /// Counts the connections of all that drains, if it is time, and removes what is done.
    pub(super) fn look_at_drains(&mut self) {
        let started = Instant::now();
        if !self.drains.left(started).is_zero() {
            return;
        }
        // What is known of the kernel may have been given up; then the next pass finds what drains.
        if let Some(mut shadow) = self.shadow.take() {
            let servers: Vec<_> = self.drains.draining.keys().copied().collect();
            let sound = self.finish_drains(&mut shadow, &servers);
            self.shadow = Some(shadow);
            if !sound {
                self.forget();
            }
            self.drains.tell();
        }
        let pause = EVERY.max(started.elapsed() * SHARE);
        let next = Instant::now().checked_add(pause);
        self.drains.due = next.filter(|_| !self.drains.draining.is_empty());
    }

    /// Removes what is done of these virtual servers; false when the kernel was not as it was known.
    fn finish_drains(&mut self, shadow: &mut Observed, servers: &[VirtualServerKey]) -> bool {
        let connections = match self.kernel.connections(servers) {
            Ok(connections) => connections,
            Err(error) => {
                warn!(%error, "connections of what drains are not counted; trying again");
                return false;
            }
        };
        let drains = &mut self.drains;
        let now = drains.epoch.elapsed();
        let backends = drains.draining.values().flat_map(|drains| &drains.backends);
        let addresses: BTreeSet<_> = backends.map(|backend| backend.address).collect();
        let gone = self.slot.gone();
        let gone = gone.intersection(&addresses).copied().collect();
        drains.departures.note(&gone, now);
        let departures = &drains.departures;
        let ops = departures.finish(&drains.draining, &connections, shadow, now);
        let results = self.kernel.apply(&ops);
        let mut sound = true;
        for (op, result) in ops.iter().zip(results) {
            match result {
                Ok(()) => {
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
        self.draining.iter().flat_map(of_server).collect()
    }

    /// What an operation took away drains no longer. One that was refused is found again by the next
    /// look at the kernel, if it is still there.
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
    warn!(%error, "looking again at everything");
}
