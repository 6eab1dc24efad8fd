//! The frontends and endpoints of a Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use portolan_plan::{
    Backend, BackendList, Family, Frontend, Head, ListKey, ListUse, NodeEntry, Protocol,
};

use crate::PlannedService;

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortName {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
}

/// A frontend of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFrontend {
    /// The port.
    pub port: PortName,
    /// The frontend.
    pub frontend: Frontend,
}

/// The changed endpoints of a port in one family, in any list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointChange {
    /// The port.
    pub port: PortName,
    /// The family of their addresses.
    pub family: Family,
    /// Number before.
    pub before: usize,
    /// Number after.
    pub after: usize,
    /// Added endpoints, in order. An endpoint whose weight changes is in both lists.
    pub added: Vec<SocketAddr>,
    /// Removed endpoints, in order.
    pub removed: Vec<SocketAddr>,
}

/// The plan of a Service for the whole cluster, or for one node.
#[derive(Default)]
pub(super) struct View<'a> {
    heads: Vec<&'a Head>,
    lists: Vec<(&'a ListKey, &'a BackendList)>,
}

impl<'a> View<'a> {
    pub(super) fn whole(planned: &'a PlannedService) -> Self {
        let lists = planned.lists.iter();
        Self {
            heads: planned.heads.iter().map(|head| &**head).collect(),
            lists: lists.map(|(key, list)| (key, &**list)).collect(),
        }
    }

    pub(super) fn of_node(planned: &'a PlannedService, node: &NodeEntry) -> Self {
        let lists = planned.lists_for(node);
        Self {
            heads: vec![planned.head_for(node)],
            lists: lists.map(|(key, list)| (key, &**list)).collect(),
        }
    }

    /// A representative head: heads differ only in frontends and scopes.
    pub(super) fn head(&self) -> Option<&'a Head> {
        self.heads.first().copied()
    }

    /// The list use for external frontends of a port, which may exist on some nodes only.
    pub(super) fn external(&self, name: &str) -> Option<&'a ListUse> {
        let mut ports = self.heads.iter().flat_map(|head| &head.ports);
        ports.find_map(|port| port.external.as_ref().filter(|_| *port.name == *name))
    }

    fn frontends(&self) -> BTreeSet<PortFrontend> {
        let ports = self.heads.iter().flat_map(|head| &head.ports);
        let frontends = ports.flat_map(|port| {
            let (name, protocol) = (&port.name, port.protocol);
            port.frontends.iter().map(move |frontend| PortFrontend {
                port: PortName {
                    name: name.clone(),
                    protocol,
                },
                frontend: *frontend,
            })
        });
        frontends.collect()
    }

    fn endpoints(&self) -> BTreeMap<(PortName, Family), BTreeSet<Backend>> {
        let ports = self.heads.iter().flat_map(|head| &head.ports);
        let protocols: BTreeMap<_, _> = ports.map(|port| (&port.name, port.protocol)).collect();
        let mut lists: BTreeMap<_, Vec<Backend>> = BTreeMap::new();
        for (key, list) in &self.lists {
            let protocol = protocols.get(&key.port).copied().unwrap_or_default();
            let backends = lists.entry((&key.port, protocol, key.family)).or_default();
            backends.extend(list.as_slice());
        }
        let named = |((name, protocol, family), backends): ((&Arc<str>, _, _), Vec<Backend>)| {
            let name = name.clone();
            let backends = backends.into_iter().collect();
            ((PortName { name, protocol }, family), backends)
        };
        lists.into_iter().map(named).collect()
    }
}

/// Added and removed frontends.
pub(super) fn frontends(
    before: &View<'_>,
    after: &View<'_>,
) -> (Vec<PortFrontend>, Vec<PortFrontend>) {
    let (before, after) = (before.frontends(), after.frontends());
    let only = |one: &BTreeSet<_>, other| one.difference(other).cloned().collect();
    (only(&after, &before), only(&before, &after))
}

/// The endpoints of each port and family that changed.
pub(super) fn endpoints(before: &View<'_>, after: &View<'_>) -> Vec<EndpointChange> {
    let (before, after) = (before.endpoints(), after.endpoints());
    let none = BTreeSet::new();
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changes = keys.into_iter().map(|key| {
        let old = before.get(key).unwrap_or(&none);
        let new = after.get(key).unwrap_or(&none);
        let place = |backend: &Backend| SocketAddr::new(backend.address, backend.port);
        EndpointChange {
            port: key.0.clone(),
            family: key.1,
            before: old.len(),
            after: new.len(),
            added: new.difference(old).map(place).collect(),
            removed: old.difference(new).map(place).collect(),
        }
    });
    changes
        .filter(|change| !change.added.is_empty() || !change.removed.is_empty())
        .collect()
}
