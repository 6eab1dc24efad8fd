//! Broken nodes: each is a small change of the facts of a healthy one.

mod kernel;
mod others;
mod programmed;
mod state;

use std::net::Ipv4Addr;

use portolan_agent::doctor::facts::{Disk, Module, reverse_path};
use portolan_agent::doctor::{Check, Facts, Level};
use portolan_agent::kernel::linux::{Dump, Variant};
use portolan_plan::{Family, NodePlan, Protocol};
use portolan_reconcile::{InterfaceKind, Network, SetId, SetRole, VirtualServerKey};

use crate::healthy::{address, interface};

/// A problem of a node, and the expected finding.
#[derive(Clone, Copy)]
pub(crate) struct Broken {
    pub(crate) what: &'static str,
    pub(crate) break_it: fn(&mut Facts),
    pub(crate) level: Level,
    pub(crate) check: Check,
    /// A part of the expected remedy.
    pub(crate) remedy: &'static str,
    /// Whether it removes facts that other problems change.
    pub(crate) takes_all: bool,
}

const fn fails(
    what: &'static str,
    check: Check,
    remedy: &'static str,
    break_it: fn(&mut Facts),
) -> Broken {
    Broken {
        what,
        break_it,
        level: Level::Fail,
        check,
        remedy,
        takes_all: false,
    }
}

const fn warns(
    what: &'static str,
    check: Check,
    remedy: &'static str,
    break_it: fn(&mut Facts),
) -> Broken {
    Broken {
        level: Level::Warn,
        ..fails(what, check, remedy, break_it)
    }
}

/// A problem that removes facts that others change.
const fn alone(broken: Broken) -> Broken {
    Broken {
        takes_all: true,
        ..broken
    }
}

/// All problems.
pub(crate) fn all() -> impl Iterator<Item = &'static Broken> {
    let parts = [
        kernel::BROKEN,
        others::BROKEN,
        programmed::BROKEN,
        state::BROKEN,
    ];
    parts.into_iter().flatten()
}

const FRONTEND: SetId = SetId {
    role: SetRole::Frontend,
    family: Family::Ipv4,
};

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

fn module(facts: &mut Facts, name: &str, module: Module) {
    facts.modules.insert(name.into(), module);
}

fn sysctl(facts: &mut Facts, name: &str, value: &str) {
    facts.sysctls.insert(name.into(), value.into());
}

fn network(facts: &mut Facts) -> &mut Network {
    facts.network.as_mut().unwrap()
}

fn disk(facts: &mut Facts) -> &mut Disk {
    facts.state.1.as_mut().unwrap().as_mut().unwrap()
}

fn set_plan(facts: &mut Facts, plan: NodePlan) {
    facts.plan.as_mut().unwrap().as_mut().unwrap().0 = plan;
}

/// Adds an interface with an address and strict reverse path filtering.
fn add_interface(facts: &mut Facts, name: &str, text: &str) {
    let host = &mut network(facts).host;
    host.interfaces.push(interface(name, InterfaceKind::Other));
    host.addresses.push(address(name, text));
    facts.sysctls.insert(reverse_path(name), "1".into());
}

/// Adds a bridge with the pods' gateway.
fn add_bridge(facts: &mut Facts) {
    let host = &mut network(facts).host;
    host.interfaces
        .push(interface("cni0", InterfaceKind::Bridge));
    host.addresses.push(address("cni0", "10.244.1.1/24"));
}

fn dump(facts: &mut Facts, variant: Variant, family: Family, text: Result<String, String>) {
    let dumps = &mut facts.tables.as_mut().unwrap().dumps;
    let mut dumps = dumps.iter_mut();
    let place = |dump: &&mut Dump| (dump.variant, dump.family) == (variant, family);
    dumps.find(place).unwrap().text = text;
}

fn add_rules(facts: &mut Facts, rules: &str) {
    let dumps = &mut facts.tables.as_mut().unwrap().dumps;
    dumps[0].text.as_mut().unwrap().push_str(rules);
}

/// Sets routes and sets to the desired state for the current plan and network.
fn put_routes(facts: &mut Facts) {
    let desired = facts.desired().unwrap();
    network(facts).routes = desired.routes;
    let sets = facts.sets.as_mut().unwrap();
    for (id, wanted) in desired.sets {
        sets.own.get_mut(&id).unwrap().entries = wanted.entries;
    }
}

/// Adds virtual servers of another program outside of the service ranges.
fn add_servers(facts: &mut Facts, count: u32) {
    let servers = facts.servers.as_mut().unwrap();
    for number in 0..count {
        let key = VirtualServerKey {
            address: Ipv4Addr::from(0xcb00_0000 + number).into(),
            port: 80,
            protocol: Protocol::Tcp,
        };
        servers.insert(key, servers.values().next().unwrap().clone());
    }
}
