//! The kernel as the programmer sees it: something that can be looked at and that takes
//! operations. No decision is made below this line.

pub mod linux;
#[cfg(feature = "testing")]
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use portolan_plan::Family;
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{Connections, Desired, Flow, Network, Observed, Op, VirtualServerKey};
use thiserror::Error;

use crate::traffic::Traffic;

pub use linux::{IptablesChoice, LinuxKernel, Missing};
#[cfg(feature = "testing")]
pub use model::SharedModel;

/// The setting that says whether the node passes IPv6 packets on. It is looked at and never written.
pub const IPV6_FORWARDING: &str = "net.ipv6.conf.all.forwarding";

/// Where plans are programmed.
pub trait Kernel {
    /// Reads links, addresses and routes.
    ///
    /// # Errors
    /// [`KernelError`] when some of it cannot be read.
    fn network(&mut self, device: &str) -> Result<Network, KernelError>;

    /// The values of these settings; those that the kernel does not have are left out.
    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>>;

    /// Says that all of it is observed soon: what takes long may begin.
    fn foresee_observing(&mut self) {}

    /// Reads virtual servers, sets and rules, and puts them together with the rest. Virtual servers that are as `wanted`
    /// has them share its real servers ([`VirtualServer::share`](portolan_reconcile::VirtualServer::share)).
    ///
    /// # Errors
    /// [`KernelError`] when some of it cannot be read; then nothing may be written either. Rules of a
    /// family that cannot be read are named in what was observed.
    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError>;

    /// Our rules as they are loaded, or why they cannot be read, of each family that is known of. Costs little as long as
    /// no rule of anybody has changed.
    fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        Vec::new()
    }

    /// What virtual servers had carried when they were observed last. Empty where nobody counts.
    fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        Vec::new()
    }

    /// Counts the connections of the real servers of these; one that is not there is left out.
    ///
    /// # Errors
    /// [`KernelError`] when they cannot be read.
    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError>;

    /// Says that these operations come soon, whatever becomes of those in between: what takes long may
    /// begin. Each is still to be applied, and answered then.
    fn foresee(&mut self, _ops: &[Op]) {}

    /// Does operations in order, and answers each. One that fails does not stop the others.
    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>>;

    /// Reads all UDP flows that connection tracking has of a family, and gives back the stale ones.
    ///
    /// # Errors
    /// [`KernelError`] when they cannot be read; then none may be deleted either (S-130).
    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError>;

    /// Deletes exactly these flows, and answers each. One that is not there any more is deleted.
    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>>;
}

/// What came of reading the UDP flows of a family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleFlows {
    /// How many flows were read.
    pub seen: u64,
    /// The stale ones among them.
    pub stale: Vec<Flow>,
    /// Whether there are more stale ones, to be read once these are gone.
    pub more: bool,
    /// Whether the list changed each time it was read, so that some may be missing (S-130).
    pub interrupted: bool,
}

/// The kernel, or a tool that speaks to it, did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{action}: {reason}")]
pub struct KernelError {
    /// What was asked.
    pub action: String,
    /// Why it was not done, and what to check.
    pub reason: String,
    /// Whether it may have been done all the same: nobody knows before the kernel is looked at.
    pub in_doubt: bool,
}

impl KernelError {
    /// An error of something asked.
    pub fn new(action: &(impl Display + ?Sized), reason: &(impl Display + ?Sized)) -> Self {
        Self {
            action: action.to_string(),
            reason: reason.to_string(),
            in_doubt: false,
        }
    }

    /// The same error, of something that may have been done all the same if this holds.
    #[must_use]
    pub fn in_doubt_if(self, in_doubt: bool) -> Self {
        Self { in_doubt, ..self }
    }
}
