//! The kernel's interface for the programmer: it reads state and applies operations. No decisions are made below
//! this level.

pub mod linux;
#[cfg(feature = "testing")]
mod model;
mod tables;
#[cfg(feature = "testing")]
mod tables_model;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::sync::Arc;

use portolan_plan::Family;
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{Connections, Desired, Flow, Network, Observed, Op, VirtualServerKey};
use thiserror::Error;

use crate::traffic::Traffic;

pub use linux::{IptablesChoice, LinuxKernel, Missing};
#[cfg(feature = "testing")]
pub use model::SharedModel;
pub use tables::{CommitFailure, Extent, RefusalCause, RefusedOperation, TablesKernel};
#[cfg(feature = "testing")]
pub use tables_model::{SharedTables, TablesModel};

/// The setting for IPv6 forwarding. The agent reads it and never writes it.
pub const IPV6_FORWARDING: &str = "net.ipv6.conf.all.forwarding";

/// A kernel to program. Many operations are applied on a thread of their own.
pub trait Kernel: Send {
    /// The tables of the nftables dataplane.
    type Tables: TablesKernel + Debug;

    /// Opens the tables of the nftables dataplane.
    ///
    /// # Errors
    /// [`KernelError`] if the kernel has no nf_tables, or if this process may not use it.
    fn open_tables(&mut self) -> Result<Self::Tables, KernelError>;

    /// Whether the kernel may have tables of the agent. The answer loads no module.
    fn may_have_tables(&mut self) -> bool;

    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// [`KernelError`] if some of it cannot be read.
    fn network(&mut self, device: &str) -> Result<Network, KernelError>;

    /// The values of these settings; settings unknown to the kernel are absent.
    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>>;

    /// Whether the kernel has an IPVS scheduler, or can load it. The answer loads its module.
    fn has_scheduler(&mut self, name: &str) -> bool;

    /// Announces that [`Kernel::observe`] follows soon, so that slow parts can begin.
    fn prepare_observe(&mut self) {}

    /// Reads virtual servers, sets and rules, and combines them with the arguments. Virtual servers that equal
    /// those in `wanted` share its real servers
    /// ([`VirtualServer::share`](portolan_reconcile::VirtualServer::share)).
    ///
    /// # Errors
    /// [`KernelError`] if some of it cannot be read; then nothing may be written either. Unreadable rules of a family
    /// are no error, but part of the result.
    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError>;

    /// The agent's loaded rules, or why they cannot be read, of each known family. Cheap while no rule of any program
    /// has changed.
    fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        Vec::new()
    }

    /// Whether the last load of rules failed because another program held the iptables lock, and whether it still does.
    /// A release is reported once.
    fn lock_wait(&mut self) -> LockWait {
        LockWait::None
    }

    /// The traffic counters of virtual servers at the last [`Kernel::observe`]. Empty if counting is off.
    fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        Vec::new()
    }

    /// Counts the connections of the real servers of these virtual servers; missing ones are left out.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read.
    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError>;

    /// Announces that these operations follow soon, regardless of the results of operations in between, so that slow
    /// parts can begin. Each still has to be applied, which returns its result.
    fn prepare(&mut self, _ops: &[Op]) {}

    /// Applies operations in order, with a result for each. A failure does not stop the others.
    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>>;

    /// Reads all UDP flows of a family from connection tracking, and returns the stale ones.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read; then none may be deleted either (S-130).
    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError>;

    /// Deletes exactly these flows, with a result for each. A flow that does not exist any more counts as deleted.
    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>>;
}

/// State of the iptables lock after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// No load failed because of it.
    None,
    /// Another program still holds it.
    Held,
    /// It is free again.
    Released,
}

/// The result of reading the UDP flows of a family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleFlows {
    /// The number of flows read.
    pub seen: u64,
    /// The stale flows.
    pub stale: Vec<Flow>,
    /// Whether there are more stale flows, to be read after these are deleted.
    pub more: bool,
    /// Whether the list changed each time it was read, so that some may be missing (S-130).
    pub interrupted: bool,
}

/// A request to the kernel or to a tool failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{action}: {reason}")]
pub struct KernelError {
    /// The request.
    pub action: String,
    /// Why it failed, and what to check.
    pub reason: String,
    /// Whether it may have taken effect nevertheless, which is unknown until the kernel is read again.
    pub in_doubt: bool,
    /// Whether a value of a single Service caused it. It then says nothing about the node (S-229).
    pub of_service: bool,
}

impl KernelError {
    /// An error of a request.
    pub fn new(action: &(impl Display + ?Sized), reason: &(impl Display + ?Sized)) -> Self {
        Self {
            action: action.to_string(),
            reason: reason.to_string(),
            in_doubt: false,
            of_service: false,
        }
    }

    /// Sets whether the request may have taken effect nevertheless.
    #[must_use]
    pub fn in_doubt_if(self, in_doubt: bool) -> Self {
        Self { in_doubt, ..self }
    }

    /// Sets whether a value of a single Service caused it.
    #[must_use]
    pub fn of_service_if(self, of_service: bool) -> Self {
        Self { of_service, ..self }
    }
}
