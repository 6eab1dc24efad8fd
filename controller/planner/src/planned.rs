//! A Service's plan for all nodes at once. Parts that nodes share are one value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{BackendList, Family, Head, ListKey, Local, NodeEntry, ServiceId};

use crate::Warning;

/// A Service's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedService {
    /// Which Service.
    pub id: ServiceId,
    /// The distinct heads, at least one; the first is for nodes that the two maps do not name.
    pub heads: Vec<Arc<Head>>,
    /// Zones whose nodes have another head: its place in `heads`.
    pub head_of_zone: BTreeMap<Arc<str>, usize>,
    /// Nodes that have another head: its place in `heads`. It goes before the zone's.
    pub head_of_node: BTreeMap<Arc<str>, usize>,
    /// All lists that some head names.
    pub lists: BTreeMap<ListKey, Arc<BackendList>>,
    /// Each node's own endpoints, by the node's name.
    pub locals: BTreeMap<Arc<str>, Arc<Local>>,
    /// What its owner should hear.
    pub warnings: Vec<Warning>,
}

impl PlannedService {
    /// The head that a node gets.
    pub fn head_for(&self, node: &NodeEntry) -> &Arc<Head> {
        let of_zone = || self.head_of_zone.get(node.zone.as_ref()?);
        let place = self.head_of_node.get(&node.name).or_else(of_zone).copied();
        place
            .and_then(|place| self.heads.get(place))
            .unwrap_or(&self.heads[0])
    }

    /// The lists that a node's head names, each once.
    pub fn lists_for(
        &self,
        node: &NodeEntry,
    ) -> impl Iterator<Item = (&ListKey, &Arc<BackendList>)> {
        let mut keys = BTreeSet::new();
        for port in &self.head_for(node).ports {
            for list in std::iter::once(&port.internal).chain(&port.external) {
                keys.extend(
                    Family::BOTH
                        .into_iter()
                        .filter(|f| port.has_family(*f))
                        .map(|family| {
                            let scope = node.complete(list.choice(family).scope);
                            ListKey {
                                service: self.id.clone(),
                                port: port.name.clone(),
                                family,
                                scope,
                            }
                        }),
                );
            }
        }
        keys.into_iter()
            .filter_map(|key| self.lists.get_key_value(&key))
    }

    /// Takes over the parts of an older plan that are equal, so that they can be told by pointer.
    pub(crate) fn share_with(&mut self, old: &Self) {
        for head in &mut self.heads {
            if let Some(same) = old.heads.iter().find(|same| **same == *head) {
                *head = same.clone();
            }
        }
        share(&mut self.lists, &old.lists);
        share(&mut self.locals, &old.locals);
    }
}

fn share<K: Ord, V: Eq>(new: &mut BTreeMap<K, Arc<V>>, old: &BTreeMap<K, Arc<V>>) {
    for (key, value) in new {
        if let Some(same) = old.get(key).filter(|same| *same == value) {
            *value = same.clone();
        }
    }
}
