//! Converts counters of virtual servers to counters of Services. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::ServiceId;
use portolan_reconcile::VirtualServerKey;

use super::Traffic;

/// The counters of Services. Counters only grow; those of a removed Service are removed with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    /// Services with counters of their own.
    pub services: BTreeMap<ServiceId, Traffic>,
    /// The sum of all other Services.
    pub others: Traffic,
    /// Whether the dataplane counts connections only, and neither packets nor bytes.
    pub connections_only: bool,
}

/// Sums the traffic per Service.
#[derive(Debug, Default)]
pub struct Meter {
    most: usize,
    /// The counters of the virtual servers at the previous read; `None` before the first one.
    last: Option<BTreeMap<VirtualServerKey, Traffic>>,
    totals: TrafficTotals,
}

impl Meter {
    /// A meter with at most this number of Services with counters of their own.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Makes the next read the first one of other counters.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Adds the kernel's counters to the totals. Virtual servers without an owner are ignored. Traffic before the
    /// first read is not counted, because an earlier agent may have reported it. A Service with counters of its own
    /// keeps them while it has a virtual server; free slots go to the Services with the most new connections.
    pub fn read(
        &mut self,
        seen: Vec<(VirtualServerKey, Traffic)>,
        owners: &BTreeMap<VirtualServerKey, ServiceId>,
    ) -> TrafficTotals {
        let seen: BTreeMap<_, _> = seen.into_iter().collect();
        let Some(last) = self.last.replace(seen.clone()) else {
            return self.totals.clone();
        };
        let mut moved: BTreeMap<&ServiceId, Traffic> = BTreeMap::new();
        for (server, traffic) in seen {
            if let Some(service) = owners.get(&server) {
                let before = last.get(&server).copied().unwrap_or_default();
                add(moved.entry(service).or_default(), &since(before, traffic));
            }
        }
        let there: BTreeSet<_> = owners.values().collect();
        let totals = &mut self.totals;
        totals.services.retain(|service, _| there.contains(service));
        let mut moved: Vec<_> = moved.into_iter().collect();
        moved.sort_by_key(|(service, traffic)| (Reverse(traffic.connections), *service));
        for (service, traffic) in moved {
            let free = totals.services.len() < self.most && traffic != Traffic::default();
            if let Some(own) = totals.services.get_mut(service) {
                add(own, &traffic);
            } else if free {
                totals.services.insert(service.clone(), traffic);
            } else {
                add(&mut totals.others, &traffic);
            }
        }
        totals.clone()
    }
}

/// The difference of two counters. If one decreased, the virtual server was recreated, and the difference is its new
/// value.
fn since(before: Traffic, now: Traffic) -> Traffic {
    let less = |of: fn(&Traffic) -> u64| of(&now).checked_sub(of(&before));
    let since = || {
        Some(Traffic {
            connections: less(|t| t.connections)?,
            packets_in: less(|t| t.packets_in)?,
            packets_out: less(|t| t.packets_out)?,
            bytes_in: less(|t| t.bytes_in)?,
            bytes_out: less(|t| t.bytes_out)?,
        })
    };
    since().unwrap_or(now)
}

fn add(to: &mut Traffic, more: &Traffic) {
    let Traffic {
        connections,
        packets_in,
        packets_out,
        bytes_in,
        bytes_out,
    } = to;
    for (to, more) in [
        (connections, more.connections),
        (packets_in, more.packets_in),
        (packets_out, more.packets_out),
        (bytes_in, more.bytes_in),
        (bytes_out, more.bytes_out),
    ] {
        *to = to.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use portolan_plan::Protocol;
    use proptest::prelude::*;

    use super::*;

    fn server(number: u8) -> VirtualServerKey {
        VirtualServerKey {
            address: Ipv4Addr::new(10, 96, 0, number).into(),
            port: 80,
            protocol: Protocol::Tcp,
        }
    }

    fn service(number: u8) -> ServiceId {
        ServiceId::new("shop", format!("s{number}"))
    }

    fn carried(connections: u64) -> Traffic {
        Traffic {
            connections,
            packets_in: 5 * connections,
            packets_out: 4 * connections,
            bytes_in: 700 * connections,
            bytes_out: 90 * connections,
        }
    }

    /// A meter that has read a kernel without virtual servers.
    fn begun(most: usize) -> Meter {
        let mut meter = Meter::new(most);
        let first = meter.read(Vec::new(), &BTreeMap::new());
        assert_eq!(first, TrafficTotals::default());
        meter
    }

    /// Two virtual servers for each Service.
    fn owners(services: impl IntoIterator<Item = u8>) -> BTreeMap<VirtualServerKey, ServiceId> {
        let both = |number| [0, 100].map(|more| (server(number + more), service(number)));
        services.into_iter().flat_map(both).collect()
    }

    #[test]
    fn virtual_servers_of_a_service_are_summed_and_foreign_ones_are_ignored() {
        let mut meter = begun(5);
        let owners = owners([1, 2]);
        let seen = |counts: [u64; 3]| {
            let servers = [server(1), server(101), server(9)];
            servers.into_iter().zip(counts.map(carried)).collect()
        };
        let totals = meter.read(seen([3, 4, 50]), &owners);
        assert_eq!(totals.services, [(service(1), carried(7))].into());
        assert_eq!(totals.others, Traffic::default());
        // The second virtual server was recreated meanwhile.
        let totals = meter.read(seen([5, 1, 60]), &owners);
        assert_eq!(totals.services, [(service(1), carried(10))].into());
    }

    #[test]
    fn traffic_before_the_first_read_is_not_counted() {
        let mut meter = Meter::new(5);
        let seen = |count| vec![(server(1), carried(count)), (server(2), carried(count))];
        // The second virtual server gets an owner only later.
        let first = meter.read(seen(500), &owners([1]));
        assert_eq!(first, TrafficTotals::default());
        let totals = meter.read(seen(501), &owners([1, 2]));
        let each = [1, 2].map(|number| (service(number), carried(1)));
        assert_eq!(totals.services, each.into());
    }

    #[test]
    fn counters_of_another_origin_are_not_compared() {
        let mut meter = begun(5);
        let owners = owners([1]);
        let seen = |count| vec![(server(1), carried(count))];
        meter.read(seen(500), &owners);
        meter.forget();
        meter.read(seen(700), &owners);
        let totals = meter.read(seen(701), &owners);
        assert_eq!(totals.services, [(service(1), carried(501))].into());
    }

    #[test]
    fn the_busiest_services_get_the_slots_and_keep_them_until_they_are_removed() {
        let mut meter = begun(2);
        let all = owners(1..=3);
        let totals = meter.read(
            vec![
                (server(1), carried(1)),
                (server(2), carried(9)),
                (server(3), carried(5)),
            ],
            &all,
        );
        assert_eq!(
            totals.services.keys().cloned().collect::<Vec<_>>(),
            [service(2), service(3)]
        );
        assert_eq!(totals.others, carried(1));
        let busy = vec![(server(1), carried(1000)), (server(3), carried(6))];
        let totals = meter.read(busy.clone(), &all);
        assert_eq!(totals.services[&service(3)], carried(6));
        assert_eq!(totals.others, carried(1000));
        let totals = meter.read(busy, &owners([1, 3]));
        assert_eq!(
            totals.services.keys().cloned().collect::<Vec<_>>(),
            [service(3)]
        );
        let totals = meter.read(vec![(server(1), carried(1001))], &owners([1, 3]));
        assert_eq!(totals.services[&service(1)], carried(1));
    }

    proptest! {
        /// With any limit, no traffic is lost or counted twice, no counter decreases, and the limit holds.
        #[test]
        fn all_traffic_is_counted_once(
            most in 0_usize..4,
            rounds in prop::collection::vec(prop::collection::vec((1_u8..6, 0_u64..50), 0..8), 1..8),
        ) {
            let mut meter = begun(most);
            let owners = owners(1..=5);
            let mut counters: BTreeMap<VirtualServerKey, u64> = BTreeMap::new();
            let mut before = TrafficTotals::default();
            for round in rounds {
                for (number, more) in round {
                    *counters.entry(server(number)).or_default() += more;
                }
                let seen = counters.iter().map(|(server, count)| (*server, carried(*count)));
                let totals = meter.read(seen.collect(), &owners);
                let mut sum = totals.others;
                totals.services.values().for_each(|traffic| add(&mut sum, traffic));
                prop_assert_eq!(sum, carried(counters.values().sum()));
                prop_assert!(totals.services.len() <= most);
                for (service, traffic) in &before.services {
                    prop_assert!(totals.services[service].connections >= traffic.connections);
                }
                prop_assert!(totals.others.connections >= before.others.connections);
                before = totals;
            }
        }
    }
}
