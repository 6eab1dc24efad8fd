//! From counters of virtual servers to those of Services. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::ServiceId;
use portolan_reconcile::VirtualServerKey;

use super::Traffic;

/// What is told of Services. Counters only grow, but for a Service that goes, whose counters go with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Services with counters of their own.
    pub services: BTreeMap<ServiceId, Traffic>,
    /// All others together.
    pub others: Traffic,
}

/// Adds up what was carried.
#[derive(Debug, Default)]
pub struct Meter {
    most: usize,
    /// What every virtual server had carried at the look before; `None` before a first one.
    last: Option<BTreeMap<VirtualServerKey, Traffic>>,
    told: Told,
}

impl Meter {
    /// One that tells of so many Services at most by name.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// The kernel's counters were read; what has no owner is not ours. What was carried before the first
    /// look is nobody's: an agent before this one may have told it. A Service that has counters of its
    /// own keeps them for as long as it answers anywhere; places that are free go to those with the most
    /// new connections.
    pub fn read(
        &mut self,
        seen: Vec<(VirtualServerKey, Traffic)>,
        owners: &BTreeMap<VirtualServerKey, ServiceId>,
    ) -> Told {
        let seen: BTreeMap<_, _> = seen.into_iter().collect();
        let Some(last) = self.last.replace(seen.clone()) else {
            return self.told.clone();
        };
        let mut moved: BTreeMap<&ServiceId, Traffic> = BTreeMap::new();
        for (server, traffic) in seen {
            if let Some(service) = owners.get(&server) {
                let before = last.get(&server).copied().unwrap_or_default();
                add(moved.entry(service).or_default(), &since(before, traffic));
            }
        }
        let there: BTreeSet<_> = owners.values().collect();
        let told = &mut self.told;
        told.services.retain(|service, _| there.contains(service));
        let mut moved: Vec<_> = moved.into_iter().collect();
        moved.sort_by_key(|(service, traffic)| (Reverse(traffic.connections), *service));
        for (service, traffic) in moved {
            let free = told.services.len() < self.most && traffic != Traffic::default();
            if let Some(own) = told.services.get_mut(service) {
                add(own, &traffic);
            } else if free {
                told.services.insert(service.clone(), traffic);
            } else {
                add(&mut told.others, &traffic);
            }
        }
        told.clone()
    }
}

/// What came since. A counter that went back is of a virtual server that was made anew.
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

    /// A meter that has looked at a kernel without virtual servers.
    fn begun(most: usize) -> Meter {
        let mut meter = Meter::new(most);
        assert_eq!(meter.read(Vec::new(), &BTreeMap::new()), Told::default());
        meter
    }

    /// Two virtual servers for each Service.
    fn owners(services: impl IntoIterator<Item = u8>) -> BTreeMap<VirtualServerKey, ServiceId> {
        let both = |number| [0, 100].map(|more| (server(number + more), service(number)));
        services.into_iter().flat_map(both).collect()
    }

    #[test]
    fn virtual_servers_of_a_service_are_added_up_and_foreign_ones_are_not_told() {
        let mut meter = begun(5);
        let owners = owners([1, 2]);
        let seen = |counts: [u64; 3]| {
            let servers = [server(1), server(101), server(9)];
            servers.into_iter().zip(counts.map(carried)).collect()
        };
        let told = meter.read(seen([3, 4, 50]), &owners);
        assert_eq!(told.services, [(service(1), carried(7))].into());
        assert_eq!(told.others, Traffic::default());
        // The second was made anew meanwhile.
        let told = meter.read(seen([5, 1, 60]), &owners);
        assert_eq!(told.services, [(service(1), carried(10))].into());
    }

    #[test]
    fn what_was_carried_before_the_first_look_is_nobodys() {
        let mut meter = Meter::new(5);
        let seen = |count| vec![(server(1), carried(count)), (server(2), carried(count))];
        // The second has an owner only later.
        assert_eq!(meter.read(seen(500), &owners([1])), Told::default());
        let told = meter.read(seen(501), &owners([1, 2]));
        let each = [1, 2].map(|number| (service(number), carried(1)));
        assert_eq!(told.services, each.into());
    }

    #[test]
    fn the_busiest_get_the_places_and_keep_them_until_they_go() {
        let mut meter = begun(2);
        let all = owners(1..=3);
        let told = meter.read(
            vec![
                (server(1), carried(1)),
                (server(2), carried(9)),
                (server(3), carried(5)),
            ],
            &all,
        );
        assert_eq!(
            told.services.keys().cloned().collect::<Vec<_>>(),
            [service(2), service(3)]
        );
        assert_eq!(told.others, carried(1));
        let busy = vec![(server(1), carried(1000)), (server(3), carried(6))];
        let told = meter.read(busy.clone(), &all);
        assert_eq!(told.services[&service(3)], carried(6));
        assert_eq!(told.others, carried(1000));
        let told = meter.read(busy, &owners([1, 3]));
        assert_eq!(
            told.services.keys().cloned().collect::<Vec<_>>(),
            [service(3)]
        );
        let told = meter.read(vec![(server(1), carried(1001))], &owners([1, 3]));
        assert_eq!(told.services[&service(1)], carried(1));
    }

    proptest! {
        /// Nothing is lost or told twice, whatever the bound; no counter goes back; the bound holds.
        #[test]
        fn all_that_is_carried_is_told_once(
            most in 0_usize..4,
            rounds in prop::collection::vec(prop::collection::vec((1_u8..6, 0_u64..50), 0..8), 1..8),
        ) {
            let mut meter = begun(most);
            let owners = owners(1..=5);
            let mut counters: BTreeMap<VirtualServerKey, u64> = BTreeMap::new();
            let mut before = Told::default();
            for round in rounds {
                for (number, more) in round {
                    *counters.entry(server(number)).or_default() += more;
                }
                let seen = counters.iter().map(|(server, count)| (*server, carried(*count)));
                let told = meter.read(seen.collect(), &owners);
                let mut sum = told.others;
                told.services.values().for_each(|traffic| add(&mut sum, traffic));
                prop_assert_eq!(sum, carried(counters.values().sum()));
                prop_assert!(told.services.len() <= most);
                for (service, traffic) in &before.services {
                    prop_assert!(told.services[service].connections >= traffic.connections);
                }
                prop_assert!(told.others.connections >= before.others.connections);
                before = told;
            }
        }
    }
}
