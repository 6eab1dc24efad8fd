//! The phases of a batch of operations, in the order that keeps traffic flowing.

use std::collections::BTreeMap;

use portolan_plan::Family;

use crate::{NewServers, Op, VirtualServerKey};

/// A phase of a batch. The order of operations within a phase does not matter, with two exceptions: real servers
/// follow their virtual server, and scheduler changes are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Remove entries of `HOLD` that an earlier pass left behind: their clients would wait for no reason.
    ReleaseHolds,
    /// Set kernel settings, raise the device, load schedulers.
    Prepare,
    /// Create missing sets.
    CreateSets,
    /// Add entries of `ALLOW`, before the guards to which they are exceptions.
    AddAllowedSources,
    /// Add entries that masquerade, and entries that keep clients out.
    AddGuards,
    /// Add boot-critical virtual servers of cluster IPs, which no policy rule routes traffic to yet. They do not need
    /// the rules, whose tools take a while to start.
    AddUnroutedServers,
    /// Load rules.
    LoadRules,
    /// Add virtual servers that the cluster needs to come up, with their real servers.
    AddBootCriticalServers,
    /// Add their entries of `FRONTEND`.
    AddBootCriticalFrontends,
    /// Add routes if nothing was captured before.
    AddFirstRoutes,
    /// Add policy rules if nothing was captured before: packets to boot-critical frontends now arrive at IPVS.
    AddFirstPolicyRules,
    /// Add all other virtual servers with their real servers.
    AddServers,
    /// Add all other entries of `FRONTEND`: these frontends now accept connections.
    AddFrontends,
    /// Add entries of `REFUSE` and `RANGES`.
    AddRejects,
    /// Add routes.
    AddRoutes,
    /// Add policy rules: packets now arrive at IPVS.
    AddPolicyRules,
    /// Remove policy rules.
    RemovePolicyRules,
    /// Remove routes.
    RemoveRoutes,
    /// Remove entries of `REFUSE` and `RANGES`.
    RemoveRejects,
    /// Remove entries of `FRONTEND`.
    RemoveFrontends,
    /// Set the weight of draining real servers to 0.
    Drain,
    /// Remove real and virtual servers.
    RemoveServers,
    /// Remove entries that masquerade, and entries that keep clients out.
    RemoveGuards,
    /// Remove entries of `ALLOW`.
    RemoveAllowedSources,
    /// Remove all rules, because another dataplane serves Services.
    RemoveRules,
    /// Remove sets of Portolan that no rule uses any more.
    DestroySets,
    /// Remove the device, because another dataplane serves Services.
    RemoveDevice,
    /// Change schedulers, in order: hold, edit and release, one virtual server after the other. This comes last
    /// because each change takes a while and nothing else depends on it.
    Reschedule,
}

impl Phase {
    /// The name of the phase in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReleaseHolds => "release holds",
            Self::Prepare => "prepare",
            Self::CreateSets => "create sets",
            Self::AddAllowedSources => "add allowed sources",
            Self::AddGuards => "add guards",
            Self::AddUnroutedServers => "add unrouted servers",
            Self::LoadRules => "load rules",
            Self::AddBootCriticalServers => "add boot-critical servers",
            Self::AddBootCriticalFrontends => "add boot-critical frontends",
            Self::AddFirstRoutes => "add first routes",
            Self::AddFirstPolicyRules => "add first policy rules",
            Self::AddServers => "add servers",
            Self::AddFrontends => "add frontends",
            Self::AddRejects => "add rejects",
            Self::AddRoutes => "add routes",
            Self::AddPolicyRules => "add policy rules",
            Self::RemovePolicyRules => "remove policy rules",
            Self::RemoveRoutes => "remove routes",
            Self::RemoveRejects => "remove rejects",
            Self::RemoveFrontends => "remove frontends",
            Self::Drain => "drain",
            Self::RemoveServers => "remove servers",
            Self::RemoveGuards => "remove guards",
            Self::RemoveAllowedSources => "remove allowed sources",
            Self::RemoveRules => "remove rules",
            Self::DestroySets => "destroy sets",
            Self::RemoveDevice => "remove device",
            Self::Reschedule => "reschedule",
        }
    }

    /// Whether the phase removes existing objects.
    pub fn is_removal(self) -> bool {
        match self {
            Self::ReleaseHolds
            | Self::Prepare
            | Self::CreateSets
            | Self::AddAllowedSources
            | Self::AddGuards
            | Self::AddUnroutedServers
            | Self::LoadRules
            | Self::AddBootCriticalServers
            | Self::AddBootCriticalFrontends
            | Self::AddFirstRoutes
            | Self::AddFirstPolicyRules
            | Self::AddServers
            | Self::AddFrontends
            | Self::AddRejects
            | Self::AddRoutes
            | Self::AddPolicyRules
            | Self::Reschedule => false,
            Self::RemovePolicyRules
            | Self::RemoveRoutes
            | Self::RemoveRejects
            | Self::RemoveFrontends
            | Self::Drain
            | Self::RemoveServers
            | Self::RemoveGuards
            | Self::RemoveAllowedSources
            | Self::RemoveRules
            | Self::DestroySets
            | Self::RemoveDevice => true,
        }
    }
}

/// The operations of a phase.
#[derive(Debug, Default)]
pub struct PhaseWork {
    /// All but those of new virtual servers.
    pub ops: Vec<Op>,
    /// Virtual servers that do not exist yet.
    pub new: NewServers,
}

/// Operations by phase.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) phases: BTreeMap<Phase, PhaseWork>,
}

impl Batch {
    pub(crate) fn push(&mut self, phase: Phase, op: Op) {
        self.phases.entry(phase).or_default().ops.push(op);
    }

    /// Adds a virtual server that does not exist yet.
    pub(crate) fn push_new(&mut self, phase: Phase, server: VirtualServerKey) {
        self.phases.entry(phase).or_default().new.push(server);
    }

    pub(crate) fn loads_rules(&self, of: Family) -> bool {
        let rules = self.phases.get(&Phase::LoadRules);
        let mut rules = rules.into_iter().flat_map(|rules| &rules.ops);
        rules.any(|op| op.rules().is_some_and(|op| op.family == of))
    }
}
