//! Counts of what each node serves. They are gathered for the whole cluster in one pass over the Services, and shared
//! by all plans. Pure.
//!
//! Invariant: the counts of a node equal those of its whole plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_crds as crds;
use portolan_crds::limit;
use portolan_plan::{NodeEntry, ScopeKind, ServiceId};
use portolan_planner::{HintOutcome, OutsideRanges, PlannedService, Planner};

use super::content::{sentence, shortened};

/// Counts of the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    services: usize,
    frontends: usize,
    /// Endpoints of Services that are the same for all nodes without own lists.
    endpoints: usize,
    zones: BTreeMap<Option<Arc<str>>, ZoneFigures>,
    /// Endpoints that run on a node.
    local: BTreeMap<Arc<str>, u32>,
    /// Services with a health check port.
    health: BTreeSet<ServiceId>,
    /// Endpoints outside the ranges of their nodes.
    outside_ranges: OutsideRanges,
}

/// Counts that depend on the zone of a node, without nodes' own lists.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ZoneFigures {
    /// A representative node of the zone that no hint names.
    anybody: NodeEntry,
    endpoints: usize,
    hinted: usize,
    ignored: usize,
    /// The first Services with ignored hints, and the reasons.
    ignored_hints: Vec<(ServiceId, String)>,
}

/// How a node treats the topology hints of a Service.
enum Hints {
    None,
    Used,
    Ignored(String),
}

impl Figures {
    /// Empty counts for nodes of these zones.
    pub fn new<'a>(nodes: impl Iterator<Item = &'a Arc<NodeEntry>>) -> Self {
        let zones: BTreeSet<_> = nodes.map(|node| &node.zone).collect();
        let zone = |zone: &Option<Arc<str>>| {
            let anybody = NodeEntry {
                zone: zone.clone(),
                ..NodeEntry::default()
            };
            let figures = ZoneFigures {
                anybody,
                endpoints: 0,
                hinted: 0,
                ignored: 0,
                ignored_hints: Vec::new(),
            };
            (zone.clone(), figures)
        };
        Self {
            zones: zones.into_iter().map(zone).collect(),
            ..Self::default()
        }
    }

    /// Counts of all planned Services.
    pub fn of(planner: &Planner) -> Self {
        let mut figures = Self::new(planner.nodes().values());
        for planned in planner.services().values() {
            figures.add(planned);
        }
        figures.set_outside_ranges(planner.outside_ranges());
        figures
    }

    /// Adds a Service. Call it in the order of their names.
    pub fn add(&mut self, planned: &PlannedService) {
        let head = &planned.heads[0];
        self.services += 1;
        self.frontends += head.ports.iter().map(|p| p.frontends.len()).sum::<usize>();
        if is_same_in_all_zones(planned) {
            self.endpoints += endpoints(planned, &NodeEntry::default());
        } else {
            for zone in self.zones.values_mut() {
                zone.endpoints += endpoints(planned, &zone.anybody);
            }
        }
        if !planned.hints.is_empty() {
            for zone in self.zones.values_mut() {
                zone.add_hints(planned);
            }
        }
        for (node, local) in &planned.locals {
            let count = u32::try_from(local.endpoints.len()).unwrap_or(u32::MAX);
            let sum = self.local.entry(node.clone()).or_default();
            *sum = sum.saturating_add(count);
            if local.health.is_some() {
                self.health.insert(planned.id.clone());
            }
        }
    }

    /// Sets the endpoints outside the ranges of their nodes.
    pub(super) fn set_outside_ranges(&mut self, outside_ranges: OutsideRanges) {
        self.outside_ranges = outside_ranges;
    }

    /// Endpoints outside the ranges of their nodes.
    pub(super) fn outside_ranges(&self) -> &OutsideRanges {
        &self.outside_ranges
    }

    /// Services with a health check port.
    pub(super) fn health(&self) -> impl Iterator<Item = &ServiceId> {
        self.health.iter()
    }

    /// Counts of what a node serves; `particular` are the Services for which it has own lists.
    pub(super) fn counts<'a>(
        &self,
        node: &NodeEntry,
        particular: impl Iterator<Item = &'a Arc<PlannedService>>,
    ) -> crds::PlanCounts {
        let zone = self.zones.get(&node.zone);
        let mut sum = self.endpoints + zone.map_or(0, |zone| zone.endpoints);
        if let Some(zone) = zone {
            for planned in particular {
                sum += endpoints(planned, node);
                // The counts may be older than the Service; they are updated soon.
                sum = sum.saturating_sub(endpoints(planned, &zone.anybody));
            }
        }
        let local = self.local.get(&node.name).copied();
        crds::PlanCounts {
            services: count(self.services),
            frontends: count(self.frontends),
            endpoints: count(sum),
            local_endpoints: local.unwrap_or_default(),
            warnings: 0,
        }
    }

    /// How a node uses hints; `None` if no Service has any.
    pub(super) fn topology<'a>(
        &self,
        node: &NodeEntry,
        particular: impl Iterator<Item = &'a Arc<PlannedService>>,
    ) -> Option<crds::Topology> {
        let zone = self.zones.get(&node.zone)?;
        let (mut hinted, mut ignored) = (zone.hinted, zone.ignored);
        let mut shown: BTreeMap<&ServiceId, String> = zone
            .ignored_hints
            .iter()
            .map(|(id, reason)| (id, reason.clone()))
            .collect();
        for planned in particular.filter(|planned| !planned.hints.is_empty()) {
            match hints(planned, &zone.anybody) {
                Hints::Used => hinted = hinted.saturating_sub(1),
                Hints::Ignored(_) => ignored = ignored.saturating_sub(1),
                Hints::None => {}
            }
            shown.remove(&planned.id);
            match hints(planned, node) {
                Hints::Used => hinted += 1,
                Hints::Ignored(reason) => {
                    ignored += 1;
                    shown.insert(&planned.id, reason);
                }
                Hints::None => {}
            }
        }
        if hinted + ignored == 0 {
            return None;
        }
        let shown: Vec<_> = shown
            .into_iter()
            .take(limit::IGNORED_HINTS)
            .map(|(id, reason)| crds::IgnoredHints {
                service: shortened(&id.to_string(), 320),
                reason: sentence(&reason),
            })
            .collect();
        Some(crds::Topology {
            hinted_services: count(hinted),
            ignored_hints_omitted: count(ignored.saturating_sub(shown.len())),
            ignored_hints: shown,
        })
    }
}

impl ZoneFigures {
    fn add_hints(&mut self, planned: &PlannedService) {
        match hints(planned, &self.anybody) {
            Hints::Used => self.hinted += 1,
            Hints::Ignored(reason) => {
                self.ignored += 1;
                if self.ignored_hints.len() < limit::IGNORED_HINTS {
                    self.ignored_hints.push((planned.id.clone(), reason));
                }
            }
            Hints::None => {}
        }
    }
}

/// `Used` if any port uses its hints; otherwise the first reason for ignoring them.
fn hints(planned: &PlannedService, node: &NodeEntry) -> Hints {
    let mut first = None;
    for (_, outcome) in planned.hints_on(node) {
        match outcome {
            HintOutcome::Used(_) => return Hints::Used,
            HintOutcome::Ignored(reason) => {
                first.get_or_insert(reason);
            }
        }
    }
    first.map_or(Hints::None, |reason| Hints::Ignored(reason.to_string()))
}

/// Whether all nodes without own lists have the same endpoints, regardless of their zone.
fn is_same_in_all_zones(planned: &PlannedService) -> bool {
    let zoned = |list: &portolan_plan::ListUse| {
        [list.ipv4, list.ipv6]
            .iter()
            .any(|choice| choice.scope == ScopeKind::Zone)
    };
    planned.head_of_zone.is_empty()
        && !planned.heads[0]
            .ports
            .iter()
            .any(|port| zoned(&port.internal) || port.external.as_ref().is_some_and(zoned))
}

fn endpoints(planned: &PlannedService, node: &NodeEntry) -> usize {
    planned.lists_for(node).map(|(_, list)| list.len()).sum()
}

/// Saturates at `u32::MAX`, which no cluster reaches.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
