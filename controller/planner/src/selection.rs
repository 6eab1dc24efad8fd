//! Which endpoints serve whom: one port in one family, for all nodes at once.
//!
//! A list is made only for zones and nodes that endpoints name, so its cost follows the endpoints,
//! not the nodes of the cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Backend, BackendList, ListChoice, Outsiders, Policy, Scope, ScopeKind};

use crate::model::Endpoint;
use crate::{HintKind, HintState, HintsIgnored};

/// The weight of every backend.
const WEIGHT: u16 = 1;

/// An endpoint with the address and port that it is reached at.
pub(crate) type Reached<'a> = (IpAddr, u16, &'a Endpoint);

/// Who asks for lists of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The policy of its cluster IPs.
    pub(crate) internal: Policy,
    /// The policy of its other frontends; `None` when it has none.
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
    /// What serves cluster IPs on nodes for which, and for whose zone, no list is made.
    pub(crate) internal: ListChoice,
    /// What serves other frontends there.
    pub(crate) external: Option<ListChoice>,
    /// What becomes of hints that name nodes.
    pub(crate) nodes: HintState,
    /// What becomes of hints that name zones.
    pub(crate) zones: HintState,
}

/// The lists for these endpoints, which are all of one port and family, in order.
///
/// Under policy Local a node without a list of its own has no endpoint to use (S-64). Its other
/// frontends then serve pods and the node itself like policy Cluster, so these lists are made too
/// (S-46, S-67), and keep outsiders out as long as anything could serve them elsewhere (S-22).
pub(crate) fn select(wanted: Wanted, endpoints: &[Reached<'_>]) -> Selection {
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
        lists.extend(local(endpoints));
    }
    if !wanted.any(Policy::Cluster) {
        drop_unused_hints(&mut lists);
    }
    let everybody = ListChoice::default();
    let own = ListChoice {
        scope: ScopeKind::Local,
        ..everybody
    };
    let is_served = |list: &BackendList| !list.is_empty();
    let elsewhere = ListChoice {
        outsiders: match lists.get(&Scope::Cluster).is_some_and(is_served) {
            true => Outsiders::Drop,
            // Refused, because nobody could do better (S-49).
            false => Outsiders::Allow,
        },
        ..everybody
    };
    Selection {
        internal: match wanted.internal {
            Policy::Cluster => everybody,
            Policy::Local => own,
        },
        external: wanted.external.map(|policy| match policy {
            Policy::Cluster => everybody,
            Policy::Local => elsewhere,
        }),
        lists,
        nodes,
        zones,
    }
}

/// Where every frontend is for policy Local, a node with endpoints of its own never comes to what
/// hints make for it.
fn drop_unused_hints(lists: &mut BTreeMap<Scope, BackendList>) {
    let local = lists.keys().filter_map(|scope| match scope {
        Scope::Local(node) => Some(Scope::Node(node.clone())),
        Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => None,
    });
    for unused in local.collect::<Vec<_>>() {
        lists.remove(&unused);
    }
}

/// Which of some endpoints take connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usable {
    /// Those that are ready (S-41).
    Ready,
    /// None is ready, so those that end and still answer (S-42).
    Ending,
}

impl Usable {
    /// Among these. Who is not among them does not count (S-43).
    pub(crate) fn among<'a>(mut endpoints: impl Iterator<Item = &'a Endpoint>) -> Self {
        if endpoints.any(|endpoint| endpoint.ready) {
            Self::Ready
        } else {
            Self::Ending
        }
    }

    /// Whether this one of them does.
    pub(crate) fn takes(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Ready => endpoint.ready,
            Self::Ending => endpoint.serving && endpoint.terminating,
        }
    }
}

/// Those of these endpoints that take connections.
fn usable<'a>(endpoints: &[Reached<'a>]) -> Vec<Reached<'a>> {
    let usable = Usable::among(endpoints.iter().map(|(.., endpoint)| *endpoint));
    let taken = endpoints.iter().filter(|(.., e)| usable.takes(e));
    taken.copied().collect()
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
fn cluster(
    endpoints: &[Reached<'_>],
    lists: &mut BTreeMap<Scope, BackendList>,
) -> (HintState, HintState) {
    let nodes = hinted(endpoints, HintKind::Node, lists);
    let zones = hinted(endpoints, HintKind::Zone, lists);
    lists.insert(Scope::Cluster, backends(&usable(endpoints)));
    (nodes, zones)
}

/// A list for each node that has usable endpoints of its own. Each node falls back by itself,
/// whatever others have (S-43).
fn local(endpoints: &[Reached<'_>]) -> impl Iterator<Item = (Scope, BackendList)> {
    let mut of_node: BTreeMap<&Arc<str>, Vec<Reached<'_>>> = BTreeMap::new();
    for reached in endpoints {
        // Without a node it is local to nobody (S-44).
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

/// What the hints of a kind on an endpoint name.
pub(crate) fn names(endpoint: &Endpoint, kind: HintKind) -> &[Arc<str>] {
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
