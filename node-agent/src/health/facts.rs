//! What a plan says of Services that answers and metrics need. A change of a few Services is followed
//! by those alone.

use std::collections::BTreeMap;

use portolan_plan::{Family, Head, HeadPort, NodePlan, Outsiders, Policy, ServiceId};

use super::Checks;
use crate::slot::TakenPlan;

/// Which of a Service's two policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// For cluster IPs.
    Internal,
    /// For all other addresses.
    External,
}

/// How many Services have no endpoint on this node, though that policy is Local.
pub type NoLocal = BTreeMap<(Family, TrafficPolicy), u64>;

/// What is known of a plan's Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub(super) checks: Checks,
    pub(super) no_local: NoLocal,
}

/// What a pass changed of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsChange {
    /// It is this now.
    All(Facts),
    /// Of some Services it was this, and is that.
    Some(Facts, Facts),
}

impl FactsChange {
    /// What of a plan was taken.
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
    /// Those of a plan, or of a part of one.
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

    /// Services that have no endpoint on this node, though their policy is Local.
    pub fn no_local(&self) -> &NoLocal {
        &self.no_local
    }

    /// Follows a change, and tells whether health checks are on other ports now.
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

/// S-71: each Service once, whatever the number of its ports.
fn count(plan: &NodePlan, service: &ServiceId, head: &Head, no_local: &mut NoLocal) {
    for family in Family::BOTH {
        let ports = || head.ports.iter().filter(|port| port.has_family(family));
        let inside = ports().any(|port| refuses_inside(plan, service, port, family));
        let drops = |port: &HeadPort| {
            let external = port.external.map(|list| list.choice(family).outsiders);
            external == Some(Outsiders::Drop)
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
