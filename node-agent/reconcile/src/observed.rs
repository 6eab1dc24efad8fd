//! The observed kernel state: Portolan's own objects, and what they depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::Family;

use crate::rules::ObservedRules;
use crate::{
    Desired, HostNetwork, IpvsOp, LinkOp, Op, PolicyRule, RealServers, Route, SetEntry, SetId,
    SetKind, SetOp, SetRole, SysctlOp, Timeouts, VirtualServer, VirtualServerKey,
};

/// The kernel's state. It is read once and then updated with every operation that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether Portolan's device exists and is up.
    pub device_up: bool,
    /// All virtual servers with an address, including those of other programs.
    pub virtual_servers: BTreeMap<VirtualServerKey, VirtualServer>,
    /// Schedulers that the kernel is known to have, in addition to those in use.
    pub loaded_schedulers: BTreeSet<Arc<str>>,
    /// The timeouts of IPVS connections.
    pub timeouts: Timeouts,
    /// Portolan's sets.
    pub sets: BTreeMap<SetId, ObservedSet>,
    /// Those of [`LEFTOVER_SETS`](crate::LEFTOVER_SETS) that exist.
    pub leftover_sets: BTreeSet<&'static str>,
    /// Portolan's routes.
    pub routes: BTreeSet<Route>,
    /// Portolan's policy routing rules.
    pub policy: BTreeSet<PolicyRule>,
    /// Portolan's iptables rules.
    pub rules: BTreeMap<Family, ObservedRules>,
    /// Families whose rules could not be read, with the error. Rules are never written while the existing ones are
    /// unknown.
    pub unread_rules: BTreeMap<Family, String>,
    /// The values of the kernel settings that were read, by name.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// The rest of the node's network.
    pub host: HostNetwork,
}

/// The observed links, addresses and routes: Portolan's objects, and the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether Portolan's device exists and is up.
    pub device_up: bool,
    /// Portolan's routes.
    pub routes: BTreeSet<Route>,
    /// Portolan's policy routing rules.
    pub policy: BTreeSet<PolicyRule>,
    /// The rest of the network.
    pub host: HostNetwork,
}

/// A set in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedSet {
    /// Its kind; `None` for a type that Portolan never creates, or a family that does not match its name.
    pub kind: Option<SetKind>,
    /// The maximum number of entries.
    pub max_elements: u32,
    /// The timeout in seconds after which the kernel removes an entry; `None` if entries do not expire.
    pub timeout_seconds: Option<u32>,
    /// Its entries.
    pub entries: BTreeSet<SetEntry>,
}

impl Observed {
    /// The observed links, addresses and routes.
    pub fn network(&self) -> Network {
        Network {
            device_up: self.device_up,
            routes: self.routes.clone(),
            policy: self.policy.clone(),
            host: self.host.clone(),
        }
    }

    /// Replaces the known links, addresses and routes with newly observed ones.
    pub fn set_network(&mut self, network: Network) {
        self.device_up = network.device_up;
        self.routes = network.routes;
        self.policy = network.policy;
        self.host = network.host;
    }

    /// The virtual servers that Portolan's sets let through. If the ownership record is lost, these are the owned
    /// ones.
    pub fn answering(&self) -> impl Iterator<Item = VirtualServerKey> {
        let own = self
            .sets
            .iter()
            .filter(|(id, _)| id.role == SetRole::Frontend);
        own.flat_map(|(_, set)| &set.entries)
            .filter_map(|entry| match *entry {
                SetEntry::AddressPort {
                    address,
                    protocol,
                    port,
                } => Some(VirtualServerKey {
                    address,
                    port,
                    protocol,
                }),
                SetEntry::Net(_)
                | SetEntry::AddressPortSource { .. }
                | SetEntry::AddressPortNet { .. }
                | SetEntry::Port(_) => None,
            })
    }

    /// All schedulers that the kernel is known to have.
    pub fn schedulers(&self) -> BTreeSet<&Arc<str>> {
        let used = self.virtual_servers.values();
        let used = used.map(|server| &server.scheduler);
        self.loaded_schedulers.iter().chain(used).collect()
    }

    /// Makes virtual servers that match the plan share its memory, so that they need none of their own.
    pub fn share(&mut self, desired: &Desired) {
        // Both are in order, so this needs no look-ups.
        let mut wanted = desired.virtual_servers.iter().peekable();
        for (key, held) in &mut self.virtual_servers {
            while wanted.next_if(|(other, _)| *other < key).is_some() {}
            if let Some((_, wanted)) = wanted.next_if(|(other, _)| *other == key) {
                held.share(wanted);
            }
        }
    }

    fn share_one(&mut self, key: &VirtualServerKey, desired: &Desired) {
        let held = self.virtual_servers.get_mut(key);
        if let (Some(held), Some(wanted)) = (held, desired.virtual_servers.get(key)) {
            held.share(wanted);
        }
    }

    /// Updates the state with an operation that succeeded.
    pub fn note(&mut self, op: &Op) {
        match op {
            Op::Sysctl(SysctlOp { name, value }) => {
                self.sysctls.insert(name.clone(), value.clone());
            }
            Op::Link(op) => self.note_link(op),
            Op::Set(op) => self.note_set(op),
            Op::Rules(op) => {
                self.rules.insert(op.family, (*op.rules).clone());
            }
            Op::Scheduler(op) => {
                self.loaded_schedulers.insert(op.scheduler.clone());
            }
            Op::Ipvs(op) => self.note_ipvs(op),
        }
    }

    fn note_link(&mut self, op: &LinkOp) {
        match op {
            LinkOp::RaiseDevice { .. } => self.device_up = true,
            // The device is part of `host`, which is read again.
            LinkOp::RetireDevice { .. } => {}
            LinkOp::RemoveDevice { .. } => {
                self.device_up = false;
                let stays = |route: &Route| matches!(route, Route::Deliver { .. });
                self.routes.retain(stays);
            }
            LinkOp::AddRoute { route, .. } => {
                self.routes.retain(|old| !route.replaces(old));
                self.routes.insert(**route);
            }
            LinkOp::DeleteRoute { route, .. } => {
                self.routes.remove(route);
            }
            LinkOp::AddPolicyRule { rule } => {
                self.policy.insert(*rule);
            }
            LinkOp::DeletePolicyRule { rule } => {
                self.policy.remove(rule);
            }
        }
    }

    /// Updates the state with operations that succeeded, in order. Consecutive additions of real servers to one
    /// virtual server cost one look-up. Changed virtual servers that now match `wanted` share its memory.
    pub fn note_all(&mut self, ops: &[Op], wanted: &Desired) {
        let of = |op: &Op| match op {
            Op::Ipvs(op) => {
                let is_addition = matches!(op, IpvsOp::AddRealServer { .. });
                op.server().map(|server| (*server, is_addition))
            }
            _ => None,
        };
        for run in ops.chunk_by(|left, right| of(left).is_some() && of(left) == of(right)) {
            let changed = run.first().and_then(of);
            match changed {
                Some((server, true)) => self.note_real_servers(&server, run),
                _ => run.iter().for_each(|op| self.note(op)),
            }
            if let Some((server, _)) = changed {
                self.share_one(&server, wanted);
            }
        }
    }

    fn note_real_servers(&mut self, server: &VirtualServerKey, added: &[Op]) {
        let Some(held) = self.virtual_servers.get_mut(server) else {
            return;
        };
        // Reserve only what is needed: most virtual servers never change.
        if held.real_servers.is_empty() {
            held.real_servers.reserve(added.len());
        }
        held.real_servers
            .extend(added.iter().filter_map(|op| match op {
                Op::Ipvs(IpvsOp::AddRealServer {
                    backend, weight, ..
                }) => Some((*backend, *weight)),
                _ => None,
            }));
    }

    fn note_set(&mut self, op: &SetOp) {
        match op {
            SetOp::Create { set, max_elements } => {
                let empty = BTreeSet::new();
                let created = ObservedSet {
                    kind: Some(set.role.kind()),
                    max_elements: *max_elements,
                    timeout_seconds: set.role.timeout_seconds(),
                    entries: empty,
                };
                self.sets.insert(*set, created);
            }
            SetOp::Replace {
                set,
                max_elements,
                entries,
            } => {
                let entries = entries.iter().copied().collect();
                self.sets.insert(
                    *set,
                    ObservedSet {
                        kind: Some(set.role.kind()),
                        max_elements: *max_elements,
                        timeout_seconds: set.role.timeout_seconds(),
                        entries,
                    },
                );
            }
            SetOp::AddEntry { set, entry } => {
                if let Some(set) = self.sets.get_mut(set) {
                    set.entries.insert(*entry);
                }
            }
            SetOp::DeleteEntry { set, entry } => {
                if let Some(set) = self.sets.get_mut(set) {
                    set.entries.remove(entry);
                }
            }
            SetOp::Destroy { set } => {
                self.sets.remove(set);
            }
            SetOp::DestroyLeftover { name } => {
                self.leftover_sets.remove(name);
            }
        }
    }

    fn note_ipvs(&mut self, op: &IpvsOp) {
        match op {
            IpvsOp::SetTimeouts { timeouts } => self.timeouts = self.timeouts.with(timeouts),
            IpvsOp::AddVirtualServer { server, scheduling } => {
                let bare = scheduling.clone().over(RealServers::new());
                self.virtual_servers.insert(*server, bare);
            }
            IpvsOp::EditVirtualServer { server, scheduling } => {
                if let Some(held) = self.virtual_servers.get_mut(server) {
                    let real_servers = std::mem::take(&mut held.real_servers);
                    *held = scheduling.clone().over(real_servers);
                }
            }
            IpvsOp::DeleteVirtualServer { server } => {
                self.virtual_servers.remove(server);
            }
            IpvsOp::AddRealServer {
                server,
                backend,
                weight,
            }
            | IpvsOp::EditRealServer {
                server,
                backend,
                weight,
            } => {
                if let Some(held) = self.virtual_servers.get_mut(server) {
                    held.real_servers.insert(*backend, *weight);
                }
            }
            IpvsOp::DeleteRealServer { server, backend } => {
                if let Some(held) = self.virtual_servers.get_mut(server) {
                    held.real_servers.remove(backend);
                }
            }
        }
    }
}
