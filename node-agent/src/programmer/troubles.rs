//! Services that are not in the kernel as their objects ask. They do not make the node fail: a user of a single Service
//! could otherwise stop the updates of all others (S-229).
//!
//! The result of a pass is kept until a later pass covers the same Services. A plan then counts as in force, except for
//! these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{EntryKey, Failing, Family, NodePlan, ServiceId};
use portolan_proto::wire;
use portolan_reconcile::{HostNetwork, VirtualServerKey};
use tracing::{info, warn};

use super::Programmer;
use super::outcome::{Outcome, Refused};
use super::part::Covered;
use crate::health::ClosedChecks;
use crate::kernel::{Kernel, KernelError};
use crate::owners::{Owned, owned};

/// Maximum number of Services with a message in a report, and in a log after one pass.
const MAX_SHOWN: usize = 8;

/// What is wrong with a Service on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The kernel lacks this scheduler, for which the Service asks. That of the settings is used instead.
    Scheduler(Arc<str>),
    /// The kernel refuses an endpoint.
    Endpoint {
        /// Its address and port.
        endpoint: String,
        /// The kernel's reason.
        reason: String,
    },
    /// The nftables dataplane lacks this scheduler, for which the Service asks. It chooses endpoints at random.
    NoScheduler(Arc<str>),
    /// The Service has this number of endpoints more than the nftables dataplane can use.
    TooManyEndpoints(usize),
    /// The kernel refuses an element of the tables of nftables.
    Element {
        /// The operation.
        action: String,
        /// The kernel's reason.
        reason: String,
    },
    /// An entry of the plan cannot be read, so its last readable form stays in force.
    Unreadable {
        /// The key of the entry.
        entry: String,
    },
}

impl Trouble {
    /// Whether the Service counts as in force nevertheless.
    pub fn is_in_force(&self) -> bool {
        match self {
            Self::Scheduler(_) | Self::NoScheduler(_) | Self::TooManyEndpoints(_) => true,
            Self::Endpoint { .. } | Self::Element { .. } | Self::Unreadable { .. } => false,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Scheduler(_) => "SchedulerMissing",
            Self::NoScheduler(_) => "SchedulerUnsupported",
            Self::TooManyEndpoints(_) => "TooManyEndpoints",
            Self::Endpoint { .. } => "EndpointRefused",
            Self::Element { .. } => "ElementRefused",
            Self::Unreadable { .. } => "EntryUnreadable",
        }
    }

    /// The message for people. It is the same on every node, so that a controller reports it once.
    fn message(&self) -> String {
        match self {
            Self::Scheduler(asked) => format!(
                "nodes without the scheduler {asked:?} use that of the settings for this Service: load its module there \
                 (modprobe ip_vs_{asked}), or change the annotation proxy.portolan.dev/scheduler"
            ),
            Self::Endpoint { endpoint, reason } => format!(
                "the kernel refuses endpoint {endpoint}: {reason}; correct its EndpointSlice"
            ),
            Self::NoScheduler(asked) => format!(
                "nodes with the nftables dataplane have no scheduler {asked:?} and choose endpoints at random: use sh or \
                 mh, remove the annotation proxy.portolan.dev/scheduler, or set settings.dataplane to ipvs there"
            ),
            Self::TooManyEndpoints(count) => format!(
                "{count} of its endpoints get no connections on nodes with the nftables dataplane, which uses 4,096 for \
                 each frontend; divide the Service"
            ),
            Self::Element { action, reason } => {
                format!("the kernel refuses to {action}: {reason}; correct its EndpointSlice")
            }
            Self::Unreadable { entry } => format!(
                "an agent cannot read {entry}, and its last readable form stays in force; check whether the agent is \
                 older than the controller, and whether the Service is too large for it"
            ),
        }
    }
}

/// What is wrong with the Services of this node, by Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Troubles(BTreeMap<ServiceId, Trouble>);

/// The result of a pass for Services.
#[derive(Debug, Default)]
struct Found {
    /// `None` if all Services were covered.
    covered: Option<BTreeSet<ServiceId>>,
    troubles: BTreeMap<ServiceId, Trouble>,
    /// All Services with an entry that cannot be read, covered or not.
    unread: BTreeMap<ServiceId, Trouble>,
}

impl Troubles {
    /// What is wrong with a Service.
    pub fn of(&self, service: &ServiceId) -> Option<&Trouble> {
        self.0.get(service)
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of Services that are not completely in force.
    pub(crate) fn failing_services(&self) -> usize {
        self.failing().count()
    }

    /// Number of Services that are in force, but not as their objects ask; `closed` adds some.
    pub(crate) fn served_otherwise(&self, closed: &ClosedChecks) -> usize {
        let in_force = self.0.values().filter(|trouble| trouble.is_in_force());
        in_force.count() + self.only_closed(closed).len()
    }

    /// The Services of which nothing is wrong but a health check port, with the first reason.
    fn only_closed<'a>(&self, closed: &'a ClosedChecks) -> BTreeMap<&'a ServiceId, &'a str> {
        let mut ports = BTreeMap::new();
        for (service, reason) in closed {
            if self.of(service).is_none() {
                ports.entry(service).or_insert(&**reason);
            }
        }
        ports
    }

    /// The Services that are not completely in force.
    fn failing(&self) -> impl Iterator<Item = &ServiceId> {
        let failing = self.0.iter().filter(|(_, trouble)| !trouble.is_in_force());
        failing.map(|(service, _)| service)
    }

    /// The state after a successful pass.
    fn after(&self, found: Found) -> Self {
        let Found {
            covered,
            troubles,
            unread,
        } = found;
        let stays = |service: &ServiceId, trouble: &Trouble| {
            let elsewhere = covered.as_ref().is_some_and(|all| !all.contains(service));
            elsewhere && !matches!(trouble, Trouble::Unreadable { .. })
        };
        let before = self.0.iter();
        let before = before.filter(|&(service, held)| stays(service, held));
        let mut after: BTreeMap<_, _> = before
            .map(|(service, trouble)| (service.clone(), trouble.clone()))
            .collect();
        after.extend(troubles);
        // That it cannot be read matters more than what its last readable form lacks.
        after.extend(unread);
        Self(after)
    }

    /// The state after a failed pass. An earlier plan is still the last one in force, and a failure may hide what is
    /// wrong with a Service, so nothing counts as resolved but what is gone.
    fn after_failure(&self, found: Found, is_planned: impl Fn(&ServiceId) -> bool) -> Self {
        let mut after = self.0.clone();
        after.retain(|service, _| is_planned(service));
        for (service, trouble) in found.troubles.into_iter().chain(found.unread) {
            match after.get(&service) {
                Some(held) if !held.is_in_force() && trouble.is_in_force() => {}
                _ => drop(after.insert(service, trouble)),
            }
        }
        Self(after)
    }

    /// Whether this is more than the objects of one tenant can cause: too many to list, or most Services and not those
    /// of few namespaces: a tenant may have several. `all` are the Services of the plan.
    fn is_of_the_node<'a>(&self, all: impl Iterator<Item = &'a ServiceId>) -> bool {
        let mut count = 0;
        let all: BTreeSet<_> = all
            .inspect(|_| count += 1)
            .map(|service| &service.namespace)
            .collect();
        let namespaces: BTreeSet<_> = self.failing().map(|service| &service.namespace).collect();
        let most_services = self.failing().count() > count / 2;
        let most_namespaces = namespaces.len() > 1 && namespaces.len() > all.len() / 2;
        (most_services && most_namespaces) || Failing::of(self.failing()).is_everything()
    }

    /// The report for the controller, with `closed` in addition.
    pub(crate) fn to_wire(&self, closed: &ClosedChecks) -> wire::Troubles {
        let of_pass = self.0.iter().map(|(service, trouble)| {
            let shown = wire::ServiceTrouble {
                service: service.to_string(),
                reason: trouble.reason().into(),
                message: trouble.message(),
                in_force: trouble.is_in_force(),
            };
            (service, shown)
        });
        let of_ports = self.only_closed(closed).into_iter();
        let of_ports = of_ports.map(|(service, reason)| {
            let shown = wire::ServiceTrouble {
                service: service.to_string(),
                reason: "HealthPortClosed".into(),
                message: reason.into(),
                in_force: true,
            };
            (service, shown)
        });
        let failing = Failing::of(self.failing());
        wire::Troubles {
            shown: fairly(of_pass.chain(of_ports).collect()),
            failing: failing.hashes().to_vec(),
            failing_services: u32::try_from(self.failing_services()).unwrap_or(u32::MAX),
        }
    }

    /// Logs what is new in comparison with `before`, and what is over. Returns whether something is.
    fn log_news(&self, before: &Self) -> bool {
        let news = self.0.iter();
        let news = news.filter(|(service, trouble)| before.of(service) != Some(*trouble));
        let mut more = 0;
        for (number, (service, trouble)) in news.enumerate() {
            if number < MAX_SHOWN {
                log_trouble(service, trouble);
            } else {
                more += 1;
            }
        }
        let ended = before.0.keys().filter(|service| self.of(service).is_none());
        let ended = ended.count();
        if more > 0 {
            log_more(more);
        }
        if ended > 0 {
            log_ended(ended);
        }
        ended > 0
    }
}

fn log_trouble(service: &ServiceId, trouble: &Trouble) {
    let reason = trouble.reason();
    warn!(%service, reason, "{}", trouble.message());
}

fn log_more(more: usize) {
    warn!(
        more,
        "more Services are not in the kernel as their objects ask"
    );
}

fn log_ended(ended: usize) {
    info!(
        ended,
        "Services are in the kernel as their objects ask again, or are gone"
    );
}

/// The first few: each namespace has one of them before another has two, so that none hides the others.
fn fairly(all: Vec<(&ServiceId, wire::ServiceTrouble)>) -> Vec<wire::ServiceTrouble> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranked: Vec<_> = all
        .into_iter()
        .map(|(service, shown)| {
            let rank = seen.entry(&service.namespace).or_default();
            *rank += 1;
            (*rank, shown)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let shown = ranked.into_iter().take(MAX_SHOWN);
    shown.map(|(_, shown)| shown).collect()
}

impl<K: Kernel> Programmer<K> {
    /// Assigns the results of a pass to Services.
    pub(super) fn note_troubles(&mut self, covered: Covered, outcome: &mut Outcome) {
        let plan = self.plans.plan();
        let Covered {
            services,
            fallbacks,
        } = covered;
        let fallbacks = fallbacks.into_iter();
        let fallbacks = fallbacks.map(|(service, asked)| (service, Trouble::Scheduler(asked)));
        let mut troubles: BTreeMap<_, _> = fallbacks.collect();
        troubles.append(&mut outcome.of_services);
        if !outcome.refused.is_empty() {
            let last = self.last_network.as_ref().map(|network| &network.host);
            // After a failure there is no shadow.
            let host = self.host().or(last);
            let (endpoints, others) = of_endpoints(&plan, host, &outcome.refused);
            troubles.extend(endpoints);
            for (server, refused) in others {
                let action = format!("add {} to {server}", refused.backend);
                let families = [Family::of(server.address)];
                outcome.fail(&KernelError::new(&action, &refused.reason), &families);
            }
        }
        let found = Found {
            covered: services,
            troubles,
            unread: unread(&plan),
        };
        let troubles = if outcome.failed == 0 {
            self.troubles.after(found)
        } else {
            let is_planned = |service: &ServiceId| plan.head(service).is_some();
            self.troubles.after_failure(found, is_planned)
        };
        if !troubles.is_empty() && troubles.is_of_the_node(plan.heads().map(|(service, _)| service))
        {
            let failing = troubles.failing_services();
            let reason = format!(
                "{failing} Services of most namespaces are not in force, more than the objects of one tenant cause; \
                 check the kernel's log, and whether the agent is older than the controller"
            );
            outcome.fail(
                &KernelError::new("program Services", &reason),
                &Family::BOTH,
            );
        }
        if troubles != *self.troubles {
            outcome.resolved = troubles.log_news(&self.troubles);
            self.troubles = Arc::new(troubles);
        }
    }
}

/// The Services of refused real servers, and the rest, which belongs to no Service.
fn of_endpoints(
    plan: &NodePlan,
    host: Option<&HostNetwork>,
    refused: &BTreeMap<VirtualServerKey, Refused>,
) -> (
    BTreeMap<ServiceId, Trouble>,
    BTreeMap<VirtualServerKey, Refused>,
) {
    let mut of_services = BTreeMap::new();
    let mut rest = refused.clone();
    let nothing = HostNetwork::default();
    for Owned { place, service, .. } in owned(plan, host.unwrap_or(&nothing)) {
        if let Some(Refused { backend, reason }) = refused.get(&place) {
            let trouble = Trouble::Endpoint {
                endpoint: backend.to_string(),
                reason: reason.clone(),
            };
            of_services.insert(service.clone(), trouble);
            rest.remove(&place);
        }
    }
    (of_services, rest)
}

/// The Services with an entry that cannot be read.
fn unread(plan: &NodePlan) -> BTreeMap<ServiceId, Trouble> {
    let of_service = |key: &EntryKey| {
        let entry = key.to_string();
        Some((key.service()?.clone(), Trouble::Unreadable { entry }))
    };
    plan.unread().filter_map(of_service).collect()
}

#[cfg(test)]
#[path = "troubles_tests.rs"]
mod tests;
