//! Connection draining: real servers that the plan does not contain any more but that still have connections (section
//! K).
//!
//! They get weight 0 (`diff::servers`), so that they take no new connections, and are removed when the last connection
//! has ended; those of UDP after [`UDP_GRACE`] at the latest. The set of draining real servers is not stored: it is the
//! difference between the kernel and the plan. A restart therefore finds them again (S-118), and a backend that comes
//! back just gets its weight (S-117). Only times are stored: since when an endpoint is not in the cluster, and since when
//! a UDP real server drains.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use portolan_plan::Protocol;

use crate::deadlines::{UDP_GRACE, drains};
use crate::{Desired, IpvsOp, Observed, Op, Owned, RealServerKey, VirtualServerKey};

/// The draining real servers, by virtual server.
pub type Draining = BTreeMap<VirtualServerKey, DrainingServer>;

/// A virtual server with draining real servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainingServer {
    /// The draining real servers, which have weight 0.
    pub backends: BTreeSet<RealServerKey>,
    /// How long they may stay after their endpoints left the cluster.
    pub deadline: Duration,
    /// Whether the virtual server exists only for them and is removed with the last one.
    pub rests: bool,
}

/// The connection counts of real servers: active and inactive connections.
pub type Connections = BTreeMap<VirtualServerKey, BTreeMap<RealServerKey, u64>>;

/// The draining real servers: owned ones in the kernel that the plan does not contain, of virtual servers that are in
/// the plan or whose Service only has no endpoint at present.
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

/// The times at which the endpoints of draining real servers left the cluster. Times are relative to an origin chosen
/// by the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Departures {
    since: BTreeMap<IpAddr, Duration>,
    of_udp: BTreeMap<(VirtualServerKey, RealServerKey), Duration>,
}

impl Departures {
    /// Replaces the set of addresses that belong to no endpoint of the cluster. An address that was already in the
    /// set keeps its time. An address that is no longer in it has come back.
    pub fn note(&mut self, gone: &BTreeSet<IpAddr>, now: Duration) {
        self.since.retain(|address, _| gone.contains(address));
        for address in gone {
            self.since.entry(*address).or_insert(now);
        }
    }

    /// Notes since when the real servers of UDP drain.
    pub fn note_udp(&mut self, draining: &Draining, now: Duration) {
        let of_udp = draining
            .iter()
            .filter(|(server, _)| server.protocol == Protocol::Udp);
        let of_udp = of_udp.flat_map(|(server, drains)| {
            let backends = drains.backends.iter();
            backends.map(|backend| (*server, *backend))
        });
        let since = |key| (key, self.of_udp.get(&key).copied().unwrap_or(now));
        self.of_udp = of_udp.map(since).collect();
    }

    /// The time at which the last endpoint with this address left the cluster; `None` if there is one.
    pub fn since(&self, address: IpAddr) -> Option<Duration> {
        self.since.get(&address).copied()
    }

    /// Whether a real server's deadline has passed.
    fn is_over(
        &self,
        server: &VirtualServerKey,
        backend: &RealServerKey,
        deadline: Duration,
        now: Duration,
    ) -> bool {
        let (since, deadline) = match server.protocol {
            Protocol::Udp => (self.of_udp.get(&(*server, *backend)), UDP_GRACE),
            Protocol::Tcp | Protocol::Sctp => (self.since.get(&backend.address), deadline),
        };
        since.is_some_and(|since| now.saturating_sub(*since) >= deadline)
    }

    /// When the next real server of UDP has drained for [`UDP_GRACE`].
    pub fn next_udp_end(&self) -> Option<Duration> {
        self.of_udp.values().min()?.checked_add(UDP_GRACE)
    }

    /// The operations that remove drained real servers: those without connections (S-113, S-114), or whose endpoint
    /// left the cluster longer ago than the deadline (S-115), and those of UDP after [`UDP_GRACE`]. They also remove
    /// virtual servers that existed only for them. Real servers of virtual servers that `connections` does not cover are
    /// removed only after their deadline.
    pub fn finish(
        &self,
        draining: &Draining,
        connections: &Connections,
        observed: &Observed,
        now: Duration,
    ) -> Vec<Op> {
        let mut ops = Vec::new();
        for (server, drains) in draining {
            let counts = connections.get(server);
            let is_idle =
                |backend| counts.is_some_and(|all| all.get(backend).is_none_or(|n| *n == 0));
            let mut done = 0;
            for backend in &drains.backends {
                if is_idle(backend) || self.is_over(server, backend, drains.deadline, now) {
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
    use crate::deadlines::lasts;

    #[test]
    fn associations_do_not_drain_and_flows_do_not_last() {
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        assert_eq!(protocols.map(drains), [true, true, false], "S-116");
        assert_eq!(protocols.map(lasts), [true, false, false], "S-116");
    }

    /// Counting can take long on a large node, and clients of UDP must move in time.
    #[test]
    fn a_real_server_of_udp_is_removed_after_its_time_without_a_count() {
        let server: VirtualServerKey = "UDP 10.96.0.10:53".parse().unwrap();
        let backend = RealServerKey {
            address: [10, 244, 1, 4].into(),
            port: 53,
        };
        let drains = DrainingServer {
            backends: [backend].into(),
            deadline: Duration::from_secs(60),
            rests: false,
        };
        let draining = Draining::from([(server, drains)]);
        let (mut departures, begin) = (Departures::default(), Duration::from_secs(5));
        assert_eq!(departures.next_udp_end(), None);
        departures.note_udp(&draining, begin);
        let end = begin + UDP_GRACE;
        assert_eq!(departures.next_udp_end(), Some(end));
        let (nothing, observed) = (Connections::new(), Observed::default());
        let at = |now| departures.finish(&draining, &nothing, &observed, now);
        assert_eq!(at(end.saturating_sub(Duration::from_millis(1))), []);
        let removal = Op::Ipvs(IpvsOp::DeleteRealServer { server, backend });
        assert_eq!(at(end), [removal], "S-116");
    }
}
