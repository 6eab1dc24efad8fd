//! A model of the kernel that refuses the same operations as the real one, for tests of all code that writes to it.

use std::collections::BTreeSet;

use portolan_plan::Family;
use thiserror::Error;

use crate::{
    Connections, Flow, IpvsOp, LinkOp, Observed, ObservedSet, Op, RealServerKey, Route, SetEntry,
    SetId, SetOp, Timeouts, VirtualServerKey,
};

/// The schedulers of a kernel built with all of them.
const SCHEDULERS: [&str; 13] = [
    "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf",
];

/// The maximum connection timeout in seconds, for a clock of 1000 ticks per second.
const MAX_TIMEOUT: u32 = 2_147_483;

/// Why the kernel refused an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The object already exists.
    #[error("File exists")]
    Exists,
    /// The object does not exist.
    #[error("No such file or directory")]
    NotFound,
    /// A rule uses the set.
    #[error("Set is in use")]
    InUse,
    /// The set is at its capacity.
    #[error("Set is full")]
    Full,
    /// A rule names a missing set, an entry is of another family than its set, or a timeout is longer than the clock
    /// can count.
    #[error("Invalid argument")]
    Invalid,
    /// The device of a route is not up.
    #[error("Nexthop device is not up")]
    DeviceDown,
}

/// A kernel in memory.
#[derive(Debug, Clone, Default)]
pub struct ModelKernel {
    /// The state of the kernel.
    pub state: Observed,
    /// Every operation that succeeded, in order.
    pub log: Vec<Op>,
    /// The connection counts of real servers; a real server without an entry has none.
    pub connections: Connections,
    /// The UDP flows in its connection tracking.
    pub flows: BTreeSet<Flow>,
}

impl ModelKernel {
    /// Whether the kernel has a scheduler.
    pub fn has_scheduler(name: &str) -> bool {
        SCHEDULERS.contains(&name)
    }

    /// Applies one operation.
    ///
    /// # Errors
    /// [`Refusal`], like the real kernel; the state is then unchanged.
    pub fn apply(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Sysctl(_) => {}
            Op::Link(op) => self.link(op)?,
            Op::Set(op) => self.set(op)?,
            Op::Rules(op) => self.rules(op.family, &op.text)?,
            Op::Scheduler(op) => has(&op.scheduler)?,
            Op::Ipvs(op) => self.ipvs(op)?,
        }
        self.state.note(op);
        self.log.push(op.clone());
        Ok(())
    }

    /// The connection counts of the real servers of these virtual servers; virtual servers that do not exist are left
    /// out.
    pub fn connections(&self, servers: &[VirtualServerKey]) -> Connections {
        let held = |server: &VirtualServerKey| {
            let held = self.state.virtual_servers.get(server)?;
            let counts = self.connections.get(server);
            let count =
                |backend: &RealServerKey| counts.and_then(|counts| counts.get(backend)).copied();
            let backends = held.real_servers.keys();
            let counts = backends.map(|backend| (backend, count(&backend).unwrap_or(0)));
            Some((*server, counts.collect()))
        };
        servers.iter().filter_map(held).collect()
    }

    /// Deletes one flow.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] if the flow no longer exists, even if the same client has another one.
    pub fn forget(&mut self, flow: &Flow) -> Result<(), Refusal> {
        need(self.flows.remove(flow), Refusal::NotFound)
    }

    fn set_is(&self, set: SetId, there: bool) -> Result<(), Refusal> {
        match (self.state.sets.contains_key(&set), there) {
            (true, false) => Err(Refusal::Exists),
            (false, true) => Err(Refusal::NotFound),
            _ => Ok(()),
        }
    }

    fn link(&self, op: &LinkOp) -> Result<(), Refusal> {
        let Observed { routes, policy, .. } = &self.state;
        match op {
            LinkOp::RaiseDevice { .. } | LinkOp::RetireDevice { .. } => Ok(()),
            LinkOp::RemoveDevice { .. } => need(self.state.device_up, Refusal::NotFound),
            LinkOp::AddRoute { route, .. } => {
                // The delivering route uses `lo`.
                let up = self.state.device_up || matches!(**route, Route::Deliver { .. });
                need(up, Refusal::DeviceDown)?;
                need(!routes.contains(route), Refusal::Exists)
            }
            LinkOp::DeleteRoute { route, .. } => need(routes.contains(route), Refusal::NotFound),
            LinkOp::AddPolicyRule { rule } => need(!policy.contains(rule), Refusal::Exists),
            LinkOp::DeletePolicyRule { rule } => need(policy.contains(rule), Refusal::NotFound),
        }
    }

    fn set(&self, op: &SetOp) -> Result<(), Refusal> {
        match op {
            SetOp::Create { set, .. } => self.set_is(*set, false),
            SetOp::Replace {
                set,
                max_elements,
                entries,
            } => {
                self.set_is(*set, true)?;
                // Sets of different kinds cannot be swapped, and one that is used cannot be destroyed.
                let found = self.state.sets.get(set).and_then(|set| set.kind);
                let alike = found == Some(set.role.kind());
                need(alike || !self.uses(*set), Refusal::InUse)?;
                let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                need(count <= *max_elements, Refusal::Full)
            }
            SetOp::AddEntry { set: id, entry } => {
                let set = self.entry(*id, entry)?;
                let count = u32::try_from(set.entries.len()).unwrap_or(u32::MAX);
                let is_new = !set.entries.contains(entry);
                need(!is_new || count < set.max_elements, Refusal::Full)
            }
            SetOp::DeleteEntry { set, entry } => self.entry(*set, entry).map(drop),
            SetOp::Destroy { set } => {
                self.set_is(*set, true)?;
                need(!self.uses(*set), Refusal::InUse)
            }
            SetOp::DestroyLeftover { name } => {
                let there = self.state.leftover_sets.contains(name);
                need(there, Refusal::NotFound)?;
                let mut rules = self.state.rules.values();
                let used = rules.any(|rules| rules.sets().any(|used| used == *name));
                need(!used, Refusal::InUse)
            }
        }
    }

    /// The set of an entry, if the entry fits into it.
    fn entry(&self, id: SetId, entry: &SetEntry) -> Result<&ObservedSet, Refusal> {
        let set = self.state.sets.get(&id).ok_or(Refusal::NotFound)?;
        if let SetEntry::Net(net) = entry {
            // The kernel's sets hold no /0.
            need(net.prefix_len() > 0, Refusal::Invalid)?;
        }
        let same_family = entry.family().is_none_or(|family| family == id.family);
        need(same_family, Refusal::Invalid)?;
        Ok(set)
    }

    fn uses(&self, set: SetId) -> bool {
        let name = set.to_string();
        let names = |rules: &crate::rules::ObservedRules| rules.sets().any(|used| used == name);
        self.state.rules.values().any(names)
    }

    fn rules(&self, family: Family, text: &str) -> Result<(), Refusal> {
        let known: BTreeSet<_> = self.state.sets.keys().map(ToString::to_string).collect();
        let added = text
            .lines()
            .filter(|line| line.starts_with("-A ") || line.starts_with("-I "));
        let named = added
            .flat_map(|line| line.split("--match-set ").skip(1))
            .filter_map(|rest| rest.split_whitespace().next());
        for name in named {
            need(known.contains(name), Refusal::NotFound)?;
            let same_family = name.starts_with("PORTOLAN-6-") == (family == Family::Ipv6);
            need(same_family, Refusal::Invalid)?;
        }
        Ok(())
    }

    fn ipvs(&self, op: &IpvsOp) -> Result<(), Refusal> {
        let held = |server| self.state.virtual_servers.get(server);
        match op {
            IpvsOp::SetTimeouts { timeouts } => {
                let Timeouts { tcp, tcp_fin, udp } = *timeouts;
                let countable = [tcp, tcp_fin, udp].iter().all(|s| *s <= MAX_TIMEOUT);
                need(countable, Refusal::Invalid)
            }
            IpvsOp::AddVirtualServer { server, scheduling } => {
                need(held(server).is_none(), Refusal::Exists)?;
                has(&scheduling.scheduler)
            }
            IpvsOp::EditVirtualServer { server, scheduling } => {
                need(held(server).is_some(), Refusal::NotFound)?;
                has(&scheduling.scheduler)
            }
            IpvsOp::DeleteVirtualServer { server } => {
                need(held(server).is_some(), Refusal::NotFound)
            }
            IpvsOp::AddRealServer {
                server, backend, ..
            } => {
                let found = held(server).ok_or(Refusal::NotFound)?;
                need(!found.real_servers.contains_key(backend), Refusal::Exists)?;
                let same = server.address.is_ipv4() == backend.address.is_ipv4();
                need(same, Refusal::Invalid)
            }
            IpvsOp::EditRealServer {
                server, backend, ..
            }
            | IpvsOp::DeleteRealServer { server, backend } => {
                let found = held(server).ok_or(Refusal::NotFound)?;
                need(found.real_servers.contains_key(backend), Refusal::NotFound)
            }
        }
    }
}

/// Fails if the kernel does not have a scheduler.
fn has(scheduler: &str) -> Result<(), Refusal> {
    need(ModelKernel::has_scheduler(scheduler), Refusal::NotFound)
}

fn need(holds: bool, refusal: Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(refusal) }
}
