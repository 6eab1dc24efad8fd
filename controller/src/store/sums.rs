//! The hashes of every node's plan, updated at the cost of each change.
//!
//! Most of a plan is the same for all nodes of a zone, so this part is summed up once per zone. The part that a
//! Service has for a node by name is substituted when that node is asked for. A reconnecting stream is thus compared
//! without iterating over all entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{BucketHashes, NodeEntry};

use super::encoded::{EncodedEntry, EncodedNode, EncodedService};
use super::shared_plan::unnamed;

type Zone = Option<Arc<str>>;

/// The sums over plans.
#[derive(Debug, Default)]
pub(super) struct Sums {
    zones: BTreeMap<Zone, OfZone>,
    /// The numbers of the Services with entries for a node by name.
    naming: BTreeMap<Arc<str>, Vec<u32>>,
}

/// The sum for nodes of a zone that no Service names.
#[derive(Debug)]
struct OfZone {
    nodes: usize,
    /// A representative node of the zone.
    anybody: NodeEntry,
    hashes: BucketHashes,
}

impl OfZone {
    fn count(&mut self, service: &EncodedService, count: fn(&mut BucketHashes, &EncodedEntry)) {
        for (_, entry) in service.entries_for(&self.anybody) {
            count(&mut self.hashes, &entry);
        }
    }
}

fn add(hashes: &mut BucketHashes, entry: &EncodedEntry) {
    hashes.add(entry.bucket, entry.hash);
}

fn remove(hashes: &mut BucketHashes, entry: &EncodedEntry) {
    hashes.remove(entry.bucket, entry.hash);
}

impl Sums {
    /// The Service with this number has changed.
    pub(super) fn replace(
        &mut self,
        number: u32,
        old: Option<&EncodedService>,
        new: Option<&EncodedService>,
    ) {
        for zone in self.zones.values_mut() {
            old.into_iter().for_each(|old| zone.count(old, remove));
            new.into_iter().for_each(|new| zone.count(new, add));
        }
        let names = |service: Option<&EncodedService>| -> Vec<Arc<str>> {
            let named = service.map(EncodedService::named).unwrap_or_default();
            named.into_iter().cloned().collect()
        };
        let (before, now) = (names(old), names(new));
        for node in before
            .iter()
            .filter(|node| now.binary_search(node).is_err())
        {
            self.forget(node, number);
        }
        for node in now
            .iter()
            .filter(|node| before.binary_search(node).is_err())
        {
            let naming = self.naming.entry(node.clone()).or_default();
            if let Err(place) = naming.binary_search(&number) {
                naming.insert(place, number);
            }
        }
    }

    fn forget(&mut self, node: &str, number: u32) {
        if let Some(naming) = self.naming.get_mut(node) {
            naming.retain(|other| *other != number);
            if naming.is_empty() {
                self.naming.remove(node);
            }
        }
    }

    /// Adds a node of this zone. `services` are all Services.
    pub(super) fn add_node<'a>(
        &mut self,
        node: &NodeEntry,
        services: impl Iterator<Item = &'a Arc<EncodedService>>,
    ) {
        let zone = self.zones.entry(node.zone.clone()).or_insert_with(|| {
            let mut zone = OfZone {
                nodes: 0,
                anybody: unnamed(node),
                hashes: BucketHashes::default(),
            };
            services.for_each(|service| zone.count(service, add));
            zone
        });
        zone.nodes += 1;
    }

    /// Removes a node of this zone.
    pub(super) fn remove_node(&mut self, node: &NodeEntry) {
        if let Some(zone) = self.zones.get_mut(&node.zone) {
            zone.nodes -= 1;
            if zone.nodes == 0 {
                self.zones.remove(&node.zone);
            }
        }
    }

    /// The numbers of the Services with entries for a node by name.
    pub(super) fn naming(&self) -> &BTreeMap<Arc<str>, Vec<u32>> {
        &self.naming
    }

    /// The hashes of a node's plan. `service` returns the Service with a number.
    pub(super) fn of<'a>(
        &self,
        node: &EncodedNode,
        service: impl Fn(u32) -> Option<&'a Arc<EncodedService>>,
    ) -> BucketHashes {
        let Some(zone) = self.zones.get(&node.value.zone) else {
            return BucketHashes::default();
        };
        let mut hashes = zone.hashes.clone();
        add(&mut hashes, &node.encoded);
        let naming = self.naming.get(&node.value.name);
        for service in naming.into_iter().flatten().filter_map(|n| service(*n)) {
            for (_, entry) in service.entries_for(&zone.anybody) {
                remove(&mut hashes, &entry);
            }
            for (_, entry) in service.entries_for(&node.value) {
                add(&mut hashes, &entry);
            }
        }
        hashes
    }
}
