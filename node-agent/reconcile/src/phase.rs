//! The phases of a batch of operations, in the order that keeps traffic flowing.

use std::collections::BTreeMap;

use portolan_plan::Family;

use crate::Op;

/// A phase of a batch. The order of operations within a phase does not matter, with two exceptions: real servers
/// follow their virtual server, and scheduler changes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Remove entries of `HOLD` that an earlier pass left behind: their clients would wait for no reason.
    Release,
    /// Set kernel settings, raise the device, load schedulers.
    Ground,
    /// Create missing sets.
    CreateSets,
    /// Add entries of `ALLOW`, before the guards to which they are exceptions.
    Admit,
    /// Add entries that masquerade, and entries that keep clients out.
    Guard,
    /// Add virtual servers of cluster IPs that no policy rule routes traffic to yet. They do not need the rules,
    /// whose tools take a while to start.
    Hidden,
    /// Load rules.
    Rules,
    /// Add virtual servers that the cluster needs to come up, with their real servers.
    BootCritical,
    /// Add all other virtual servers with their real servers.
    Servers,
    /// Add entries of `FRONTEND`: these frontends now accept connections.
    Answer,
    /// Add entries of `REFUSE` and `RANGES`.
    Refuse,
    /// Add routes.
    Route,
    /// Add policy rules: packets now arrive at IPVS.
    Lead,
    /// Remove policy rules.
    Unlead,
    /// Remove routes.
    Unroute,
    /// Remove entries of `REFUSE` and `RANGES`.
    Unrefuse,
    /// Remove entries of `FRONTEND`.
    Unanswer,
    /// Set the weight of draining real servers to 0.
    Drain,
    /// Remove real and virtual servers.
    RemoveServers,
    /// Remove entries that masquerade, and entries that keep clients out.
    Unguard,
    /// Remove entries of `ALLOW`.
    Unadmit,
    /// Remove leftover sets of Portolan that no rule uses any more.
    DestroySets,
    /// Change schedulers, in order: hold, edit and release, one virtual server after the other. This comes last
    /// because each change takes a while and nothing else depends on it.
    Reschedule,
}

impl Phase {
    /// The name of the phase in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Ground => "ground",
            Self::CreateSets => "create sets",
            Self::Admit => "admit",
            Self::Guard => "guard",
            Self::Hidden => "hidden servers",
            Self::Rules => "rules",
            Self::BootCritical => "boot-critical servers",
            Self::Servers => "servers",
            Self::Answer => "answer",
            Self::Refuse => "refuse",
            Self::Route => "route",
            Self::Lead => "policy rules",
            Self::Unlead => "remove policy rules",
            Self::Unroute => "unroute",
            Self::Unrefuse => "unrefuse",
            Self::Unanswer => "unanswer",
            Self::Drain => "drain",
            Self::RemoveServers => "remove servers",
            Self::Unguard => "unguard",
            Self::Unadmit => "unadmit",
            Self::DestroySets => "destroy sets",
            Self::Reschedule => "reschedule",
        }
    }

    /// Whether the phase removes existing objects.
    pub fn takes_away(self) -> bool {
        match self {
            Self::Release
            | Self::Ground
            | Self::CreateSets
            | Self::Admit
            | Self::Guard
            | Self::Hidden
            | Self::Rules
            | Self::BootCritical
            | Self::Servers
            | Self::Answer
            | Self::Refuse
            | Self::Route
            | Self::Lead
            | Self::Reschedule => false,
            Self::Unlead
            | Self::Unroute
            | Self::Unrefuse
            | Self::Unanswer
            | Self::Drain
            | Self::RemoveServers
            | Self::Unguard
            | Self::Unadmit
            | Self::DestroySets => true,
        }
    }
}

/// Operations by phase.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) phases: BTreeMap<Phase, Vec<Op>>,
}

impl Batch {
    pub(crate) fn push(&mut self, phase: Phase, op: Op) {
        self.phases.entry(phase).or_default().push(op);
    }

    pub(crate) fn loads_rules(&self, of: Family) -> bool {
        let mut rules = self.phases.get(&Phase::Rules).into_iter().flatten();
        rules.any(|op| op.rules().is_some_and(|op| op.family == of))
    }
}
