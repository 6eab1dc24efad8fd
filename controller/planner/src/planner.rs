//! Keeps the plans of all Services and nodes up to date with events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Entry, EntryKey, NodeEntry, ServiceId};

use crate::index::Index;
use crate::model::{ClusterModel, Event, Moment, Node, Touched};
use crate::node::{can_have_agent, node_entry, node_warnings};
use crate::service::plan_service;
use crate::{OutsideRanges, PlannedService, Warning};

/// The changed plans; `None` means deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Services.
    pub services: BTreeMap<ServiceId, Option<Arc<PlannedService>>>,
    /// Nodes, by name.
    pub nodes: BTreeMap<Arc<str>, Option<Arc<NodeEntry>>>,
    /// Addresses that may have received their first endpoint or lost their last one, and whether they have one now.
    /// Plans do not contain this; agents use it when they drain.
    pub residents: BTreeMap<IpAddr, bool>,
    /// Number of Services that were planned for the update, as a measure of its cost.
    pub planned: usize,
}

impl Update {
    /// Whether no plan changed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.nodes.is_empty()
    }
}

/// The model of the cluster, and the plans made from it.
#[derive(Debug, Default)]
pub struct Planner {
    model: ClusterModel,
    services: BTreeMap<ServiceId, Arc<PlannedService>>,
    nodes: BTreeMap<Arc<str>, Arc<NodeEntry>>,
    index: Index,
}

impl Planner {
    /// Applies events, plans each affected Service and node once, and returns the changes.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> Update {
        let touched = self.take_in(events);
        self.plan(touched)
    }

    /// The same at a time: if the guard is enabled, it also evaluates mass losses of endpoints.
    pub fn apply_at(&mut self, events: impl IntoIterator<Item = Event>, now: Moment) -> Update {
        self.model.look_at_clock(now);
        let mut touched = self.take_in(events);
        touched.merge(self.model.settle());
        self.plan(touched)
    }

    /// Enables the guard against mass loss of endpoints.
    pub fn watch_endpoints(&mut self) {
        self.model.watch_endpoints();
    }

    fn take_in(&mut self, events: impl IntoIterator<Item = Event>) -> Touched {
        let mut touched = Touched::default();
        for event in events {
            touched.merge(self.model.apply(event));
        }
        touched
    }

    fn plan(&mut self, mut touched: Touched) -> Update {
        for node in &touched.rezoned {
            touched.services.extend(self.index.zoned_by(node).cloned());
        }
        if touched.all_services {
            touched
                .services
                .extend(self.model.services().map(|service| service.id.clone()));
            touched.services.extend(self.services.keys().cloned());
        }
        if touched.all_nodes {
            touched
                .nodes
                .extend(self.model.nodes().map(|node| node.name.clone()));
        }
        let mut update = Update {
            planned: touched.services.len(),
            ..Update::default()
        };
        for address in touched.addresses {
            let resident = self.model.is_resident(address);
            update.residents.insert(address, resident);
        }
        let settings = self.model.settings();
        for id in touched.services {
            let planned = plan_service(&self.model, &settings, &id);
            self.replace_service(id, planned, &mut update);
        }
        for name in touched.nodes {
            let entry = self
                .model
                .node(&name)
                .filter(|node| can_have_agent(node))
                .map(|node| node_entry(&self.model, node));
            replace(&mut self.nodes, name, entry, &mut update.nodes);
        }
        update
    }

    fn replace_service(
        &mut self,
        id: ServiceId,
        mut planned: Option<PlannedService>,
        update: &mut Update,
    ) {
        let old = self.services.get(&id);
        if let (Some(planned), Some(old)) = (&mut planned, old) {
            planned.share_with(old);
        }
        if old.map(AsRef::as_ref) != planned.as_ref() {
            self.index
                .replace(&id, old.map(AsRef::as_ref), planned.as_ref());
        }
        replace(&mut self.services, id, planned, &mut update.services);
    }

    /// The model of the cluster.
    pub fn model(&self) -> &ClusterModel {
        &self.model
    }

    /// All plans of Services in order.
    pub fn services(&self) -> &BTreeMap<ServiceId, Arc<PlannedService>> {
        &self.services
    }

    /// All nodes in order.
    pub fn nodes(&self) -> &BTreeMap<Arc<str>, Arc<NodeEntry>> {
        &self.nodes
    }

    /// The Nodes that can have an agent, in order.
    pub fn nodes_with_agents(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.model.nodes().filter(|node| can_have_agent(node))
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        self.nodes.get(name)
    }

    /// All entries of a node's plan.
    pub fn entries_for(&self, node: &Arc<NodeEntry>) -> impl Iterator<Item = (EntryKey, Entry)> {
        let own = (EntryKey::Node, Entry::Node(node.clone()));
        let services = self.services.iter().flat_map(move |(id, planned)| {
            let head = Entry::Head(planned.head_for(node).clone());
            let lists = planned.lists_for(node);
            let lists =
                lists.map(|(key, list)| (EntryKey::List(key.clone()), Entry::List(list.clone())));
            let local = planned.local_for(&node.name);
            let local =
                local.map(|local| (EntryKey::Local(id.clone()), Entry::Local(local.clone())));
            std::iter::once((EntryKey::Head(id.clone()), head))
                .chain(lists)
                .chain(local)
        });
        std::iter::once(own).chain(services)
    }

    /// Services with something of their own for a node, in order: their policy is Local and the node has usable
    /// endpoints, hints name the node, or one of their frontends is an address of the node.
    pub fn particular_to(&self, node: &str) -> impl Iterator<Item = &Arc<PlannedService>> {
        let ids = self.index.particular_to(node);
        ids.filter_map(|id| self.services.get(id))
    }

    /// Services whose endpoints have topology hints, effective or not, in order.
    pub fn hinted(&self) -> impl Iterator<Item = &Arc<PlannedService>> {
        let ids = self.index.hinted();
        ids.filter_map(|id| self.services.get(id))
    }

    /// Warnings for the plan of a node, each once, in order.
    pub fn warnings(&self, node: &NodeEntry) -> BTreeSet<Warning> {
        let mut warnings = self.warnings_of_services();
        warnings.extend(self.node_warnings(&node.name));
        warnings.extend(self.outside_ranges().warning(&node.name));
        warnings
    }

    /// Warnings about Services and EndpointSlices, each once, in order.
    pub fn warnings_of_services(&self) -> BTreeSet<Warning> {
        let services = self.services.values();
        let services = services.flat_map(|planned| planned.warnings.iter().cloned());
        let slices = self.model.slices().flat_map(|slice| {
            let reasons = slice.reasons();
            reasons.map(|reason| Warning::new("EndpointSlice", &slice.id, reason))
        });
        services.chain(slices).collect()
    }

    /// Warnings about a node.
    pub fn node_warnings(&self, name: &Arc<str>) -> impl Iterator<Item = Warning> {
        let node = self.model.node(name).into_iter();
        node.flat_map(|node| node_warnings(&self.model, node))
    }

    /// Endpoints outside of the ranges of their nodes. Visits every endpoint.
    pub fn outside_ranges(&self) -> OutsideRanges {
        OutsideRanges::among(self.nodes(), self.model().slices())
    }
}

/// Stores a value, and adds it to the update only if it changed.
fn replace<K: Ord + Clone, V: Eq>(
    kept: &mut BTreeMap<K, Arc<V>>,
    key: K,
    value: Option<V>,
    update: &mut BTreeMap<K, Option<Arc<V>>>,
) {
    let value = value.map(Arc::new);
    if kept.get(&key) == value.as_ref() {
        return;
    }
    match &value {
        Some(value) => kept.insert(key.clone(), value.clone()),
        None => kept.remove(&key),
    };
    update.insert(key, value);
}
