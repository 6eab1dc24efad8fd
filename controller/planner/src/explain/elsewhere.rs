//! Explains how other nodes serve a group, in groups of equal nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use portolan_plan::{ExternalClients, ListKey, NodeEntry, Scope};

use super::group::{Group, Seen};

/// Other nodes that serve it in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The list they use.
    pub list: ElsewhereList,
    /// How these nodes handle external clients.
    pub external_clients: ExternalClients,
    /// The nodes, in order.
    pub nodes: Vec<Arc<str>>,
    /// The smallest number of endpoints that one of them uses.
    pub fewest: usize,
    /// The largest number.
    pub most: usize,
}

/// The kind of list that nodes use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElsewhereList {
    /// The list of their zone, by hints.
    Zone(Arc<str>),
    /// A list of their own, by hints.
    Node,
    /// Their own endpoints, by policy Local.
    Local,
    /// Their own endpoints, by policy Local, but they have none.
    LocalEmpty,
    /// The list of the whole cluster.
    Cluster,
    /// The port has no frontend there in this family: its addresses are those of other nodes.
    Nowhere,
}

/// Maximum number of nodes whose names are shown.
const MAX_NAMED_NODES: usize = 3;

/// A sentence.
impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.nodes.len();
        let (nodes, their) = match count {
            1 => ("node", "its"),
            _ => ("nodes", "their"),
        };
        write!(f, "{count} {nodes}")?;
        if let ElsewhereList::Zone(zone) = &self.list {
            write!(f, " in zone {zone}")?;
        }
        let more = if count > MAX_NAMED_NODES { ", …" } else { "" };
        let names = self.nodes[..count.min(MAX_NAMED_NODES)].join(", ");
        write!(f, " ({names}{more}): ")?;
        let dropped = self.external_clients == ExternalClients::Drop;
        match &self.list {
            ElsewhereList::Zone(_) => write!(f, "the list of {their} zone, ")?,
            ElsewhereList::Node => write!(f, "{their} own list from hints, ")?,
            ElsewhereList::Local => write!(f, "only {their} own, ")?,
            ElsewhereList::LocalEmpty => {
                return write!(f, "no endpoint of {their} own, so refused");
            }
            ElsewhereList::Nowhere => return f.write_str("not served on these addresses"),
            ElsewhereList::Cluster => f.write_str("the list of the whole cluster, ")?,
        }
        match (self.fewest, self.most) {
            (0, 0) => f.write_str("which is empty, so refused")?,
            (1, 1) => f.write_str("1 endpoint")?,
            (fewest, most) if fewest == most => write!(f, "{most} endpoints")?,
            (fewest, most) => write!(f, "{fewest} to {most} endpoints")?,
        }
        if count > 1 && matches!(self.list, ElsewhereList::Local | ElsewhereList::Node) {
            f.write_str(" each")?;
        }
        if dropped {
            write!(
                f,
                ", for {their} pods and the {nodes}; external clients are dropped"
            )?;
        }
        Ok(())
    }
}

/// How all other nodes serve the group, in the order of [`ElsewhereList`].
pub(super) fn elsewhere(seen: &Seen<'_>, group: Group) -> Vec<Elsewhere> {
    let mut found: BTreeMap<(ElsewhereList, bool), Elsewhere> = BTreeMap::new();
    let others = seen.planner.nodes().values();
    for node in others.filter(|node| node.name != seen.node.name) {
        let (list, external_clients, endpoints) = used(seen, group, node);
        let key = (list, external_clients == ExternalClients::Drop);
        let alike = found.entry(key.clone()).or_insert_with(|| Elsewhere {
            list: key.0,
            external_clients,
            nodes: Vec::new(),
            fewest: endpoints,
            most: endpoints,
        });
        alike.nodes.push(node.name.clone());
        alike.fewest = alike.fewest.min(endpoints);
        alike.most = alike.most.max(endpoints);
    }
    found.into_values().collect()
}

/// The list of a node, and its number of endpoints.
fn used(
    seen: &Seen<'_>,
    group: Group,
    node: &NodeEntry,
) -> (ElsewhereList, ExternalClients, usize) {
    let head = seen.planned.head_for(node);
    let list = head.ports.get(seen.place).and_then(|port| group.of(port));
    let Some(list) = list else {
        return (ElsewhereList::Nowhere, ExternalClients::Allow, 0);
    };
    let choice = list.choice(seen.family);
    let scope = node.complete(choice.scope);
    let key = ListKey {
        service: seen.planned.id.clone(),
        port: seen.port.name.clone(),
        family: seen.family,
        scope,
    };
    let endpoints = seen.planned.lists.get(&key);
    let endpoints = endpoints.map_or(0, |list| list.as_slice().len());
    let list = match key.scope {
        Scope::Cluster => ElsewhereList::Cluster,
        Scope::Zone(zone) => ElsewhereList::Zone(zone),
        Scope::Node(_) => ElsewhereList::Node,
        Scope::Local(_) if endpoints == 0 => ElsewhereList::LocalEmpty,
        Scope::Local(_) => ElsewhereList::Local,
    };
    (list, choice.external_clients, endpoints)
}
