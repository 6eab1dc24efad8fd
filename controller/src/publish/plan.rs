//! The ProxyPlan of a node: what is particular to it. Pure.
//!
//! Invariant: an object takes at most about 100 kB, regardless of the size of the cluster. What does not fit is
//! counted, and goes into a few slices of the node's own if slices are written at all.

use std::sync::Arc;

use portolan_crds as crds;
use portolan_crds::limit;
use portolan_plan::{NodeEntry, Settings};
use portolan_planner::{PlannedService, Planner};

use super::content::{ContentHash, sentence, shortened, size};
use super::figures::{Figures, count};
use super::ports::planned_service;
use crate::cluster_state::ClusterState;
use crate::from_kube;
use portolan_planner::model::ObjectId;

/// Maximum size of all Services in one object, in bytes.
pub(super) const MAX_SERVICES_BYTES: usize = 80 * 1024;
/// Maximum size of all health check ports in one object, in bytes.
const MAX_HEALTH_BYTES: usize = 10 * 1024;
/// Maximum number of ProxyPlanSlices of one node. The rest is only counted.
const MAX_NODE_SLICES: usize = 4;

/// The generation of the ProxyConfig that settings came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsRevision {
    /// The generation and its settings; `None` if unknown.
    pub known: Option<(i64, Settings)>,
}

impl SettingsRevision {
    /// The revision text of settings in force on a node.
    pub fn text(&self, settings: &Settings) -> String {
        match &self.known {
            Some((generation, known)) if known == settings => format!("default-{generation}"),
            // Two nodes with the same settings show the same text.
            _ => format!("settings-{}", ContentHash::of(settings).short()),
        }
    }
}

/// The objects of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeObjects {
    /// Its ProxyPlan.
    pub plan: crds::ProxyPlanSpec,
    /// The slices with what did not fit, in order.
    pub overflow: Vec<crds::ProxyPlanSliceSpec>,
}

/// The objects of a node; `None` if the node does not exist. Without `slices`, what does not fit is only counted.
pub fn proxy_plan_spec(
    known: &ClusterState,
    figures: &Figures,
    revision: &SettingsRevision,
    slices: bool,
    node: &str,
) -> Option<NodeObjects> {
    let planner = &known.planner;
    let entry = planner.node(node)?;
    let particular = || planner.particular_to(node);
    let mut counts = figures.counts(entry, particular());
    let warnings = warnings(known, figures, &entry.name);
    counts.warnings = count(warnings.len());

    let services = particular().map(|planned| planned_service(planned, entry));
    let (services, more_services) = fitting(services, MAX_SERVICES_BYTES, limit::SERVICES);
    let health = health_checks(planner, figures, entry);
    let (health_checks, more_health) = fitting(health, MAX_HEALTH_BYTES, limit::HEALTH_CHECKS);

    let (left_services, left_health) = (more_services.len(), more_health.len());
    let overflow = if slices {
        node_slices(&entry.name, more_services, more_health)
    } else {
        Vec::new()
    };
    let note = (left_services + left_health > 0)
        .then(|| overflow_note(entry, left_services, left_health, overflow.len()));
    let plan = crds::ProxyPlanSpec {
        zone: entry.zone.as_ref().map(ToString::to_string),
        settings_revision: match planner.model().revision_of(&entry.name) {
            Some(number) => from_kube::revision_name(number),
            None => revision.text(&entry.settings),
        },
        counts,
        services,
        health_checks,
        topology: figures.topology(entry, particular()),
        warnings: warnings.into_iter().take(limit::PLAN_WARNINGS).collect(),
        overflow: note,
    };
    Some(NodeObjects { plan, overflow })
}

/// The hashes of a ProxyPlan, with and without the counts that only depend on the rest of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlanContent {
    /// Without the counts.
    pub(super) particular: ContentHash,
    /// The whole content.
    pub(super) whole: ContentHash,
}

impl PlanContent {
    pub(super) fn of(spec: &crds::ProxyPlanSpec) -> Self {
        let counts = crds::PlanCounts {
            services: 0,
            frontends: 0,
            endpoints: 0,
            ..spec.counts
        };
        let particular = (
            (&spec.zone, &spec.settings_revision, counts),
            (&spec.services, &spec.health_checks),
            (&spec.warnings, &spec.overflow),
        );
        Self {
            particular: ContentHash::of(&particular),
            whole: ContentHash::of(spec),
        }
    }
}

/// Takes values until the object is full. Returns the fitting ones and the rest.
fn fitting<T: serde::Serialize>(
    values: impl Iterator<Item = T>,
    bytes: usize,
    most: usize,
) -> (Vec<T>, Vec<T>) {
    let (mut fitting, mut rest) = (Vec::new(), Vec::new());
    let mut room = bytes;
    for value in values {
        let needed = size(&value);
        if rest.is_empty() && needed <= room && fitting.len() < most {
            room -= needed;
            fitting.push(value);
        } else {
            rest.push(value);
        }
    }
    (fitting, rest)
}

fn node_slices(
    node: &Arc<str>,
    mut services: Vec<crds::PlannedService>,
    mut health: Vec<crds::HealthCheck>,
) -> Vec<crds::ProxyPlanSliceSpec> {
    let mut slices = Vec::new();
    while slices.len() < MAX_NODE_SLICES && !(services.is_empty() && health.is_empty()) {
        let (these, rest) = fitting(services.into_iter(), MAX_SERVICES_BYTES, limit::SERVICES);
        let (checks, more) = fitting(health.into_iter(), MAX_HEALTH_BYTES, limit::HEALTH_CHECKS);
        slices.push(crds::ProxyPlanSliceSpec {
            scope: crds::SliceScope {
                kind: crds::SliceScopeKind::Node,
                name: node.to_string(),
            },
            part: count(slices.len()),
            services: these,
            health_checks: checks,
            ..crds::ProxyPlanSliceSpec::default()
        });
        (services, health) = (rest, more);
    }
    slices
}

fn overflow_note(
    node: &NodeEntry,
    services: usize,
    health_checks: usize,
    slices: usize,
) -> crds::Overflow {
    let name = &node.name;
    let all = format!("`kubectl proxyplan show {name}` prints the whole plan and its hash");
    let last = slices.saturating_sub(1);
    let note = match slices {
        0 => all,
        1..MAX_NODE_SLICES => {
            format!("the rest is in the ProxyPlanSlices node-{name}-0 to node-{name}-{last}")
        }
        _ => format!(
            "some of the rest is in the ProxyPlanSlices node-{name}-0 to node-{name}-{last}; {all}"
        ),
    };
    crds::Overflow {
        services: count(services),
        health_checks: count(health_checks),
        slices: count(slices),
        note: sentence(&note),
    }
}

fn health_checks(
    planner: &Planner,
    figures: &Figures,
    node: &NodeEntry,
) -> impl Iterator<Item = crds::HealthCheck> {
    let services = figures.health().filter_map(|id| planner.services().get(id));
    services.filter_map(|planned: &Arc<PlannedService>| {
        let health = planned.locals.get(&node.name)?.health?;
        Some(crds::HealthCheck {
            namespace: planned.id.namespace.to_string(),
            name: planned.id.name.to_string(),
            port: health.port,
            local_endpoints: crds::FamilyCounts {
                ipv4: health.ipv4,
                ipv6: health.ipv6,
            },
        })
    })
}

/// Warnings about the Node, without duplicates and in order. If the Node cannot be read, that comes first.
fn warnings(known: &ClusterState, figures: &Figures, node: &Arc<str>) -> Vec<crds::Warning> {
    let id = ObjectId::Node(node.clone());
    let left_out = known.left_out.get(&id).map(|problem| crds::Warning {
        object: shortened(&id.to_string(), 600),
        reason: "LeftOut".into(),
        message: sentence(&format!("{problem}; its last readable form stays in force")),
    });
    let mut others: Vec<_> = known
        .planner
        .node_warnings(node)
        .chain(figures.outside_ranges().warning(node))
        .map(|warning| self::warning(&warning))
        .collect();
    others.sort();
    others.dedup();
    left_out.into_iter().chain(others).collect()
}

/// A warning in the form of the API.
pub(super) fn warning(warning: &portolan_planner::Warning) -> crds::Warning {
    crds::Warning {
        object: shortened(&warning.object, 600),
        reason: shortened(warning.reason.code(), limit::LABEL_CHARS),
        message: sentence(&warning.reason.to_string()),
    }
}
