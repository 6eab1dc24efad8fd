//! The simulated loss of zones and nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{ClusterModel, Endpoint, EndpointSlice, Event, ObjectChange};

/// The lost zones and nodes, with all endpoints on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Zones: their nodes, and endpoints in them.
    pub zones: BTreeSet<Arc<str>>,
    /// Nodes.
    pub nodes: BTreeSet<Arc<str>>,
}

/// An unknown zone or node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// `Zone` or `Node`.
    pub kind: &'static str,
    /// Its name.
    pub name: Arc<str>,
    /// The existing ones, in order.
    pub known: BTreeSet<Arc<str>>,
}

impl Lost {
    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.nodes.is_empty()
    }

    /// The events of the loss. Topology hints are unchanged, because their author has not reacted yet.
    ///
    /// # Errors
    /// [`Unknown`] for the first zone or node that neither a Node nor an endpoint names.
    pub fn events(&self, model: &ClusterModel) -> Result<Vec<Event>, Unknown> {
        let endpoints = || model.slices().flat_map(|slice| &slice.endpoints);
        let zones = model.nodes().filter_map(|node| node.zone.as_ref());
        let zones = zones.chain(endpoints().filter_map(|endpoint| endpoint.zone.as_ref()));
        check("Zone", &self.zones, zones)?;
        let names = model.nodes().map(|node| &node.name);
        let names = names.chain(endpoints().filter_map(|endpoint| endpoint.node.as_ref()));
        check("Node", &self.nodes, names)?;

        let mut nodes = self.nodes.clone();
        let in_zone = model.nodes().filter(|node| is_in(&self.zones, &node.zone));
        nodes.extend(in_zone.map(|node| node.name.clone()));
        let lost = |endpoint: &Endpoint| {
            is_in(&nodes, &endpoint.node) || is_in(&self.zones, &endpoint.zone)
        };
        let slices = model.slices().filter(|s| s.endpoints.iter().any(lost));
        let slices = slices.map(|slice| Event::from(without(slice, lost)));
        let mut events: Vec<_> = slices.collect();
        let gone = |node: &Arc<str>| Event::Node(ObjectChange::Remove(node.clone()));
        events.extend(nodes.iter().map(gone));
        Ok(events)
    }
}

fn is_in(names: &BTreeSet<Arc<str>>, name: &Option<Arc<str>>) -> bool {
    name.as_ref().is_some_and(|name| names.contains(name))
}

fn without(slice: &EndpointSlice, lost: impl Fn(&Endpoint) -> bool) -> EndpointSlice {
    let mut slice = slice.clone();
    slice.endpoints.retain(|endpoint| !lost(endpoint));
    slice
}

fn check<'a>(
    kind: &'static str,
    wanted: &BTreeSet<Arc<str>>,
    known: impl Iterator<Item = &'a Arc<str>>,
) -> Result<(), Unknown> {
    if wanted.is_empty() {
        return Ok(());
    }
    let known: BTreeSet<_> = known.collect();
    match wanted.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Unknown {
            kind,
            name: name.clone(),
            known: known.into_iter().cloned().collect(),
        }),
    }
}
