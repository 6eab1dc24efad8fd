//! Drift: changes that other programs made to Portolan's objects in the kernel.
//!
//! The found state is compared with the state that the agent left (the shadow), not with the plan. State that was
//! never reached is a failure to retry, and changes of the plan are work to do. Neither is drift.

mod compare;
mod leave;
mod ledger;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;

use crate::{
    LinkOp, Op, PolicyRule, RealServerKey, Route, SetEntry, SetId, SetRole, VirtualServerKey,
};

pub use compare::{drift, drift_of_network};
pub use leave::leave;
pub use ledger::{Drift, DriftCount, DriftLedger, ObservedScope};

/// An object that differs from the state in which the agent left it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drifted {
    /// A virtual server is missing, with its real servers, or has another scheduler, flags or timeout.
    VirtualServer(VirtualServerKey),
    /// A real server is missing or unexpected.
    RealServer(VirtualServerKey, RealServerKey),
    /// A real server has another weight.
    Weight(VirtualServerKey, RealServerKey),
    /// A set is missing, with its entries, or another set has its name.
    Set(SetId),
    /// An entry of a set is missing or unexpected.
    Entry(SetId, SetEntry),
    /// A chain, by table and name, or a jump into one of Portolan's chains, by table and rule.
    Rules(Family, String, String),
    /// A route is missing or unexpected.
    Route(Route),
    /// A policy rule is missing or unexpected.
    PolicyRule(PolicyRule),
    /// The device is missing or down, and its routes with it.
    Device,
    /// A kernel setting has another value.
    Setting(Arc<str>),
    /// The timeouts of IPVS connections have other values.
    Timeouts,
}

/// A kind of drift. The displayed form is used for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftKind {
    /// Virtual servers.
    VirtualServer,
    /// Real servers.
    RealServer,
    /// Weights of real servers.
    Weight,
    /// Sets.
    Set,
    /// Entries of sets.
    SetEntry,
    /// Chains and jumps into them.
    Rules,
    /// Routes.
    Route,
    /// Policy rules.
    PolicyRule,
    /// The device.
    Device,
    /// Kernel settings.
    KernelSetting,
}

impl DriftKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::VirtualServer,
        Self::RealServer,
        Self::Weight,
        Self::Set,
        Self::SetEntry,
        Self::Rules,
        Self::Route,
        Self::PolicyRule,
        Self::Device,
        Self::KernelSetting,
    ];

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VirtualServer => "virtual server",
            Self::RealServer => "real server",
            Self::Weight => "weight",
            Self::Set => "set",
            Self::SetEntry => "set entry",
            Self::Rules => "rules",
            Self::Route => "route",
            Self::PolicyRule => "policy rule",
            Self::Device => "device",
            Self::KernelSetting => "kernel setting",
        }
    }
}

impl fmt::Display for DriftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Drifted {
    /// The kind of drift.
    pub fn kind(&self) -> DriftKind {
        match self {
            Self::VirtualServer(_) => DriftKind::VirtualServer,
            Self::RealServer(..) => DriftKind::RealServer,
            Self::Weight(..) => DriftKind::Weight,
            Self::Set(_) => DriftKind::Set,
            Self::Entry(..) => DriftKind::SetEntry,
            Self::Rules(..) => DriftKind::Rules,
            Self::Route(_) => DriftKind::Route,
            Self::PolicyRule(_) => DriftKind::PolicyRule,
            Self::Device => DriftKind::Device,
            Self::Setting(_) | Self::Timeouts => DriftKind::KernelSetting,
        }
    }

    /// The part of the kernel to which it belongs.
    pub fn subject(&self) -> Subject {
        match self {
            Self::VirtualServer(server) | Self::RealServer(server, _) | Self::Weight(server, _) => {
                Subject::Server(*server)
            }
            Self::Set(set) | Self::Entry(set, _) => Subject::Set(*set),
            Self::Rules(family, ..) => Subject::Rules(*family),
            Self::Route(_) | Self::PolicyRule(_) | Self::Device => Subject::Link,
            Self::Setting(_) => Subject::Settings,
            Self::Timeouts => Subject::Timeouts,
        }
    }
}

/// A part of the kernel that one observation covers. A failed operation may have had some effect, so what is found in
/// its part the next time is not drift; other parts are not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A virtual server with its real servers.
    Server(VirtualServerKey),
    /// A set with its entries.
    Set(SetId),
    /// Portolan's rules of a family.
    Rules(Family),
    /// The device, routes and policy rules.
    Link,
    /// Kernel settings.
    Settings,
    /// The timeouts of IPVS connections.
    Timeouts,
}

impl Subject {
    /// The part that an operation changes; `None` if it is never compared.
    pub fn of(op: &Op) -> Option<Self> {
        Some(match op {
            Op::Sysctl(_) => Self::Settings,
            Op::Link(LinkOp::RetireDevice { .. }) | Op::Scheduler(_) => return None,
            Op::Link(_) => Self::Link,
            Op::Set(op) => Self::Set(op.set()?),
            Op::Rules(op) => Self::Rules(op.family),
            Op::Ipvs(op) => match op.server() {
                Some(server) => Self::Server(*server),
                None => Self::Timeouts,
            },
        })
    }
}

/// The number of items of each kind, in words: `2 weights, 1 route`.
pub fn in_words(items: &BTreeSet<Drifted>) -> String {
    let mut words = Vec::new();
    // The items are sorted by kind.
    let all: Vec<_> = items.iter().map(Drifted::kind).collect();
    for run in all.chunk_by(|left, right| left == right) {
        if let Some(kind) = run.first() {
            let plural = match kind {
                DriftKind::SetEntry => "set entries".to_owned(),
                DriftKind::Rules => "chains or jumps".to_owned(),
                other => format!("{other}s"),
            };
            words.push(match (run.len(), kind) {
                (1, DriftKind::Rules) => "1 chain or jump".to_owned(),
                (1, kind) => format!("1 {kind}"),
                (count, _) => format!("{count} {plural}"),
            });
        }
    }
    words.join(", ")
}

/// Whether entries of a set exist only temporarily, by design.
fn is_fleeting(set: SetId) -> bool {
    set.role == SetRole::Hold
}
