//! From what is to what should be: operations in phases whose order keeps traffic flowing.
//!
//! Additions go before removals, and each thing before what leads traffic to it: sets that
//! masquerade or guard, rules, virtual servers with all their backends, `FRONTEND`, what refuses, routes and policy
//! rules. Removals follow in reverse, and last the changes of schedulers. A virtual server with endpoints is
//! never empty in between (S-186).

mod servers;

use std::collections::BTreeMap;

use portolan_plan::Family;

use crate::route::Route;
use crate::rules::{ObservedRules, restore_text};
use crate::{
    Desired, DesiredSet, IpvsOp, LinkOp, Observed, ObservedSet, Op, Owned, RulesOp, SetId, SetOp,
    SetRole, SysctlOp, sysctls,
};

/// A step of a batch. Operations of one phase do not depend on each other's order but for real
/// servers, which follow their virtual server, and for scheduler changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Entries of `HOLD` that a pass before left behind: their clients wait for no reason.
    Release,
    /// Kernel settings, the device, schedulers.
    Ground,
    /// Sets that should exist.
    CreateSets,
    /// Entries of `ALLOW`: before what they are exceptions of.
    Admit,
    /// Entries that masquerade, and that keep clients out.
    Guard,
    /// Cluster IPs that nothing leads to yet, while there is no policy rule: they need no rules, whose
    /// tools take a while to start.
    Hidden,
    /// Rules.
    Rules,
    /// Virtual servers that the cluster needs to come up, with their real servers.
    BootCritical,
    /// All other virtual servers with their real servers.
    Servers,
    /// Entries of `FRONTEND`: these answer.
    Answer,
    /// Entries of `REFUSE` and `RANGES`.
    Refuse,
    /// Routes.
    Route,
    /// Policy rules: packets arrive.
    Lead,
    /// Policy rules that go.
    Unlead,
    /// Routes that go.
    Unroute,
    /// Entries of `REFUSE` and `RANGES` that go.
    Unrefuse,
    /// Entries of `FRONTEND` that go.
    Unanswer,
    /// Real servers that take no new connections any more.
    Drain,
    /// Real and virtual servers that go.
    RemoveServers,
    /// Entries that masquerade, and that keep clients out, that go.
    Unguard,
    /// Entries of `ALLOW` that go.
    Unadmit,
    /// Sets of ours that no rule uses any more.
    DestroySets,
    /// Scheduler changes, in order: hold, edit, release for one virtual server after the other. Last,
    /// because each takes a while and nothing else has to wait for it.
    Reschedule,
}

impl Phase {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Ground => "ground",
            Self::CreateSets => "create sets",
            Self::Admit => "admit",
            Self::Guard => "guard",
            Self::Hidden => "hidden servers",
            Self::Rules => "rules",
            Self::BootCritical => "boot-critical servers",
            Self::Servers => "servers",
            Self::Answer => "answer",
            Self::Refuse => "refuse",
            Self::Route => "route",
            Self::Lead => "policy rules",
            Self::Unlead => "remove policy rules",
            Self::Unroute => "unroute",
            Self::Unrefuse => "unrefuse",
            Self::Unanswer => "unanswer",
            Self::Drain => "drain",
            Self::RemoveServers => "remove servers",
            Self::Unguard => "unguard",
            Self::Unadmit => "unadmit",
            Self::DestroySets => "destroy sets",
            Self::Reschedule => "reschedule",
        }
    }

    /// Whether something is taken away that is there.
    pub fn takes_away(self) -> bool {
        match self {
            Self::Release
            | Self::Ground
            | Self::CreateSets
            | Self::Admit
            | Self::Guard
            | Self::Hidden
            | Self::Rules
            | Self::BootCritical
            | Self::Servers
            | Self::Answer
            | Self::Refuse
            | Self::Route
            | Self::Lead
            | Self::Reschedule => false,
            Self::Unlead
            | Self::Unroute
            | Self::Unrefuse
            | Self::Unanswer
            | Self::Drain
            | Self::RemoveServers
            | Self::Unguard
            | Self::Unadmit
            | Self::DestroySets => true,
        }
    }
}

/// The operations that lead from `observed` to `desired`, touching nothing that is not `owned`.
/// Phases without operations are left out; equal states give none at all.
pub fn diff(observed: &Observed, desired: &Desired, owned: &Owned) -> Vec<(Phase, Vec<Op>)> {
    let mut batch = Batch::default();
    ground(&mut batch, observed, desired);
    sets(&mut batch, observed, desired);
    rules(&mut batch, observed, desired);
    servers::servers(&mut batch, observed, desired, owned);
    routes(&mut batch, observed, desired);
    batch.phases.into_iter().collect()
}

#[derive(Default)]
pub(crate) struct Batch {
    phases: BTreeMap<Phase, Vec<Op>>,
}

impl Batch {
    pub(crate) fn push(&mut self, phase: Phase, op: Op) {
        self.phases.entry(phase).or_default().push(op);
    }

    fn loads_rules(&self, of: Family) -> bool {
        let mut rules = self.phases.get(&Phase::Rules).into_iter().flatten();
        rules.any(|op| op.rules().is_some_and(|op| op.family == of))
    }
}

fn ground(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for (name, value) in &desired.sysctls {
        let found = observed.sysctls.get(name);
        if !found.is_some_and(|found| sysctls::is_enough(name, found, value)) {
            let value = sysctls::with_found(name, found.map(|found| &**found), value);
            let name = name.clone();
            batch.push(Phase::Ground, Op::Sysctl(SysctlOp { name, value }));
        }
    }
    let timeouts = desired.timeouts;
    if !timeouts.are_met_by(&observed.timeouts) {
        batch.push(Phase::Ground, Op::Ipvs(IpvsOp::SetTimeouts { timeouts }));
    }
    if !observed.device_up {
        batch.push(
            Phase::Ground,
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
                entries(batch, *set, wanted, &ObservedSet::default());
            }
            // Rules cannot use it as it is, so it goes before they are loaded.
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
                entries(batch, *set, wanted, &ObservedSet::default());
            }
            Some(found) if too_small(found, wanted) || forgets_otherwise(*set, found) => {
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
            Some(found) => entries(batch, *set, wanted, found),
        }
    }
    for name in &observed.leftover_sets {
        batch.push(Phase::DestroySets, Op::Set(SetOp::DestroyLeftover { name }));
    }
}

/// Additions come before removals, so a set must hold both for a moment.
fn too_small(found: &ObservedSet, wanted: &DesiredSet) -> bool {
    let together = found.entries.union(&wanted.entries).count();
    u32::try_from(together).map_or(true, |together| together > found.max_elements)
}

/// A set whose entries live longer or shorter than they should: made by an older agent, or by hand.
fn forgets_otherwise(set: SetId, found: &ObservedSet) -> bool {
    found.timeout_seconds != set.role.timeout_seconds()
}

fn entries(batch: &mut Batch, set: SetId, wanted: &DesiredSet, found: &ObservedSet) {
    let (add, remove) = phases(set.role);
    for entry in wanted.entries.difference(&found.entries) {
        batch.push(add, Op::Set(SetOp::AddEntry { set, entry: *entry }));
    }
    for entry in found.entries.difference(&wanted.entries) {
        batch.push(remove, Op::Set(SetOp::DeleteEntry { set, entry: *entry }));
    }
}

fn phases(role: SetRole) -> (Phase, Phase) {
    match role {
        SetRole::Allow => (Phase::Admit, Phase::Unadmit),
        SetRole::ClusterIp
        | SetRole::Hairpin
        | SetRole::Health
        | SetRole::Masq
        | SetRole::NoLocal
        | SetRole::Guarded
        | SetRole::Pods
        | SetRole::Vips => (Phase::Guard, Phase::Unguard),
        SetRole::Frontend => (Phase::Answer, Phase::Unanswer),
        SetRole::Refuse | SetRole::Ranges => (Phase::Refuse, Phase::Unrefuse),
        SetRole::Hold => (Phase::Release, Phase::Release),
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
                Phase::Rules,
                Op::Rules(RulesOp {
                    family,
                    text,
                    rules,
                }),
            );
        }
    }
}

/// A route comes before the policy rules that lead to it, and goes after them.
fn routes(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let device = || desired.device.clone();
    for route in desired.routes.difference(&observed.routes) {
        let (device, route) = (device(), Box::new(*route));
        batch.push(Phase::Route, Op::Link(LinkOp::AddRoute { device, route }));
    }
    for rule in desired.policy.difference(&observed.policy) {
        batch.push(Phase::Lead, Op::Link(LinkOp::AddPolicyRule { rule: *rule }));
    }
    for rule in observed.policy.difference(&desired.policy) {
        batch.push(
            Phase::Unlead,
            Op::Link(LinkOp::DeletePolicyRule { rule: *rule }),
        );
    }
    let is_replaced = |route: &&Route| desired.routes.iter().any(|wanted| wanted.replaces(route));
    for route in observed.routes.iter().filter(|route| !is_replaced(route)) {
        let (device, route) = (device(), Box::new(*route));
        batch.push(
            Phase::Unroute,
            Op::Link(LinkOp::DeleteRoute { device, route }),
        );
    }
}
