//! The preconditions of operations. Phases order operations; this module holds back an operation whose precondition
//! is missing because an earlier operation failed. A failure therefore never exposes or removes more than necessary.

use std::collections::BTreeMap;

use portolan_plan::{Dataplane, Family};

use crate::new_servers::NO_SCHEDULER;
use crate::reschedule::hold;
use crate::{
    Desired, IpvsOp, LinkOp, Observed, Op, PolicyAction, PolicyRule, RealServerKey, Route, RulesOp,
    SetEntry, SetId, SetOp, SetRole, VirtualServer, VirtualServerKey,
};

/// Splits the operations of a phase into those that are ready for the kernel in its current state, and those that are
/// held back, with the reason.
pub fn ready(
    mut ops: Vec<Op>,
    state: &Observed,
    desired: &Desired,
) -> (Vec<Op>, Vec<(Op, &'static str)>) {
    let mut taking = BTreeMap::new();
    let unscheduled = without_scheduler(&ops, state);
    ops.retain(|op| !depends_on(op, &unscheduled));
    let mut reasons = Vec::new();
    let held_back = ops.extract_if(.., |op| {
        let reason = scheduler_target(op).and_then(|server| unscheduled.get(server).copied());
        let reason = reason
            .or_else(|| missing_guard(op, state, desired))
            .or_else(|| missing_precondition(op, state, desired, &mut taking));
        reasons.extend(reason);
        reason.is_some()
    });
    let held_back: Vec<_> = held_back.collect();
    (ops, held_back.into_iter().zip(reasons).collect())
}

/// The virtual server whose scheduler an operation sets.
fn scheduler_target(op: &Op) -> Option<&VirtualServerKey> {
    match op {
        Op::Ipvs(
            IpvsOp::AddVirtualServer { server, .. } | IpvsOp::EditVirtualServer { server, .. },
        ) => Some(server),
        _ => None,
    }
}

/// The virtual servers that cannot get their desired scheduler: the kernel does not have it, or new connections could
/// not be held during the change (S-101, S-104).
fn without_scheduler(ops: &[Op], state: &Observed) -> BTreeMap<VirtualServerKey, &'static str> {
    let mut servers = BTreeMap::new();
    if ops.iter().all(|op| scheduler_target(op).is_none()) {
        return servers;
    }
    let known = state.schedulers();
    for op in ops {
        let Op::Ipvs(
            IpvsOp::AddVirtualServer { server, scheduling }
            | IpvsOp::EditVirtualServer { server, scheduling },
        ) = op
        else {
            continue;
        };
        let family = Family::of(server.address);
        let held = state.virtual_servers.get(server);
        let changes = held.is_some_and(|held| held.scheduler != scheduling.scheduler);
        if !known.contains(&scheduling.scheduler) {
            servers.insert(*server, NO_SCHEDULER);
        } else if changes
            && !(state.sets.contains_key(&hold(*server).0) && has_rules(state, family))
        {
            let reason = "held back: new connections could not be held during the change";
            servers.insert(*server, reason);
        }
    }
    servers
}

/// Whether an operation is pointless without the scheduler of one of these virtual servers: real servers of a virtual
/// server that is not created, or a hold without a change. The virtual server itself is reported, so these are left
/// out silently.
fn depends_on(op: &Op, unscheduled: &BTreeMap<VirtualServerKey, &'static str>) -> bool {
    match op {
        Op::Ipvs(IpvsOp::AddRealServer { server, .. }) => unscheduled.contains_key(server),
        Op::Set(SetOp::AddEntry { set, entry } | SetOp::DeleteEntry { set, entry }) => {
            set.role == SetRole::Hold && unscheduled.keys().any(|key| hold(*key).1 == *entry)
        }
        _ => false,
    }
}

/// A restricted frontend must not accept connections before the excluded clients are kept out (S-22, S-86).
fn missing_guard(op: &Op, state: &Observed, desired: &Desired) -> Option<&'static str> {
    let Op::Set(SetOp::AddEntry { set, entry }) = op else {
        return None;
    };
    if set.role != SetRole::Frontend {
        return None;
    }
    let lacks = |role| {
        let guard = SetId {
            role,
            family: set.family,
        };
        let wanted = desired.sets.get(&guard);
        let found = state.sets.get(&guard);
        wanted.is_some_and(|set| set.entries.contains(entry))
            && !found.is_some_and(|set| set.entries.contains(entry))
    };
    let is_exposed = lacks(SetRole::Guarded) || lacks(SetRole::NoLocal);
    is_exposed.then_some("held back: clients that must not reach it would not be kept out")
}

/// The missing precondition of an operation. `taking` counts the real servers that still take new connections.
fn missing_precondition(
    op: &Op,
    state: &Observed,
    desired: &Desired,
    taking: &mut BTreeMap<VirtualServerKey, usize>,
) -> Option<&'static str> {
    let (lacks, reason) = match op {
        // If a port were let through without its virtual server, connections would reach the node's own daemons.
        Op::Set(SetOp::AddEntry { set, entry }) if set.role == SetRole::Frontend => (
            !has_real_server(state, desired, entry),
            "held back: its virtual server has no real server",
        ),
        // The iptables tools reject such rules with an error that does not name the cause.
        Op::Rules(RulesOp { family, rules, .. }) if !rules.is_empty() => (
            !has_sets(state, desired, *family),
            "held back: a set that the rules use is missing",
        ),
        Op::Link(LinkOp::AddPolicyRule {
            rule:
                PolicyRule {
                    family,
                    action: PolicyAction::Lookup { table, .. },
                    ..
                },
        }) => (
            !has_delivery_route(state, *family, *table),
            "held back: the table has no route that delivers packets locally",
        ),
        Op::Link(LinkOp::DeleteRoute { route, .. }) => match **route {
            Route::Deliver { family, table } => (
                is_looked_up(state, family, table),
                "held back: a policy rule still uses the table",
            ),
            Route::Range { .. } | Route::Local { .. } => (false, ""),
        },
        Op::Ipvs(IpvsOp::DeleteVirtualServer { server }) => (
            is_let_through(state, desired, server),
            "held back: its port is still let through",
        ),
        // The real servers that replace it are missing.
        Op::Ipvs(
            IpvsOp::DeleteRealServer { server, backend }
            | IpvsOp::EditRealServer {
                server,
                backend,
                weight: 0,
            },
        ) => {
            let held = state.virtual_servers.get(server);
            let weight = held.and_then(|held| held.real_servers.get(backend));
            let takes = weight.is_some_and(|weight| accepts_new(desired, server, backend, weight));
            let left = taking
                .entry(*server)
                .or_insert_with(|| accepting_servers(state, desired, server).count());
            let last = takes && *left <= 1 && is_let_through(state, desired, server);
            *left -= usize::from(takes && !last && *left > 0);
            (last, "held back: it is the last real server")
        }
        _ => (false, ""),
    };
    lacks.then_some(reason)
}

/// Whether a real server takes new connections: all do except draining ones.
fn accepts_new(
    desired: &Desired,
    server: &VirtualServerKey,
    backend: &RealServerKey,
    weight: u32,
) -> bool {
    let is_wanted = |wanted: &VirtualServer| wanted.real_servers.contains_key(backend);
    weight != 0 || desired.virtual_servers.get(server).is_some_and(is_wanted)
}

/// The real servers of a virtual server that take new connections.
fn accepting_servers(
    state: &Observed,
    desired: &Desired,
    server: &VirtualServerKey,
) -> impl Iterator<Item = RealServerKey> {
    let held = state.virtual_servers.get(server);
    let held = held.into_iter().flat_map(|held| held.real_servers.iter());
    let accepting = held.filter(|(backend, weight)| accepts_new(desired, server, backend, *weight));
    accepting.map(|(backend, _)| backend)
}

/// Whether this table has the route that delivers packets locally.
fn has_delivery_route(state: &Observed, family: Family, table: u32) -> bool {
    state.routes.contains(&Route::Deliver { family, table })
}

/// Whether a policy rule uses this table.
fn is_looked_up(state: &Observed, family: Family, table: u32) -> bool {
    let mut rules = state.policy.iter();
    rules.any(|rule| {
        let to = match rule.action {
            PolicyAction::Lookup { table, .. } => Some(table),
            PolicyAction::Skip { .. } | PolicyAction::Nop => None,
        };
        rule.family == family && to == Some(table)
    })
}

fn has_rules(state: &Observed, family: Family) -> bool {
    let rules = state.rules.get(&family);
    rules.is_some_and(|rules| !rules.is_empty())
}

fn has_sets(state: &Observed, desired: &Desired, family: Family) -> bool {
    let mut wanted = desired.sets.keys().filter(|set| set.family == family);
    wanted.all(|set| state.sets.contains_key(set))
}

/// Whether a real server takes the connections that this entry lets through.
fn has_real_server(state: &Observed, desired: &Desired, entry: &SetEntry) -> bool {
    let server = entry.server();
    server.is_none_or(|server| accepting_servers(state, desired, &server).next().is_some())
}

/// Whether clients of this virtual server depend on it. With another dataplane, its rules come first.
fn is_let_through(state: &Observed, desired: &Desired, server: &VirtualServerKey) -> bool {
    if desired.dataplane != Dataplane::Ipvs {
        return false;
    }
    let id = SetId {
        role: SetRole::Frontend,
        family: Family::of(server.address),
    };
    let entry = SetEntry::of(*server);
    state
        .sets
        .get(&id)
        .is_some_and(|set| set.entries.contains(&entry))
}
