//! Which list serves a node, and how many endpoints it contains.

use std::sync::Arc;

use portolan_plan::{ExternalClients, Family, HeadPort, ListKey, ListUse, NodeEntry, Scope};

use super::ends::PortName;
use super::extent::Extent;
use crate::PlannedService;

/// Nodes whose list of one port and family changed in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedChange {
    /// The port.
    pub port: PortName,
    /// The family.
    pub family: Family,
    /// The connections that it concerns.
    pub clients: Clients,
    /// The list before.
    pub before: Served,
    /// The list after. If it is equal to the one before, the list contains other endpoints.
    pub after: Served,
    /// The nodes.
    pub nodes: Extent,
}

/// The connections that a list serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clients {
    /// All connections.
    All,
    /// Connections to cluster IPs.
    Internal,
    /// Connections to all other frontends.
    External,
}

/// The list that serves connections on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// The scope of the list.
    pub by: ServedBy,
    /// Number of endpoints in the list.
    pub endpoints: usize,
    /// New connections of external clients are dropped without an answer.
    pub drops_external_clients: bool,
}

/// The scope of a node's list. The node's name is omitted, so that nodes with equal changes are reported together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServedBy {
    /// The list of the cluster.
    Cluster,
    /// The list of a zone, from hints.
    Zone(Arc<str>),
    /// The list of the node, from hints.
    Node,
    /// The node's own endpoints, by policy Local.
    Local,
}

/// A port and family, the connections, and the lists before and after.
pub(super) type Shift = (PortName, Family, Clients, Served, Served);

/// The plan of a Service on one node, before or after.
pub(super) struct OnNode<'a> {
    pub(super) planned: &'a PlannedService,
    pub(super) node: &'a NodeEntry,
}

/// A list as a node uses it.
struct Used {
    key: ListKey,
    served: Served,
}

impl OnNode<'_> {
    fn used(&self, port: &HeadPort, family: Family, list: &ListUse) -> Used {
        let choice = list.choice(family);
        let key = ListKey {
            service: self.planned.id.clone(),
            port: port.name.clone(),
            family,
            scope: self.node.complete(choice.scope),
        };
        let by = match &key.scope {
            Scope::Cluster => ServedBy::Cluster,
            Scope::Zone(zone) => ServedBy::Zone(zone.clone()),
            Scope::Node(_) => ServedBy::Node,
            Scope::Local(_) => ServedBy::Local,
        };
        let served = Served {
            by,
            endpoints: self.planned.lists.get(&key).map_or(0, |list| list.len()),
            drops_external_clients: choice.external_clients == ExternalClients::Drop,
        };
        Used { key, served }
    }
}

/// The changed lists of a node, for ports and families that exist before and after. `renewed` returns whether a list
/// that exists before and after contains other endpoints.
pub(super) fn shifts(
    before: &OnNode<'_>,
    after: &OnNode<'_>,
    renewed: impl Fn(&ListKey) -> bool,
) -> Vec<Shift> {
    let mut shifts = Vec::new();
    for old in &before.planned.head_for(before.node).ports {
        let ports = &after.planned.head_for(after.node).ports;
        let same = |new: &&HeadPort| (&new.name, new.protocol) == (&old.name, old.protocol);
        let Some(new) = ports.iter().find(same) else {
            continue;
        };
        let both = |family: &Family| old.has_family(*family) && new.has_family(*family);
        for family in Family::BOTH.into_iter().filter(both) {
            let shift = |old_list, new_list| {
                let old = before.used(old, family, old_list);
                let new = after.used(new, family, new_list);
                let differs = old.served != new.served || renewed(&new.key);
                differs.then_some((old.served, new.served))
            };
            let internal = shift(&old.internal, &new.internal);
            let external = old.external.as_ref().zip(new.external.as_ref());
            let external = external.map(|(old, new)| shift(old, new));
            let mut push = |clients, found: Option<(Served, Served)>| {
                if let Some((before, after)) = found {
                    let port = PortName {
                        name: old.name.clone(),
                        protocol: old.protocol,
                    };
                    shifts.push((port, family, clients, before, after));
                }
            };
            match external {
                Some(external) if external != internal => {
                    push(Clients::Internal, internal);
                    push(Clients::External, external);
                }
                _ => push(Clients::All, internal),
            }
        }
    }
    shifts
}
