//! Operations on the kernel, as values.

use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;

use crate::rules::ObservedRules;
use crate::{
    PolicyRule, RealServerKey, Route, Scheduling, SetEntry, SetId, Timeouts, VirtualServerKey,
};

/// One change to the kernel. A node's first plan makes some hundred thousand, so they are small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Write a kernel setting.
    WriteSysctl {
        /// The name with dots, `net.ipv4.ip_forward`.
        name: Arc<str>,
        /// The value.
        value: Arc<str>,
    },
    /// Change timeouts of IPVS connections; 0 leaves one as it is.
    SetTimeouts {
        /// The timeouts.
        timeouts: Timeouts,
    },
    /// Create our device, or bring it up if it is there.
    RaiseDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Remove our device, and with it every route over it.
    RemoveDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Remove a device that carried our routes under another name.
    RetireDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Create a set.
    CreateSet {
        /// Which.
        set: SetId,
        /// How many entries it may hold.
        max_elements: u32,
    },
    /// Put a larger set in the place of one, with all its entries.
    ReplaceSet {
        /// Which.
        set: SetId,
        /// How many entries it may hold.
        max_elements: u32,
        /// Its entries.
        entries: Vec<SetEntry>,
    },
    /// Add an entry to a set.
    AddEntry {
        /// Which set.
        set: SetId,
        /// The entry.
        entry: SetEntry,
    },
    /// Delete an entry from a set.
    DeleteEntry {
        /// Which set.
        set: SetId,
        /// The entry.
        entry: SetEntry,
    },
    /// Destroy a set that no rule uses.
    DestroySet {
        /// Which.
        set: SetId,
    },
    /// Destroy one of [`LEFTOVER_SETS`](crate::LEFTOVER_SETS).
    DestroyLeftoverSet {
        /// Its name.
        name: &'static str,
    },
    /// Load rules of one family.
    LoadRules {
        /// Which family.
        family: Family,
        /// Text for `iptables-restore --noflush`.
        text: String,
        /// What our chains hold afterwards.
        rules: Box<ObservedRules>,
    },
    /// Make sure that the kernel has a scheduler; it loads the module of one that it does not know.
    LoadScheduler {
        /// Its name.
        scheduler: Arc<str>,
    },
    /// Add a virtual server, without real servers.
    AddVirtualServer {
        /// Which.
        server: VirtualServerKey,
        /// Scheduler, flags and timeout.
        scheduling: Scheduling,
    },
    /// Change scheduler, flags or timeout of a virtual server in place.
    EditVirtualServer {
        /// Which.
        server: VirtualServerKey,
        /// Scheduler, flags and timeout.
        scheduling: Scheduling,
    },
    /// Delete a virtual server with all its real servers.
    DeleteVirtualServer {
        /// Which.
        server: VirtualServerKey,
    },
    /// Add a real server.
    AddRealServer {
        /// To which virtual server.
        server: VirtualServerKey,
        /// Which backend.
        backend: RealServerKey,
        /// Its weight.
        weight: u32,
    },
    /// Change a real server's weight.
    EditRealServer {
        /// Of which virtual server.
        server: VirtualServerKey,
        /// Which backend.
        backend: RealServerKey,
        /// Its weight.
        weight: u32,
    },
    /// Delete a real server.
    DeleteRealServer {
        /// Of which virtual server.
        server: VirtualServerKey,
        /// Which backend.
        backend: RealServerKey,
    },
    /// Add a route.
    AddRoute {
        /// Our device.
        device: Arc<str>,
        /// The route.
        route: Route,
    },
    /// Delete a route.
    DeleteRoute {
        /// Our device.
        device: Arc<str>,
        /// The route.
        route: Route,
    },
    /// Add a policy routing rule.
    AddPolicyRule {
        /// The rule.
        rule: PolicyRule,
    },
    /// Delete a policy routing rule.
    DeletePolicyRule {
        /// The rule.
        rule: PolicyRule,
    },
}

/// Which part of the kernel an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// Kernel settings.
    Sysctl,
    /// The device, routes and policy rules.
    Link,
    /// Address sets.
    Set,
    /// Rules.
    Rules,
    /// Virtual and real servers.
    Ipvs,
}

impl Op {
    /// Which part of the kernel it is for.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::WriteSysctl { .. } => OpKind::Sysctl,
            Self::RaiseDevice { .. }
            | Self::RemoveDevice { .. }
            | Self::RetireDevice { .. }
            | Self::AddRoute { .. }
            | Self::DeleteRoute { .. }
            | Self::AddPolicyRule { .. }
            | Self::DeletePolicyRule { .. } => OpKind::Link,
            Self::CreateSet { .. }
            | Self::ReplaceSet { .. }
            | Self::AddEntry { .. }
            | Self::DeleteEntry { .. }
            | Self::DestroySet { .. }
            | Self::DestroyLeftoverSet { .. } => OpKind::Set,
            Self::LoadRules { .. } => OpKind::Rules,
            Self::SetTimeouts { .. }
            | Self::LoadScheduler { .. }
            | Self::AddVirtualServer { .. }
            | Self::EditVirtualServer { .. }
            | Self::DeleteVirtualServer { .. }
            | Self::AddRealServer { .. }
            | Self::EditRealServer { .. }
            | Self::DeleteRealServer { .. } => OpKind::Ipvs,
        }
    }
}

impl Op {
    /// The families that lack something while it is not done.
    pub fn families(&self) -> &'static [Family] {
        match self {
            Self::CreateSet { set, .. }
            | Self::ReplaceSet { set, .. }
            | Self::AddEntry { set, .. }
            | Self::DeleteEntry { set, .. }
            | Self::DestroySet { set } => only(set.family),
            Self::LoadRules { family, .. } => only(*family),
            Self::AddVirtualServer { server, .. }
            | Self::EditVirtualServer { server, .. }
            | Self::DeleteVirtualServer { server }
            | Self::AddRealServer { server, .. }
            | Self::EditRealServer { server, .. }
            | Self::DeleteRealServer { server, .. } => only(Family::of(server.address)),
            Self::AddRoute { route, .. } | Self::DeleteRoute { route, .. } => only(route.family()),
            Self::AddPolicyRule { rule } | Self::DeletePolicyRule { rule } => only(rule.family),
            // What waits for a kernel setting is seen by itself: a container may write none, and serves all the same
            // (S-225).
            Self::WriteSysctl { .. } => &[],
            Self::SetTimeouts { .. }
            | Self::RaiseDevice { .. }
            | Self::RemoveDevice { .. }
            | Self::RetireDevice { .. }
            | Self::DestroyLeftoverSet { .. }
            | Self::LoadScheduler { .. } => &Family::BOTH,
        }
    }
}

fn only(family: Family) -> &'static [Family] {
    match family {
        Family::Ipv4 => &[Family::Ipv4],
        Family::Ipv6 => &[Family::Ipv6],
    }
}

/// The operation in words, as failures are reported.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteSysctl { name, value } => write!(f, "set {name} to {value}"),
            Self::SetTimeouts { timeouts } => write!(f, "set timeouts of connections: {timeouts}"),
            Self::RaiseDevice { device } => write!(f, "bring up device {device}"),
            Self::RemoveDevice { device } | Self::RetireDevice { device } => {
                write!(f, "remove device {device}")
            }
            Self::CreateSet { set, max_elements } => {
                write!(f, "create set {set} for {max_elements} entries")
            }
            Self::ReplaceSet {
                set,
                max_elements,
                entries,
            } => {
                let count = entries.len();
                write!(
                    f,
                    "replace set {set} by one for {max_elements} entries, {count} in it"
                )
            }
            Self::AddEntry { set, entry } => write!(f, "add {entry} to set {set}"),
            Self::DeleteEntry { set, entry } => write!(f, "delete {entry} from set {set}"),
            Self::DestroySet { set } => write!(f, "destroy set {set}"),
            Self::DestroyLeftoverSet { name } => write!(f, "destroy set {name}"),
            Self::LoadRules { family, .. } => write!(f, "load {family} rules"),
            Self::LoadScheduler { scheduler } => write!(f, "load scheduler {scheduler}"),
            Self::AddVirtualServer { server, scheduling } => {
                write!(f, "add virtual server {server} ({})", scheduling.scheduler)
            }
            Self::EditVirtualServer { server, scheduling } => {
                write!(f, "edit virtual server {server} ({})", scheduling.scheduler)
            }
            Self::DeleteVirtualServer { server } => write!(f, "delete virtual server {server}"),
            Self::AddRealServer {
                server,
                backend,
                weight,
            } => {
                write!(f, "add {backend} (weight {weight}) to {server}")
            }
            Self::EditRealServer {
                server,
                backend,
                weight,
            } => {
                write!(f, "give {backend} of {server} weight {weight}")
            }
            Self::DeleteRealServer { server, backend } => {
                write!(f, "delete {backend} from {server}")
            }
            Self::AddRoute { device, route } => write!(f, "add route {}", route.text(device)),
            Self::DeleteRoute { device, route } => {
                write!(f, "delete route {}", route.text(device))
            }
            Self::AddPolicyRule { rule } => write!(f, "add {} policy rule {rule}", rule.family),
            Self::DeletePolicyRule { rule } => {
                write!(f, "delete {} policy rule {rule}", rule.family)
            }
        }
    }
}
