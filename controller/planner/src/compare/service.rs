//! Compares the plans of one Service.

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::{Family, NodeEntry};

use super::ends::{EndpointChange, PortFrontend, PortName, View, endpoints, frontends};
use super::extent::Extent;
use super::node_set::NodeSet;
use super::roster::Roster;
use super::served::{ServedChange, Shift};
use super::sides::{Sides, are_alike, depends_on_zone};
use super::terms::{TermChange, terms};
use super::{Presence, Was};
use crate::{HintState, PlannedService};

/// The differences of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDifference {
    /// Whether it was added, removed or changed.
    pub presence: Presence,
    /// Whether it had endpoints before and has none after.
    pub left: Option<Left>,
    /// Whether topology hints are effective for it, before or after.
    pub hinted: bool,
    /// The nodes on which it changed, of those that exist before and after.
    pub nodes: Extent,
    /// Added frontends, in order.
    pub frontends_added: Vec<PortFrontend>,
    /// Removed frontends, in order.
    pub frontends_removed: Vec<PortFrontend>,
    /// Added and removed endpoints, by port and family.
    pub endpoints: Vec<EndpointChange>,
    /// Changed terms, those of the Service first.
    pub terms: Vec<TermChange>,
    /// Changed lists of nodes; nodes with equal changes are grouped.
    pub served: Vec<ServedChange>,
    /// The nodes where a port and family had endpoints before and has none after: new rejections. Under policy Local
    /// these may be some nodes of many.
    pub emptied: Extent,
    /// The nodes whose own endpoints changed, ready or not, or their health check responses.
    pub own: Extent,
}

/// Where endpoints served before and none serve after. A node without endpoints of its own under policy Local does
/// not count, as long as some node has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The whole Service.
    WithNothing,
    /// These ports in these families.
    InPart(BTreeSet<(PortName, Family)>),
}

/// Compares the plans of a Service; `None` if no client or agent would see a difference. With `one_node`, endpoints
/// and frontends are those of the only node in the roster.
pub(super) fn compare(
    roster: &Roster<'_>,
    planned: &Was<Option<&PlannedService>>,
    one_node: bool,
    compared: &mut usize,
) -> Option<(ServiceDifference, NodeSet)> {
    let node = roster.only().filter(|_| one_node);
    if one_node && node.is_none() {
        return None;
    }
    let (presence, found) = match (planned.before, planned.after) {
        (None, None) => return None,
        (None, Some(_)) => (Presence::New, Found::everywhere(roster)),
        (Some(_), None) => (Presence::Gone, Found::everywhere(roster)),
        (Some(before), Some(after)) => {
            let found = Found::between(roster, before, after, compared)?;
            (Presence::Changed, found)
        }
    };
    let before = view(planned.before, node.map(|node| node.before));
    let after = view(planned.after, node.map(|node| node.after));
    let (frontends_added, frontends_removed) = frontends(&before, &after);
    let both = planned.before.zip(planned.after);
    let difference = ServiceDifference {
        presence,
        left: both.and_then(|(before, after)| left(before, after)),
        hinted: planned
            .before
            .into_iter()
            .chain(planned.after)
            .any(is_hinted),
        nodes: roster.extent(&found.nodes),
        frontends_added,
        frontends_removed,
        endpoints: endpoints(&before, &after),
        terms: both.map_or_else(Vec::new, |(old, new)| terms((old, &before), (new, &after))),
        served: found.served(roster),
        emptied: roster.extent(&found.emptied),
        own: roster.extent(&found.own),
    };
    let noticed = if one_node {
        !difference.nodes.is_empty()
    } else {
        presence != Presence::Changed || difference.says_something()
    };
    noticed.then_some((difference, found.nodes))
}

impl ServiceDifference {
    /// Changes that only concern removed or nonexistent nodes do not count.
    fn says_something(&self) -> bool {
        !self.nodes.is_empty()
            || self.left.is_some()
            || !self.frontends_added.is_empty()
            || !self.frontends_removed.is_empty()
            || !self.endpoints.is_empty()
            || !self.terms.is_empty()
    }
}

fn view<'a>(planned: Option<&'a PlannedService>, node: Option<&NodeEntry>) -> View<'a> {
    match (planned, node) {
        (None, _) => View::default(),
        (Some(planned), None) => View::whole(planned),
        (Some(planned), Some(node)) => View::of_node(planned, node),
    }
}

fn is_hinted(planned: &PlannedService) -> bool {
    let in_force = |state: &HintState| *state == HintState::InForce;
    let mut hints = planned.hints.iter();
    hints.any(|hints| in_force(&hints.nodes) || in_force(&hints.zones))
}

/// Where no endpoints are left, for ports and families that still have frontends.
fn left(before: &PlannedService, after: &PlannedService) -> Option<Left> {
    let (had, has) = (served(before), served(after));
    let heads = after.heads.iter();
    let ports = heads.flat_map(|head| &head.ports);
    let mut lost = BTreeSet::new();
    for port in ports {
        for family in Family::BOTH.into_iter().filter(|f| port.has_family(*f)) {
            let place = (&*port.name, family);
            if had.contains(&place) && !has.contains(&place) {
                let (name, protocol) = (port.name.clone(), port.protocol);
                lost.insert((PortName { name, protocol }, family));
            }
        }
    }
    match (lost.is_empty(), has.is_empty()) {
        (true, _) => None,
        (false, true) => Some(Left::WithNothing),
        (false, false) => Some(Left::InPart(lost)),
    }
}

/// The ports and families with an endpoint on some node.
fn served(planned: &PlannedService) -> BTreeSet<(&str, Family)> {
    let lists = planned.lists.iter().filter(|(_, list)| !list.is_empty());
    lists.map(|(key, _)| (&*key.port, key.family)).collect()
}

/// The changes by node.
struct Found {
    nodes: NodeSet,
    own: NodeSet,
    emptied: NodeSet,
    shifts: BTreeMap<Shift, NodeSet>,
}

impl Found {
    fn everywhere(roster: &Roster<'_>) -> Self {
        Self {
            nodes: roster.all_nodes(),
            own: roster.no_nodes(),
            emptied: roster.no_nodes(),
            shifts: BTreeMap::new(),
        }
    }

    /// Compares one node of each group, and each node that a plan names. `None` if nothing can differ.
    fn between(
        roster: &Roster<'_>,
        before: &PlannedService,
        after: &PlannedService,
        compared: &mut usize,
    ) -> Option<Self> {
        // Equal plans give different entries only to nodes whose zone changed.
        let only_moved = are_alike(before, after);
        if only_moved && !(roster.has_moved() && depends_on_zone(before)) {
            return None;
        }
        let sides = Sides::new(before, after);
        let named = sides.named(roster);
        let mut found = Self {
            nodes: roster.no_nodes(),
            own: roster.no_nodes(),
            emptied: roster.no_nodes(),
            shifts: BTreeMap::new(),
        };
        let groups = roster.groups().iter();
        for group in groups.filter(|group| group.moved || !only_moved) {
            let alike = group.nodes.without(&named);
            if let Some(place) = alike.iter().next() {
                *compared += 1;
                found.look(roster, &sides, place, |set| set.add(&alike));
            }
            for place in group.nodes.within(&named).iter() {
                *compared += 1;
                found.look(roster, &sides, place, |set| set.insert(place));
            }
        }
        Some(found)
    }

    /// Compares one node; `mark` records the result.
    fn look(
        &mut self,
        roster: &Roster<'_>,
        sides: &Sides<'_>,
        place: usize,
        mark: impl Fn(&mut NodeSet),
    ) {
        let node = roster.node(place);
        if !sides.differ_on(node) {
            return;
        }
        mark(&mut self.nodes);
        if sides.own_differ_on(node) {
            mark(&mut self.own);
        }
        for shift in sides.shifts_on(node) {
            let (.., before, after) = &shift;
            if before.endpoints > 0 && after.endpoints == 0 {
                mark(&mut self.emptied);
            }
            mark(
                self.shifts
                    .entry(shift)
                    .or_insert_with(|| roster.no_nodes()),
            );
        }
    }

    fn served(&self, roster: &Roster<'_>) -> Vec<ServedChange> {
        let shifts = self.shifts.iter();
        let changes = shifts.map(
            |((port, family, clients, before, after), nodes)| ServedChange {
                port: port.clone(),
                family: *family,
                clients: *clients,
                before: before.clone(),
                after: after.clone(),
                nodes: roster.extent(nodes),
            },
        );
        changes.collect()
    }
}
