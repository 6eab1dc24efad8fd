//! Which endpoints serve whom: one port in one family, for all nodes at once.
//!
//! A list is made only for zones and nodes that endpoints name, so its cost follows the endpoints,
//! not the nodes of the cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Backend, BackendList, Policy, Scope, ScopeKind};

use crate::model::Endpoint;
use crate::{HintKind, HintState, HintsIgnored};

/// The weight of every backend.
const WEIGHT: u16 = 1;

/// An endpoint with the address and port that it is reached at.
pub(crate) type Reached<'a> = (IpAddr, u16, &'a Endpoint);

/// The lists of one port in one family.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The kind of list that a node uses when none is made for its zone or itself.
    pub(crate) otherwise: ScopeKind,
    /// The lists. Under policy Local a node without one has no endpoint to use.
    pub(crate) lists: BTreeMap<Scope, BackendList>,
    /// What becomes of hints that name nodes.
    pub(crate) nodes: HintState,
    /// What becomes of hints that name zones.
    pub(crate) zones: HintState,
}

/// The lists for these endpoints, which are all of one port and family, in order.
pub(crate) fn select(policy: Policy, endpoints: &[Reached<'_>]) -> Selection {
    match policy {
        Policy::Cluster => cluster(endpoints),
        Policy::Local => local(endpoints),
    }
}

/// Ready endpoints; where there is none, those that end and still answer (S-41, S-42).
fn usable<'a>(endpoints: &[Reached<'a>]) -> Vec<Reached<'a>> {
    let ready: Vec<_> = endpoints
        .iter()
        .filter(|(.., e)| e.ready)
        .copied()
        .collect();
    if !ready.is_empty() {
        return ready;
    }
    let ending = endpoints
        .iter()
        .filter(|(.., e)| e.serving && e.terminating);
    ending.copied().collect()
}

fn backends(endpoints: &[Reached<'_>]) -> BackendList {
    let backend = |(address, port, _): &Reached<'_>| Backend {
        address: *address,
        port: *port,
        weight: WEIGHT,
    };
    endpoints.iter().map(backend).collect()
}

/// One list for everybody, and one for each zone and node that hints name (S-57 to S-60).
fn cluster(endpoints: &[Reached<'_>]) -> Selection {
    let mut lists = BTreeMap::new();
    let nodes = hinted(endpoints, HintKind::Node, &mut lists);
    let zones = hinted(endpoints, HintKind::Zone, &mut lists);
    lists.insert(Scope::Cluster, backends(&usable(endpoints)));
    Selection {
        otherwise: ScopeKind::Cluster,
        lists,
        nodes,
        zones,
    }
}

/// A list for each node that has usable endpoints of its own. Each node falls back by itself,
/// whatever others have (S-43, S-64). No list is for everybody (S-46).
fn local(endpoints: &[Reached<'_>]) -> Selection {
    let mut of_node: BTreeMap<&Arc<str>, Vec<Reached<'_>>> = BTreeMap::new();
    for reached in endpoints {
        // Without a node it is local to nobody (S-44).
        if let Some(node) = &reached.2.node {
            of_node.entry(node).or_default().push(*reached);
        }
    }
    let lists = of_node.into_iter().filter_map(|(node, all)| {
        let list = backends(&usable(&all));
        (!list.is_empty()).then(|| (Scope::Node(node.clone()), list))
    });
    let ignored = |kind| {
        if endpoints.iter().any(|(.., e)| !names(e, kind).is_empty()) {
            HintState::Ignored(HintsIgnored::PolicyLocal)
        } else {
            HintState::Absent
        }
    };
    Selection {
        otherwise: ScopeKind::Node,
        lists: lists.collect(),
        nodes: ignored(HintKind::Node),
        zones: ignored(HintKind::Zone),
    }
}

/// What the hints of a kind on an endpoint name.
fn names(endpoint: &Endpoint, kind: HintKind) -> &[Arc<str>] {
    match kind {
        HintKind::Node => &endpoint.for_nodes,
        HintKind::Zone => &endpoint.for_zones,
    }
}

/// Adds the lists that hints of a kind make, if they are in force: every ready endpoint must have
/// one (S-57).
fn hinted(
    endpoints: &[Reached<'_>],
    kind: HintKind,
    lists: &mut BTreeMap<Scope, BackendList>,
) -> HintState {
    let ready = || endpoints.iter().filter(|(.., e)| e.ready);
    let has_hint = |(.., e): &&Reached<'_>| !names(e, kind).is_empty();
    if ready().next().is_none() && endpoints.iter().any(|e| has_hint(&e)) {
        return HintState::Ignored(HintsIgnored::NoneReady);
    }
    if !ready().any(|e| has_hint(&e)) {
        return HintState::Absent;
    }
    if let Some((endpoint, ..)) = ready().find(|e| !has_hint(e)) {
        return HintState::Ignored(HintsIgnored::EndpointWithout {
            kind,
            endpoint: *endpoint,
        });
    }
    let mut named: BTreeMap<&Arc<str>, Vec<Reached<'_>>> = BTreeMap::new();
    for reached in ready() {
        for name in names(reached.2, kind) {
            named.entry(name).or_default().push(*reached);
        }
    }
    for (name, endpoints) in named {
        let scope = match kind {
            HintKind::Node => Scope::Node(name.clone()),
            HintKind::Zone => Scope::Zone(name.clone()),
        };
        lists.insert(scope, backends(&endpoints));
    }
    HintState::InForce
}
