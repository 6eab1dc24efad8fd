//! Facts about the plan's Services for health responses and metrics. A change of a few Services updates only the
//! facts of these.

use std::collections::BTreeMap;

use portolan_plan::{ExternalClients, Family, Head, HeadPort, NodePlan, Policy, ServiceId};

use super::Checks;
use crate::plan_watch::TakenPlan;

/// The two traffic policies of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// `internalTrafficPolicy`, for cluster IPs.
    Internal,
    /// `externalTrafficPolicy`, for all other addresses.
    External,
}

/// The number of Services with this policy `Local` and no endpoint on this node.
pub type NoLocal = BTreeMap<(Family, TrafficPolicy), u64>;

/// Facts about a plan's Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub(super) checks: Checks,
    pub(super) no_local: NoLocal,
}

/// The change of the facts by a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsChange {
    /// The new facts of all Services.
    All(Facts),
    /// The facts of some Services before and after.
    Some(Facts, Facts),
}

impl FactsChange {
    /// The change that results from this plan or part of a plan.
    pub(crate) fn of(taken: &TakenPlan) -> Self {
        match taken {
            TakenPlan::Whole(plan) => Self::All(Facts::of(plan)),
            TakenPlan::Part { before, after, .. } => {
                Self::Some(Facts::of(before), Facts::of(after))
            }
        }
    }
}

impl Facts {
    /// The facts of a plan or a part of one.
    pub fn of(plan: &NodePlan) -> Self {
        let mut no_local = NoLocal::new();
        for (service, head) in plan.heads() {
            count(plan, service, head, &mut no_local);
        }
        Self {
            checks: Checks::of(plan),
            no_local,
        }
    }

    /// The numbers of Services with policy `Local` and no endpoint on this node.
    pub fn no_local(&self) -> &NoLocal {
        &self.no_local
    }

    /// Applies a change. Returns whether the set of health check ports changed.
    pub(super) fn follow(&mut self, change: FactsChange) -> bool {
        match change {
            FactsChange::All(all) => {
                self.no_local = all.no_local;
                self.checks.replace_all(all.checks)
            }
            FactsChange::Some(before, after) => {
                for (key, count) in before.no_local {
                    let held = self.no_local.entry(key).or_default();
                    *held = held.saturating_sub(count);
                }
                for (key, count) in after.no_local {
                    *self.no_local.entry(key).or_default() += count;
                }
                self.checks.replace(&before.checks, after.checks)
            }
        }
    }
}

/// Counts each Service once, regardless of its number of ports (S-71).
fn count(plan: &NodePlan, service: &ServiceId, head: &Head, no_local: &mut NoLocal) {
    for family in Family::BOTH {
        let ports = || head.ports.iter().filter(|port| port.has_family(family));
        let inside = ports().any(|port| refuses_inside(plan, service, port, family));
        let drops = |port: &HeadPort| {
            let external = port
                .external
                .map(|list| list.choice(family).external_clients);
            external == Some(ExternalClients::Drop)
        };
        let outside = ports().any(drops);
        for (policy, has_none) in [
            (TrafficPolicy::Internal, inside),
            (TrafficPolicy::External, outside),
        ] {
            if has_none {
                *no_local.entry((family, policy)).or_default() += 1;
            }
        }
    }
}

fn refuses_inside(plan: &NodePlan, service: &ServiceId, port: &HeadPort, family: Family) -> bool {
    let list = &port.internal;
    let backends = || plan.backends(service, port, list, family);
    list.policy == Policy::Local && backends().is_none_or(|list| list.is_empty())
}
