//! Selects the endpoint lists of one port in one family, for all nodes at once (`externalTrafficPolicy`,
//! `internalTrafficPolicy`, topology hints).
//!
//! Lists are made only for zones and nodes that endpoints name, so the cost depends on the endpoints, not on the
//! number of nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Backend, BackendList, ExternalClients, ListChoice, Policy, Scope, ScopeKind};

use crate::model::Endpoint;
use crate::{HintKind, HintState, HintsIgnored};

/// The weight of every backend.
const BACKEND_WEIGHT: u16 = 1;

/// An endpoint with its address and port.
pub(crate) type Reached<'a> = (IpAddr, u16, &'a Endpoint);

/// The traffic policies of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The policy of its cluster IPs.
    pub(crate) internal: Policy,
    /// The policy of its other frontends; `None` if there are none.
    pub(crate) external: Option<Policy>,
}

impl Wanted {
    fn any(self, policy: Policy) -> bool {
        self.internal == policy || self.external == Some(policy)
    }
}

/// The lists of one port in one family.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The lists.
    pub(crate) lists: BTreeMap<Scope, BackendList>,
    /// The list for cluster IPs on nodes without a list of their own or of their zone.
    pub(crate) internal: ListChoice,
    /// The same for other frontends.
    pub(crate) external: Option<ListChoice>,
    /// The outcome of hints that name nodes.
    pub(crate) nodes: HintState,
    /// The outcome of hints that name zones.
    pub(crate) zones: HintState,
}

/// The lists for these endpoints, which are all endpoints of one port and family, in order. Those of `of_other_nodes`
/// are copies that count only on the nodes that they name (S-245).
///
/// Under policy Local a node without a list of its own has no endpoint to use (S-64). Its other frontends then serve
/// pods and the node itself like policy Cluster, so these lists are made too (S-46, S-67). External clients are
/// dropped there as long as an endpoint elsewhere can serve them (S-22).
pub(crate) fn select(
    wanted: Wanted,
    endpoints: &[Reached<'_>],
    of_other_nodes: &[Reached<'_>],
) -> Selection {
    let mut lists = BTreeMap::new();
    let (nodes, zones) = if wanted.internal == Policy::Cluster || wanted.external.is_some() {
        cluster(endpoints, &mut lists)
    } else {
        (
            not_for_local(endpoints, HintKind::Node),
            not_for_local(endpoints, HintKind::Zone),
        )
    };
    if wanted.any(Policy::Local) {
        lists.extend(local(endpoints.iter().chain(of_other_nodes)));
    }
    if !wanted.any(Policy::Cluster) {
        drop_unused_hints(&mut lists);
    }
    let cluster_choice = ListChoice::default();
    let own = ListChoice {
        scope: ScopeKind::Local,
        ..cluster_choice
    };
    let is_served = |list: &BackendList| !list.is_empty();
    let elsewhere = ListChoice {
        external_clients: match lists.get(&Scope::Cluster).is_some_and(is_served) {
            true => ExternalClients::Drop,
            // Rejected, because no other node could serve them (S-49).
            false => ExternalClients::Allow,
        },
        ..cluster_choice
    };
    Selection {
        internal: match wanted.internal {
            Policy::Cluster => cluster_choice,
            Policy::Local => own,
        },
        external: wanted.external.map(|policy| match policy {
            Policy::Cluster => cluster_choice,
            Policy::Local => elsewhere,
        }),
        lists,
        nodes,
        zones,
    }
}

/// If all frontends have policy Local, a node with its own endpoints never uses its list from hints.
fn drop_unused_hints(lists: &mut BTreeMap<Scope, BackendList>) {
    let local = lists.keys().filter_map(|scope| match scope {
        Scope::Local(node) => Some(Scope::Node(node.clone())),
        Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => None,
    });
    for unused in local.collect::<Vec<_>>() {
        lists.remove(&unused);
    }
}

/// Which endpoints receive connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Ready endpoints (S-41).
    Ready,
    /// No endpoint is ready, so terminating endpoints that still serve (S-42).
    Ending,
}

impl Usable {
    /// Evaluates these endpoints; others do not count (S-43).
    pub(crate) fn among<'a>(mut endpoints: impl Iterator<Item = &'a Endpoint>) -> Self {
        if endpoints.any(|endpoint| endpoint.ready) {
            Self::Ready
        } else {
            Self::Ending
        }
    }

    /// Whether an endpoint receives connections.
    pub(crate) fn takes(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Ready => endpoint.ready,
            Self::Ending => endpoint.serving && endpoint.terminating,
        }
    }
}

/// The endpoints that receive connections.
fn usable<'a>(endpoints: &[Reached<'a>]) -> Vec<Reached<'a>> {
    let usable = Usable::among(endpoints.iter().map(|(.., endpoint)| *endpoint));
    let taken = endpoints.iter().filter(|(.., e)| usable.takes(e));
    taken.copied().collect()
}

fn backends(endpoints: &[Reached<'_>]) -> BackendList {
    let backend = |(address, port, _): &Reached<'_>| Backend {
        address: *address,
        port: *port,
        weight: BACKEND_WEIGHT,
    };
    endpoints.iter().map(backend).collect()
}

/// One list for the cluster, and one for each zone and node that hints name (S-57 to S-60).
fn cluster(
    endpoints: &[Reached<'_>],
    lists: &mut BTreeMap<Scope, BackendList>,
) -> (HintState, HintState) {
    let nodes = hinted(endpoints, HintKind::Node, lists);
    let zones = hinted(endpoints, HintKind::Zone, lists);
    lists.insert(Scope::Cluster, backends(&usable(endpoints)));
    (nodes, zones)
}

/// A list for each node that has usable endpoints of its own. Each node falls back to terminating endpoints
/// independently (S-43).
fn local<'a>(
    endpoints: impl Iterator<Item = &'a Reached<'a>>,
) -> impl Iterator<Item = (Scope, BackendList)> {
    let mut of_node: BTreeMap<&Arc<str>, Vec<Reached<'_>>> = BTreeMap::new();
    for reached in endpoints {
        // Without a node it is local to no node (S-44).
        if let Some(node) = &reached.2.node {
            of_node.entry(node).or_default().push(*reached);
        }
    }
    of_node.into_iter().filter_map(|(node, all)| {
        let list = backends(&usable(&all));
        (!list.is_empty()).then(|| (Scope::Local(node.clone()), list))
    })
}

/// Hints never apply to policy Local (S-61).
fn not_for_local(endpoints: &[Reached<'_>], kind: HintKind) -> HintState {
    if endpoints.iter().any(|(.., e)| !names(e, kind).is_empty()) {
        HintState::Ignored(HintsIgnored::PolicyLocal)
    } else {
        HintState::Absent
    }
}

/// The names in the hints of a kind on an endpoint.
pub(crate) fn names(endpoint: &Endpoint, kind: HintKind) -> &[Arc<str>] {
    match kind {
        HintKind::Node => &endpoint.for_nodes,
        HintKind::Zone => &endpoint.for_zones,
    }
}

/// Adds the lists from hints of a kind, if they are effective: every ready endpoint must have one (S-57).
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
