//! Computes the operations from the observed to the desired state, in phases whose order keeps traffic flowing.
//!
//! Additions come before removals, and each object before the one that routes traffic to it: sets that masquerade or
//! guard, rules, virtual servers with all their backends, `FRONTEND`, `REFUSE` and `RANGES`, routes and policy rules.
//! On a node that captures nothing yet, routes and policy rules follow the boot-critical frontends, so that these are
//! served while thousands of others are added (S-249): their capture begins with their entry of `FRONTEND`.
//! Removals follow in reverse order, and scheduler changes come last. A virtual server with endpoints is never empty
//! in between (S-186).

mod absent;
mod servers;

use std::collections::BTreeMap;

use portolan_plan::Dataplane;

use crate::phase::{Batch, Phase, PhaseWork};
use crate::route::Route;
use crate::rules::{ObservedRules, restore_text};
use crate::{
    Desired, DesiredSet, IpvsOp, LinkOp, Observed, ObservedSet, Op, Owned, RulesOp, SetEntry,
    SetId, SetOp, SetRole, SysctlOp, sysctls,
};

/// The operations that lead from `observed` to `desired`. They change only `owned` objects. Phases without operations
/// are left out; equal states give no phases.
pub fn diff(observed: &Observed, desired: &Desired, owned: &Owned) -> Vec<(Phase, Vec<Op>)> {
    let phases = compare(observed, desired, owned).into_iter();
    let all = |PhaseWork { mut ops, new }| {
        new.operations(desired, usize::MAX)
            .for_each(|new| ops.extend(new));
        ops
    };
    phases.map(|(phase, work)| (phase, all(work))).collect()
}

/// As [`diff`], but the operations of new virtual servers are made later.
pub fn compare(
    observed: &Observed,
    desired: &Desired,
    owned: &Owned,
) -> BTreeMap<Phase, PhaseWork> {
    let mut batch = Batch::default();
    settings(&mut batch, observed, desired);
    if desired.dataplane == Dataplane::Ipvs {
        ground(&mut batch, observed, desired);
        sets(&mut batch, observed, desired);
        rules(&mut batch, observed, desired);
        servers::servers(&mut batch, observed, desired, owned);
        routes(&mut batch, observed, desired);
    } else {
        absent::remove(&mut batch, observed, desired, owned);
    }
    batch.phases
}

fn settings(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for (name, value) in &desired.sysctls {
        let found = observed.sysctls.get(name);
        if !found.is_some_and(|found| sysctls::is_enough(name, found, value)) {
            let (name, value) = (name.clone(), value.clone());
            batch.push(Phase::Prepare, Op::Sysctl(SysctlOp { name, value }));
        }
    }
}

fn ground(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let timeouts = desired.timeouts;
    if !timeouts.are_met_by(&observed.timeouts) {
        batch.push(Phase::Prepare, Op::Ipvs(IpvsOp::SetTimeouts { timeouts }));
    }
    if !observed.device_up {
        batch.push(
            Phase::Prepare,
            Op::Link(LinkOp::RaiseDevice {
                device: desired.device.clone(),
            }),
        );
    }
}

fn sets(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for (set, wanted) in &desired.sets {
        match observed.sets.get(set) {
            None => {
                let max_elements = wanted.max_elements;
                batch.push(
                    Phase::CreateSets,
                    Op::Set(SetOp::Create {
                        set: *set,
                        max_elements,
                    }),
                );
                entries(batch, *set, wanted, &ObservedSet::default(), desired);
            }
            // Rules cannot use a set of another type, so it is replaced before they are loaded.
            Some(found) if found.kind != Some(set.role.kind()) => {
                let max_elements = wanted.max_elements;
                batch.push(
                    Phase::CreateSets,
                    Op::Set(SetOp::Replace {
                        set: *set,
                        max_elements,
                        entries: Vec::new(),
                    }),
                );
                entries(batch, *set, wanted, &ObservedSet::default(), desired);
            }
            Some(found) if too_small(found, wanted) || has_other_timeout(*set, found) => {
                let (add, _) = phases(set.role);
                let entries = wanted.entries.iter().copied().collect();
                let max_elements = wanted.max_elements;
                batch.push(
                    add,
                    Op::Set(SetOp::Replace {
                        set: *set,
                        max_elements,
                        entries,
                    }),
                );
            }
            Some(found) => entries(batch, *set, wanted, found, desired),
        }
    }
    for name in &observed.leftover_sets {
        batch.push(Phase::DestroySets, Op::Set(SetOp::DestroyLeftover { name }));
    }
}

/// Additions come before removals, so a set must temporarily hold both.
fn too_small(found: &ObservedSet, wanted: &DesiredSet) -> bool {
    let together = found.entries.union(&wanted.entries).count();
    u32::try_from(together).map_or(true, |together| together > found.max_elements)
}

/// Whether the timeout of a set's entries differs from the desired one, because an older agent or a person created
/// the set.
fn has_other_timeout(set: SetId, found: &ObservedSet) -> bool {
    found.timeout_seconds != set.role.timeout_seconds()
}

fn entries(
    batch: &mut Batch,
    set: SetId,
    wanted: &DesiredSet,
    found: &ObservedSet,
    desired: &Desired,
) {
    let (add, remove) = phases(set.role);
    let is_first = |entry: &SetEntry| {
        let server = entry.server();
        server.is_some_and(|server| desired.boot_critical.contains(&server))
    };
    for entry in wanted.entries.difference(&found.entries) {
        let add = match set.role {
            SetRole::Frontend if is_first(entry) => Phase::AddBootCriticalFrontends,
            _ => add,
        };
        batch.push(add, Op::Set(SetOp::AddEntry { set, entry: *entry }));
    }
    for entry in found.entries.difference(&wanted.entries) {
        batch.push(remove, Op::Set(SetOp::DeleteEntry { set, entry: *entry }));
    }
}

fn phases(role: SetRole) -> (Phase, Phase) {
    match role {
        SetRole::Allow => (Phase::AddAllowedSources, Phase::RemoveAllowedSources),
        SetRole::ClusterIp
        | SetRole::Hairpin
        | SetRole::Health
        | SetRole::Masq
        | SetRole::NoLocal
        | SetRole::Guarded
        | SetRole::Pods
        | SetRole::Vips => (Phase::AddGuards, Phase::RemoveGuards),
        SetRole::Frontend => (Phase::AddFrontends, Phase::RemoveFrontends),
        SetRole::Refuse | SetRole::Ranges | SetRole::Balancers => {
            (Phase::AddRejects, Phase::RemoveRejects)
        }
        SetRole::Hold => (Phase::ReleaseHolds, Phase::ReleaseHolds),
    }
}

fn rules(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let nothing = ObservedRules::default();
    let unread = |family| observed.unread_rules.contains_key(&family);
    for rules in desired.rules.iter().filter(|rules| !unread(rules.family)) {
        let found = observed.rules.get(&rules.family).unwrap_or(&nothing);
        if found.is_empty() && desired.idle.contains(&rules.family) {
            continue;
        }
        if let Some(text) = restore_text(rules, found) {
            let (family, rules) = (rules.family, Box::new(rules.expected()));
            batch.push(
                Phase::LoadRules,
                Op::Rules(RulesOp {
                    family,
                    text,
                    rules,
                }),
            );
        }
    }
}

/// Whether no packet is routed to IPVS, nor marked for that.
fn captures_nothing(observed: &Observed) -> bool {
    let is_empty = |(id, set): (&SetId, &ObservedSet)| {
        !matches!(id.role, SetRole::Frontend | SetRole::Refuse) || set.entries.is_empty()
    };
    observed.policy.is_empty() && observed.routes.is_empty() && observed.sets.iter().all(is_empty)
}

/// A route is added before the policy rules that use it, and removed after them.
fn routes(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let (add_route, add_rule) = if captures_nothing(observed) {
        (Phase::AddFirstRoutes, Phase::AddFirstPolicyRules)
    } else {
        (Phase::AddRoutes, Phase::AddPolicyRules)
    };
    let device = || desired.device.clone();
    for route in desired.routes.difference(&observed.routes) {
        let (device, route) = (device(), Box::new(*route));
        batch.push(add_route, Op::Link(LinkOp::AddRoute { device, route }));
    }
    for rule in desired.policy.difference(&observed.policy) {
        batch.push(add_rule, Op::Link(LinkOp::AddPolicyRule { rule: *rule }));
    }
    for rule in observed.policy.difference(&desired.policy) {
        batch.push(
            Phase::RemovePolicyRules,
            Op::Link(LinkOp::DeletePolicyRule { rule: *rule }),
        );
    }
    let is_replaced = |route: &&Route| desired.routes.iter().any(|wanted| wanted.replaces(route));
    for route in observed.routes.iter().filter(|route| !is_replaced(route)) {
        let (device, route) = (device(), Box::new(*route));
        batch.push(
            Phase::RemoveRoutes,
            Op::Link(LinkOp::DeleteRoute { device, route }),
        );
    }
}
