//! Nodes that were added, removed or changed themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{NodeEntry, Settings};

use super::extent::{Extent, ZoneTotals};
use super::{Plans, Presence, Was};

/// Nodes that changed in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDifference {
    /// Whether they were added, removed or changed.
    pub presence: Presence,
    /// The changed fields of nodes that exist before and after.
    pub fields: NodeFields,
    /// Their settings, if these changed.
    pub settings: Option<Was<Settings>>,
    /// The nodes: relative to the nodes before if they were removed, otherwise relative to those after.
    pub nodes: Extent,
}

/// The changed fields of a node, except for its settings; `None` means equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeFields {
    /// Its zone.
    pub zone: Option<Was<Option<Arc<str>>>>,
    /// Its addresses.
    pub addresses: Option<Was<Vec<IpAddr>>>,
    /// The ranges of its pods.
    pub pod_cidrs: Option<Was<Vec<IpNet>>>,
    /// The ranges of cluster IPs.
    pub service_cidrs: Option<Was<Vec<IpNet>>>,
    /// Whether load balancers should send traffic to it.
    pub eligible: Option<Was<bool>>,
}

impl NodeFields {
    /// All fields of a node entry are named, so that a new field cannot be forgotten.
    fn between(before: &NodeEntry, after: &NodeEntry) -> Self {
        let NodeEntry {
            name: _,
            zone,
            addresses,
            pod_cidrs,
            service_cidrs,
            eligible,
            settings: _,
        } = after;
        Self {
            zone: changed(&before.zone, zone),
            addresses: changed(&before.addresses, addresses),
            pod_cidrs: changed(&before.pod_cidrs, pod_cidrs),
            service_cidrs: changed(&before.service_cidrs, service_cidrs),
            eligible: changed(&before.eligible, eligible),
        }
    }
}

fn changed<T: PartialEq + Clone>(before: &T, after: &T) -> Option<Was<T>> {
    (before != after).then(|| Was {
        before: before.clone(),
        after: after.clone(),
    })
}

/// Nodes that changed in the same way: grouped by the changed fields, and by settings, which have no order but are
/// nearly always equal.
type Alike<'a> = BTreeMap<NodeFields, Vec<(Option<Was<&'a Settings>>, Vec<&'a NodeEntry>)>>;

/// The changed nodes of the whole cluster, or only one node. Added nodes first, then removed ones.
pub(super) fn compare(only: Option<&str>, before: &Plans, after: &Plans) -> Vec<NodeDifference> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let (mut new, mut gone, mut alike) = (Vec::new(), Vec::new(), Alike::new());
    for (name, node) in after.nodes.iter().filter(|(name, _)| wanted(name)) {
        match before.nodes.get(name) {
            None => new.push(&**node),
            Some(old) if old == node => {}
            Some(old) => sort_in(&mut alike, old, node),
        }
    }
    let names = before.nodes.iter().filter(|(name, _)| wanted(name));
    gone.extend(names.filter_map(|(name, node)| {
        let there = after.nodes.contains_key(name);
        (!there).then_some(&**node)
    }));
    let before = ZoneTotals::of(before.nodes.values());
    let after = ZoneTotals::of(after.nodes.values());
    let mut found = Vec::new();
    let whole = [
        (Presence::New, new, &after),
        (Presence::Gone, gone, &before),
    ];
    for (presence, nodes, totals) in whole {
        if !nodes.is_empty() {
            let nodes = Extent::new(totals, &nodes);
            found.push(NodeDifference {
                presence,
                fields: NodeFields::default(),
                settings: None,
                nodes,
            });
        }
    }
    for (fields, groups) in alike {
        found.extend(groups.into_iter().map(|(settings, nodes)| NodeDifference {
            presence: Presence::Changed,
            fields: fields.clone(),
            settings: settings.map(|was| Was {
                before: was.before.clone(),
                after: was.after.clone(),
            }),
            nodes: Extent::new(&after, &nodes),
        }));
    }
    found
}

fn sort_in<'a>(alike: &mut Alike<'a>, before: &'a NodeEntry, after: &'a NodeEntry) {
    let settings = Was::unless_equal(&before.settings, &after.settings);
    let groups = alike.entry(NodeFields::between(before, after)).or_default();
    match groups.iter_mut().find(|(other, _)| *other == settings) {
        Some((_, nodes)) => nodes.push(after),
        None => groups.push((settings, vec![after])),
    }
}
