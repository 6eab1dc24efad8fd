//! Real servers that nobody wants any more and that still have connections (section K).
//!
//! They get weight 0, so that they take no new connections, and go when the last one ended. Which
//! ones drain is never remembered: it is what the kernel holds and the plan does not, so a restart
//! finds them again (S-118) and one that comes back just gets its weight (S-117). Remembered is only
//! since when the cluster has no such endpoint any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use portolan_plan::Protocol;

use crate::{Desired, IpvsOp, Observed, Op, Owned, RealServerKey, VirtualServerKey};

/// What drains, by virtual server.
pub type Draining = BTreeMap<VirtualServerKey, DrainingServer>;

/// A virtual server with real servers that drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainingServer {
    /// They have weight 0.
    pub backends: BTreeSet<RealServerKey>,
    /// How long they may stay after their endpoints left the cluster.
    pub deadline: Duration,
    /// Whether it is there for them alone and goes with the last one.
    pub rests: bool,
}

/// How many connections real servers have, established and ending.
pub type Connections = BTreeMap<VirtualServerKey, BTreeMap<RealServerKey, u64>>;

/// How long a real server may keep its connections once its endpoint left the cluster. While the
/// endpoint is there, for however long it is not wanted here, its connections are healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainDeadlines {
    /// For all that are not named.
    pub default: Duration,
    /// For virtual servers whose Service has its own.
    pub of: BTreeMap<VirtualServerKey, Duration>,
}

impl DrainDeadlines {
    /// The deadline of a virtual server's real servers.
    pub fn of(&self, server: &VirtualServerKey) -> Duration {
        self.of.get(server).copied().unwrap_or(self.default)
    }
}

/// Whether connections of a protocol are let end by themselves. Of the others the kernel forgets
/// what belongs to a removed real server with the next packet, and its client is served anew (S-116).
pub(crate) fn drains(protocol: Protocol) -> bool {
    protocol == Protocol::Tcp
}

/// What drains: real servers of ours that the kernel holds and the plan does not want, of virtual
/// servers that are wanted, or whose Service only has no endpoint now.
pub fn draining(observed: &Observed, desired: &Desired, owned: &Owned) -> Draining {
    let mut draining = Draining::new();
    for (server, held) in &observed.virtual_servers {
        if !drains(server.protocol) {
            continue;
        }
        let wanted = desired.virtual_servers.get(server);
        let rests = || owned.contains(server) && desired.resting.contains(server);
        if wanted.is_none() && !rests() {
            continue;
        }
        let is_wanted = |backend: &RealServerKey| {
            wanted.is_some_and(|wanted| wanted.real_servers.contains_key(backend))
        };
        let unwanted = held.real_servers.iter().filter(|(_, weight)| *weight == 0);
        let unwanted = unwanted.map(|(backend, _)| backend);
        let unwanted: BTreeSet<_> = unwanted.filter(|b| !is_wanted(b)).collect();
        if !unwanted.is_empty() {
            let drains = DrainingServer {
                backends: unwanted,
                deadline: desired.deadlines.of(server),
                rests: wanted.is_none(),
            };
            draining.insert(*server, drains);
        }
    }
    draining
}

/// Since when the cluster has no endpoint any more of what drains here. Times count from one moment, which
/// the caller chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Departures {
    since: BTreeMap<IpAddr, Duration>,
}

impl Departures {
    /// Takes the addresses that no endpoint has, all of them: one that was told before keeps its
    /// time, one that is not told any more has come back.
    pub fn note(&mut self, gone: &BTreeSet<IpAddr>, now: Duration) {
        self.since.retain(|address, _| gone.contains(address));
        for address in gone {
            self.since.entry(*address).or_insert(now);
        }
    }

    /// Since when the cluster has no endpoint of this address; `None` while it has.
    pub fn since(&self, address: IpAddr) -> Option<Duration> {
        self.since.get(&address).copied()
    }

    /// Whether a real server's time is over.
    fn is_over(&self, backend: &RealServerKey, deadline: Duration, now: Duration) -> bool {
        let since = self.since.get(&backend.address);
        since.is_some_and(|since| now.saturating_sub(*since) >= deadline)
    }

    /// Operations that remove what has drained: without connections (S-113, S-114), or with its
    /// endpoint gone for longer than its deadline (S-115); and virtual servers that only waited for
    /// it. `connections` may tell of some virtual servers only: nothing is done about the others.
    pub fn finish(
        &self,
        draining: &Draining,
        connections: &Connections,
        observed: &Observed,
        now: Duration,
    ) -> Vec<Op> {
        let mut ops = Vec::new();
        for (server, drains) in draining {
            let Some(counts) = connections.get(server) else {
                continue;
            };
            let mut done = 0;
            for backend in &drains.backends {
                let count = counts.get(backend).copied().unwrap_or(0);
                if count == 0 || self.is_over(backend, drains.deadline, now) {
                    let (server, backend) = (*server, *backend);
                    ops.push(Op::Ipvs(IpvsOp::DeleteRealServer { server, backend }));
                    done += 1;
                }
            }
            let held = observed.virtual_servers.get(server);
            let is_last = held.is_some_and(|held| held.real_servers.len() == done);
            if drains.rests && is_last {
                ops.push(Op::Ipvs(IpvsOp::DeleteVirtualServer { server: *server }));
            }
        }
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_tcp_are_let_end_and_no_others() {
        let drained = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(drains);
        assert_eq!(drained, [true, false, false], "S-116");
    }
}
