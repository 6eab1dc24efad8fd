//! Removes the IPVS dataplane from a node with another one.
//!
//! Connections that IPVS knows continue until they end: their virtual servers stay, without weight, and with them
//! everything that leads packets there. New connections never get there, because the rules of the other dataplane come
//! first. When no virtual server is left, all of the rest is removed: packets stop arriving first, and sets are removed
//! after the rules that use them.

use std::collections::BTreeSet;

use super::servers;
use crate::phase::{Batch, Phase};
use crate::rules::cleanup_text;
use crate::{
    Desired, LinkOp, Observed, Op, Owned, RulesOp, SetEntry, SetOp, SetRole, VirtualServerKey,
};

pub(super) fn remove(batch: &mut Batch, observed: &Observed, desired: &Desired, owned: &Owned) {
    servers::former(batch, observed, desired, owned);
    let drains =
        |server: &VirtualServerKey| owned.contains(server) && desired.resting.contains(server);
    let held = observed.virtual_servers.iter();
    let held = held.filter(|(server, held)| drains(server) && !held.real_servers.is_empty());
    let draining: BTreeSet<SetEntry> = held.map(|(server, _)| SetEntry::of(*server)).collect();
    if !draining.is_empty() {
        entries(batch, observed, &draining);
        return;
    }
    network(batch, observed, desired);
    rules(batch, observed);
    sets(batch, observed);
}

/// While some virtual servers drain, packets to others must not be led to IPVS, where the node's own programs would get
/// them. The other dataplane has guards of its own, and those of before would drop packets whatever the plan says now.
fn entries(batch: &mut Batch, observed: &Observed, draining: &BTreeSet<SetEntry>) {
    for (set, held) in &observed.sets {
        let (phase, kept) = match set.role {
            SetRole::Frontend => (Phase::RemoveFrontends, Some(draining)),
            SetRole::Guarded => (Phase::RemoveGuards, None),
            _ => continue,
        };
        let stays = |entry: &&SetEntry| kept.is_some_and(|kept| kept.contains(entry));
        for entry in held.entries.iter().filter(|entry| !stays(entry)) {
            let (set, entry) = (*set, *entry);
            batch.push(phase, Op::Set(SetOp::DeleteEntry { set, entry }));
        }
    }
}

fn network(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for rule in &observed.policy {
        let op = Op::Link(LinkOp::DeletePolicyRule { rule: *rule });
        batch.push(Phase::RemovePolicyRules, op);
    }
    let device = || desired.device.clone();
    for route in &observed.routes {
        let (device, route) = (device(), Box::new(*route));
        let op = Op::Link(LinkOp::DeleteRoute { device, route });
        batch.push(Phase::RemoveRoutes, op);
    }
    // One that is down may belong to another program, as in `cleanup`.
    if observed.device_up {
        let op = Op::Link(LinkOp::RemoveDevice { device: device() });
        batch.push(Phase::RemoveDevice, op);
    }
}

fn rules(batch: &mut Batch, observed: &Observed) {
    for (family, rules) in &observed.rules {
        if let Some(text) = cleanup_text(rules) {
            let (family, rules) = (*family, Box::default());
            let op = Op::Rules(RulesOp {
                family,
                text,
                rules,
            });
            batch.push(Phase::RemoveRules, op);
        }
    }
}

fn sets(batch: &mut Batch, observed: &Observed) {
    for set in observed.sets.keys() {
        batch.push(Phase::DestroySets, Op::Set(SetOp::Destroy { set: *set }));
    }
    for name in &observed.leftover_sets {
        batch.push(Phase::DestroySets, Op::Set(SetOp::DestroyLeftover { name }));
    }
}
