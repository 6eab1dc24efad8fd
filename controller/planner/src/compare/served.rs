//! Which list serves a node, and with how many endpoints.

use std::sync::Arc;

use portolan_plan::{Family, HeadPort, ListKey, ListUse, NodeEntry, Outsiders, Scope};

use super::ends::PortName;
use super::extent::Extent;
use crate::PlannedService;

/// Nodes whose list of one port and family differs alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedChange {
    /// The port.
    pub port: PortName,
    /// The family.
    pub family: Family,
    /// Whose connections it is about.
    pub clients: Clients,
    /// What served them.
    pub before: Served,
    /// What serves them. If it is equal to what was, other endpoints are in the list.
    pub after: Served,
    /// On which nodes.
    pub nodes: Extent,
}

/// Whose connections a list is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clients {
    /// Everybody's.
    All,
    /// Those to cluster IPs.
    Internal,
    /// Those to all other frontends.
    External,
}

/// What serves connections on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// Whose list it is.
    pub by: ServedBy,
    /// How many endpoints are in it.
    pub endpoints: usize,
    /// Clients that are neither the node nor one of its pods meet silence.
    pub drops_outsiders: bool,
}

/// Whose list serves a node. Lists that are a node's own are not told apart, so that nodes which
/// fare alike are told together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServedBy {
    /// The whole cluster's.
    Cluster,
    /// What hints make for a zone.
    Zone(Arc<str>),
    /// What hints make for the node.
    Node,
    /// The node's own endpoints, for a policy Local.
    Local,
}

/// A port and family, for whom, and what served and serves them.
pub(super) type Shift = (PortName, Family, Clients, Served, Served);

/// A Service's plan on one node at one moment.
pub(super) struct OnNode<'a> {
    pub(super) planned: &'a PlannedService,
    pub(super) node: &'a NodeEntry,
}

/// One list as a node uses it.
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
            drops_outsiders: choice.outsiders == Outsiders::Drop,
        };
        Used { key, served }
    }
}

/// What of a node's lists differs, for ports and families that are there both times. `renewed` tells
/// whether a list that is there both times holds other endpoints.
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
            let mut tell = |clients, found: Option<(Served, Served)>| {
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
                    tell(Clients::Internal, internal);
                    tell(Clients::External, external);
                }
                _ => tell(Clients::All, internal),
            }
        }
    }
    shifts
}
