//! Builds the sets of a node: which entry belongs to which set, and the capacity of each set. Rules depend on the
//! cluster only through these sets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::Family;

use crate::{DesiredSet, SetEntry, SetId, SetKind, SetRole, VirtualServerKey};

/// The minimum capacity of a set, so that sets seldom have to grow.
const MIN_ELEMENTS: u32 = 65_536;

/// All of Portolan's sets, under construction.
#[derive(Debug)]
pub(crate) struct Entries {
    sets: BTreeMap<SetId, DesiredSet>,
}

impl Entries {
    pub(crate) fn new() -> Self {
        let sets = SetId::all().map(|id| (id, DesiredSet::default())).collect();
        Self { sets }
    }

    /// Adds an entry to the set of its address's family.
    pub(crate) fn entry(&mut self, role: SetRole, address: IpAddr, entry: SetEntry) {
        let family = Family::of(address);
        let set = self.sets.entry(SetId { role, family }).or_default();
        set.entries.insert(entry);
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

    /// Resolves a frontend that several Services claim: if one of them serves it, connections are not rejected for
    /// the others.
    pub(crate) fn settle(&mut self, key: VirtualServerKey) {
        let family = Family::of(key.address);
        let entry = SetEntry::of(key);
        let id = |role| SetId { role, family };
        let served = self.sets.get(&id(SetRole::Frontend));
        let served = served.is_some_and(|set| set.entries.contains(&entry));
        if let Some(refused) = self.sets.get_mut(&id(SetRole::Refuse))
            && served
        {
            refused.entries.remove(&entry);
        }
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
            set.entries.insert(SetEntry::Port(port));
        }
    }

    /// Returns the sets with their capacities.
    pub(crate) fn finish(mut self) -> BTreeMap<SetId, DesiredSet> {
        for (id, set) in &mut self.sets {
            let entries = u32::try_from(set.entries.len()).unwrap_or(u32::MAX);
            let wanted = entries.checked_next_power_of_two().unwrap_or(u32::MAX);
            set.max_elements = match id.role.kind() {
                SetKind::BitmapPort => SetKind::PORTS,
                _ => wanted.saturating_mul(2).max(MIN_ELEMENTS),
            };
        }
        self.sets
    }
}
