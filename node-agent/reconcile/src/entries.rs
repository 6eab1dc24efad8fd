//! Builds the sets of a node: which entry belongs to which set, and the capacity of each set. Rules depend on the
//! cluster only through these sets.
//!
//! Entries are collected in lists and sorted once, because that is faster than to keep tens of thousands in order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::Family;

use crate::{DesiredSet, SetEntry, SetId, SetKind, SetRole, VirtualServerKey};

/// The minimum capacity of a set, so that sets seldom have to grow.
const MIN_ELEMENTS: u32 = 65_536;

/// All of Portolan's sets, under construction.
#[derive(Debug)]
pub(crate) struct Entries {
    sets: BTreeMap<SetId, Vec<SetEntry>>,
}

impl Entries {
    pub(crate) fn new() -> Self {
        let sets = SetId::all().map(|id| (id, Vec::new())).collect();
        Self { sets }
    }

    /// Adds an entry to the set of its address's family.
    pub(crate) fn entry(&mut self, role: SetRole, address: IpAddr, entry: SetEntry) {
        let family = Family::of(address);
        self.sets
            .entry(SetId { role, family })
            .or_default()
            .push(entry);
    }

    /// Adds a range. The kernel's sets cannot hold a /0, so it is added as its two halves.
    pub(crate) fn nets(&mut self, role: SetRole, range: IpNet) {
        let range = range.trunc();
        let parts = if range.prefix_len() == 0 {
            range.subnets(1).map(Iterator::collect).unwrap_or_default()
        } else {
            vec![range]
        };
        for part in parts {
            self.entry(role, part.addr(), SetEntry::Net(part));
        }
    }

    /// Adds a frontend to a set.
    pub(crate) fn frontend(&mut self, role: SetRole, key: VirtualServerKey) {
        self.entry(role, key.address, SetEntry::of(key));
    }

    /// Allows only these sources (S-86). None of them is a /0, which sets cannot hold (S-87).
    pub(crate) fn guard(&mut self, key: VirtualServerKey, sources: &[IpNet]) {
        let VirtualServerKey {
            address,
            port,
            protocol,
        } = key;
        for net in sources {
            let entry = SetEntry::AddressPortNet {
                address,
                protocol,
                port,
                net: *net,
            };
            self.entry(SetRole::Allow, address, entry);
        }
        self.frontend(SetRole::Guarded, key);
    }

    /// Adds a health check port, which listens on all addresses of both families (S-142).
    pub(crate) fn health(&mut self, port: u16) {
        for family in Family::BOTH {
            let role = SetRole::Health;
            let set = self.sets.entry(SetId { role, family }).or_default();
            set.push(SetEntry::Port(port));
        }
    }

    /// Returns the sets with their capacities. If one of the Services that claim a `contested` frontend serves it,
    /// connections are not rejected for the others.
    pub(crate) fn finish(
        self,
        contested: &BTreeSet<VirtualServerKey>,
    ) -> BTreeMap<SetId, DesiredSet> {
        let sets = self.sets.into_iter();
        let sets = sets.map(|(id, entries)| (id, entries.into_iter().collect()));
        let mut sets: BTreeMap<SetId, BTreeSet<SetEntry>> = sets.collect();
        for key in contested {
            settle(&mut sets, *key);
        }
        let sets = sets.into_iter();
        sets.map(|(id, entries)| (id, with_capacity(id, entries)))
            .collect()
    }
}

fn settle(sets: &mut BTreeMap<SetId, BTreeSet<SetEntry>>, key: VirtualServerKey) {
    let (family, entry) = (Family::of(key.address), SetEntry::of(key));
    let id = |role| SetId { role, family };
    let served = sets.get(&id(SetRole::Frontend));
    if served.is_some_and(|served| served.contains(&entry))
        && let Some(refused) = sets.get_mut(&id(SetRole::Refuse))
    {
        refused.remove(&entry);
    }
}

fn with_capacity(id: SetId, entries: BTreeSet<SetEntry>) -> DesiredSet {
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    let wanted = count.checked_next_power_of_two().unwrap_or(u32::MAX);
    let max_elements = match id.role.kind() {
        SetKind::BitmapPort => SetKind::PORTS,
        _ => wanted.saturating_mul(2).max(MIN_ELEMENTS),
    };
    DesiredSet {
        max_elements,
        entries,
    }
}
