//! The plan of a Service for all nodes. Parts that nodes share are stored once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{
    BackendList, Family, Head, ListKey, Local, NodeEntry, Scope, ScopeKind, ServiceId,
};

use crate::{HintKind, HintOutcome, HintState, HintUse, HintsIgnored, Warning};

/// The plan of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedService {
    /// The Service.
    pub id: ServiceId,
    /// The distinct heads, at least one; the first is for nodes that are in neither of the two maps.
    pub heads: Vec<Arc<Head>>,
    /// Zones whose nodes use another head: its index in `heads`.
    pub head_of_zone: BTreeMap<Arc<str>, usize>,
    /// Nodes that use another head: its index in `heads`. It takes precedence over the zone.
    pub head_of_node: BTreeMap<Arc<str>, usize>,
    /// All lists that some head refers to. A missing list is empty.
    pub lists: BTreeMap<ListKey, Arc<BackendList>>,
    /// Each node's own endpoints, by the node's name.
    pub locals: BTreeMap<Arc<str>, Arc<Local>>,
    /// The same for nodes without endpoints; only for a Service with a health check port (S-134).
    pub elsewhere: Option<Arc<Local>>,
    /// The outcome of topology hints, for each port and family with hints.
    pub hints: Vec<HintUse>,
    /// Warnings about the Service.
    pub warnings: Vec<Warning>,
}

impl PlannedService {
    /// The head for a node.
    pub fn head_for(&self, node: &NodeEntry) -> &Arc<Head> {
        let of_zone = || self.head_of_zone.get(node.zone.as_ref()?);
        let place = self.head_of_node.get(&node.name).or_else(of_zone).copied();
        place
            .and_then(|place| self.heads.get(place))
            .unwrap_or(&self.heads[0])
    }

    /// The node's own endpoints of the Service.
    pub fn local_for(&self, node: &str) -> Option<&Arc<Local>> {
        self.locals.get(node).or(self.elsewhere.as_ref())
    }

    /// The lists that the head of a node refers to, each once.
    pub fn lists_for(
        &self,
        node: &NodeEntry,
    ) -> impl Iterator<Item = (&ListKey, &Arc<BackendList>)> {
        let mut keys = BTreeSet::new();
        for port in &self.head_for(node).ports {
            for list in std::iter::once(&port.internal).chain(&port.external) {
                keys.extend(
                    Family::BOTH
                        .into_iter()
                        .filter(|f| port.has_family(*f))
                        .map(|family| {
                            let scope = node.complete(list.choice(family).scope);
                            ListKey {
                                service: self.id.clone(),
                                port: port.name.clone(),
                                family,
                                scope,
                            }
                        }),
                );
            }
        }
        keys.into_iter()
            .filter_map(|key| self.lists.get_key_value(&key))
    }

    /// What becomes of hints on a node, for each port and family whose endpoints have some.
    pub fn hints_on<'a>(
        &'a self,
        node: &'a NodeEntry,
    ) -> impl Iterator<Item = (&'a HintUse, HintOutcome)> {
        self.hints
            .iter()
            .map(move |hints| (hints, self.outcome(hints, node)))
    }

    /// Node hints, else zone hints, else the most specific reason for this node.
    fn outcome(&self, hints: &HintUse, node: &NodeEntry) -> HintOutcome {
        let has_list = |scope| {
            let key = ListKey {
                service: self.id.clone(),
                port: hints.port.clone(),
                family: hints.family,
                scope,
            };
            self.lists.contains_key(&key)
        };
        let of_node = || has_list(Scope::Node(node.name.clone()));
        if hints.nodes == HintState::InForce && of_node() {
            return HintOutcome::Used(HintKind::Node);
        }
        if self.is_all_local(hints, node) {
            return HintOutcome::Ignored(HintsIgnored::PolicyLocal);
        }
        let reason = match (&hints.zones, &hints.nodes) {
            (HintState::InForce, _) => match &node.zone {
                Some(zone) if has_list(Scope::Zone(zone.clone())) => {
                    return HintOutcome::Used(HintKind::Zone);
                }
                Some(zone) => HintsIgnored::NoneForZone(zone.clone()),
                None => HintsIgnored::NodeWithoutZone,
            },
            (HintState::Ignored(reason), _) | (HintState::Absent, HintState::Ignored(reason)) => {
                reason.clone()
            }
            (HintState::Absent, HintState::InForce | HintState::Absent) => {
                HintsIgnored::NoneForNode(node.name.clone())
            }
        };
        HintOutcome::Ignored(reason)
    }

    /// Whether a node uses only its own endpoints, by policy Local.
    fn is_all_local(&self, hints: &HintUse, node: &NodeEntry) -> bool {
        let mut ports = self.head_for(node).ports.iter();
        let port = ports.find(|port| port.name == hints.port);
        port.is_some_and(|port| {
            let mut lists = std::iter::once(&port.internal).chain(&port.external);
            lists.all(|list| list.choice(hints.family).scope == ScopeKind::Local)
        })
    }

    /// Nodes with a list of their own, by policy Local or by hints; may contain duplicates.
    pub(crate) fn nodes_with_own(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        let lists = self.lists.keys().filter_map(|key| key.scope.node());
        lists.chain(self.head_of_node.keys())
    }

    /// Nodes whose head depends on their zone: hints name them for some ports or families only, and the others may
    /// follow zone hints.
    pub(crate) fn nodes_by_zone(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        let zoned = !self.head_of_zone.is_empty();
        let all = self.head_of_node.iter().filter(move |_| zoned);
        all.filter_map(|(node, place)| {
            let head = self.heads.get(*place)?;
            let by_zone = |scope| matches!(scope, ScopeKind::Cluster | ScopeKind::Zone);
            let depends = head.ports.iter().any(|port| {
                let mut lists = std::iter::once(&port.internal).chain(&port.external);
                lists.any(|list| {
                    let mut families = Family::BOTH.into_iter().filter(|f| port.has_family(*f));
                    families.any(|family| by_zone(list.choice(family).scope))
                })
            });
            depends.then_some(node)
        })
    }

    /// Reuses equal parts of an older plan, so that they can be compared by pointer.
    pub(crate) fn share_with(&mut self, old: &Self) {
        for head in &mut self.heads {
            if let Some(same) = old.heads.iter().find(|same| **same == *head) {
                *head = same.clone();
            }
        }
        share(&mut self.lists, &old.lists);
        share(&mut self.locals, &old.locals);
        if self.elsewhere == old.elsewhere {
            self.elsewhere.clone_from(&old.elsewhere);
        }
    }
}

/// Merges both maps in one pass: a lookup for each key would dominate the cost of planning a Service with thousands
/// of endpoints.
fn share<K: Ord, V: Eq>(new: &mut BTreeMap<K, Arc<V>>, old: &BTreeMap<K, Arc<V>>) {
    let mut old = old.iter().peekable();
    for (key, value) in new {
        while old.next_if(|(other, _)| *other < key).is_some() {}
        let same = old.next_if(|(other, _)| *other == key);
        if let Some((_, same)) = same.filter(|(_, same)| *same == value) {
            *value = same.clone();
        }
    }
}
