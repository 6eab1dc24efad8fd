//! Drift: what somebody else changed in the kernel since we left it.
//!
//! What was left is the shadow, not the plan: what never was in force is a failure to try again, and
//! what the plan has changed since is work. Neither is drift.

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
pub use ledger::{Drift, DriftCount, DriftLedger, Look};

/// Something of ours that is otherwise than it was left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drifted {
    /// A virtual server is gone, with its real servers, or has another scheduler, flags or timeout.
    VirtualServer(VirtualServerKey),
    /// A real server is gone, or new.
    RealServer(VirtualServerKey, RealServerKey),
    /// A real server has another weight.
    Weight(VirtualServerKey, RealServerKey),
    /// A set is gone, with its entries, or another one has its name.
    Set(SetId),
    /// An entry of a set is gone, or new.
    Entry(SetId, SetEntry),
    /// A chain, by table and name, or a jump into one of ours, by table and rule.
    Rules(Family, String, String),
    /// A route is gone, or new.
    Route(Route),
    /// A policy rule is gone, or new.
    PolicyRule(PolicyRule),
    /// The device is gone or down, and with it its routes.
    Device,
    /// A kernel setting has another value.
    Setting(Arc<str>),
    /// Timeouts of connections have other values.
    Timeouts,
}

/// A kind of what can be otherwise; displayed as people and metrics read it.
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
    /// All of them.
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

    /// The kind in words.
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
    /// Its kind.
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

    /// What it is a part of.
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

/// A part of the kernel about which one answer tells. An operation that failed may have had some
/// effect; what is found there the next time says nothing about others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A virtual server with its real servers.
    Server(VirtualServerKey),
    /// A set with its entries.
    Set(SetId),
    /// Our rules of a family.
    Rules(Family),
    /// The device, routes and policy rules.
    Link,
    /// Kernel settings.
    Settings,
    /// Timeouts of connections.
    Timeouts,
}

impl Subject {
    /// What an operation changes; `None` for what is never compared.
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

/// So many of each kind, in words: `2 weights, 1 route`.
pub fn in_words(items: &BTreeSet<Drifted>) -> String {
    let mut words = Vec::new();
    // They are sorted by kind.
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

/// Whether entries of a set are there for a moment only, by design.
fn is_fleeting(set: SetId) -> bool {
    set.role == SetRole::Hold
}
