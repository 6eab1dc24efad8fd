//! From what is to what should be: operations in phases whose order keeps traffic flowing.
//!
//! Additions go before removals, and each thing before what leads traffic to it: sets that
//! masquerade or guard, rules, virtual servers with all their backends, `FRONTEND`, `VIPNET`, routes.
//! Removals follow in reverse, and last the changes of schedulers. A virtual server with endpoints is
//! never empty in between (S-186).

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::Family;

use crate::rules::{ObservedRules, restore_text};
use crate::{
    Desired, DesiredSet, Observed, ObservedSet, Op, Owned, RealServerKey, SetEntry, SetId, SetRole,
    VirtualServer, VirtualServerKey,
};
use crate::{drain, reschedule, sysctls};

/// A step of a batch. Operations of one phase do not depend on each other's order but for real
/// servers, which follow their virtual server, and for scheduler changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Entries of `HOLD` that a pass before left behind: their clients wait for no reason.
    Release,
    /// Kernel settings, the device, schedulers.
    Ground,
    /// Sets that should exist.
    CreateSets,
    /// Entries of `ALLOW`: before what they are exceptions of.
    Admit,
    /// Entries that masquerade, and that keep clients out.
    Guard,
    /// Cluster IPs that nothing leads to yet, while our device is still to come: they need no rules, whose
    /// tools take a while to start.
    Hidden,
    /// Rules.
    Rules,
    /// Virtual servers that the cluster needs to come up, with their real servers.
    BootCritical,
    /// All other virtual servers with their real servers.
    Servers,
    /// Entries of `FRONTEND`: these answer.
    Answer,
    /// Entries of `VIPNET`: other ports of these addresses refuse.
    Refuse,
    /// Routes: packets arrive.
    Route,
    /// Routes that go.
    Unroute,
    /// Entries of `VIPNET` that go.
    Unrefuse,
    /// Entries of `FRONTEND` that go.
    Unanswer,
    /// Real servers that take no new connections any more.
    Drain,
    /// Real and virtual servers that go.
    RemoveServers,
    /// Entries that masquerade, and that keep clients out, that go.
    Unguard,
    /// Entries of `ALLOW` that go.
    Unadmit,
    /// Scheduler changes, in order: hold, edit, release for one virtual server after the other. Last,
    /// because each takes a while and nothing else has to wait for it.
    Reschedule,
}

impl Phase {
    /// Whether something is taken away that is there.
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
            | Self::Reschedule => false,
            Self::Unroute
            | Self::Unrefuse
            | Self::Unanswer
            | Self::Drain
            | Self::RemoveServers
            | Self::Unguard
            | Self::Unadmit => true,
        }
    }
}

/// The operations that lead from `observed` to `desired`, touching nothing that is not `owned`.
/// Phases without operations are left out; equal states give none at all.
pub fn diff(observed: &Observed, desired: &Desired, owned: &Owned) -> Vec<(Phase, Vec<Op>)> {
    let mut batch = Batch::default();
    ground(&mut batch, observed, desired);
    sets(&mut batch, observed, desired);
    rules(&mut batch, observed, desired);
    servers(&mut batch, observed, desired, owned);
    routes(&mut batch, observed, desired);
    batch.phases.into_iter().collect()
}

#[derive(Default)]
pub(crate) struct Batch {
    phases: BTreeMap<Phase, Vec<Op>>,
}

impl Batch {
    pub(crate) fn push(&mut self, phase: Phase, op: Op) {
        self.phases.entry(phase).or_default().push(op);
    }

    fn loads_rules(&self, of: Family) -> bool {
        let mut rules = self.phases.get(&Phase::Rules).into_iter().flatten();
        rules.any(|op| matches!(op, Op::LoadRules { family, .. } if *family == of))
    }
}

fn ground(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for (name, value) in &desired.sysctls {
        let found = observed.sysctls.get(name);
        if !found.is_some_and(|found| sysctls::is_enough(name, found, value)) {
            let (name, value) = (name.clone(), value.clone());
            batch.push(Phase::Ground, Op::WriteSysctl { name, value });
        }
    }
    let timeouts = desired.timeouts;
    if !timeouts.are_met_by(&observed.timeouts) {
        batch.push(Phase::Ground, Op::SetTimeouts { timeouts });
    }
    if !observed.device_up {
        batch.push(
            Phase::Ground,
            Op::RaiseDevice {
                device: desired.device.clone(),
            },
        );
    }
}

fn sets(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    for (set, wanted) in &desired.sets {
        match observed.sets.get(set) {
            None => {
                let max_elements = wanted.max_elements;
                batch.push(
                    Phase::CreateSets,
                    Op::CreateSet {
                        set: *set,
                        max_elements,
                    },
                );
                entries(batch, *set, wanted, &ObservedSet::default());
            }
            // Rules cannot use it as it is, so it goes before they are loaded.
            Some(found) if found.kind != Some(set.role.kind()) => {
                let max_elements = wanted.max_elements;
                batch.push(
                    Phase::CreateSets,
                    Op::ReplaceSet {
                        set: *set,
                        max_elements,
                        entries: Vec::new(),
                    },
                );
                entries(batch, *set, wanted, &ObservedSet::default());
            }
            Some(found) if too_small(found, wanted) || forgets_otherwise(*set, found) => {
                let (add, _) = phases(set.role);
                let entries = wanted.entries.iter().copied().collect();
                let max_elements = wanted.max_elements;
                batch.push(
                    add,
                    Op::ReplaceSet {
                        set: *set,
                        max_elements,
                        entries,
                    },
                );
            }
            Some(found) => entries(batch, *set, wanted, found),
        }
    }
}

/// Additions come before removals, so a set must hold both for a moment.
fn too_small(found: &ObservedSet, wanted: &DesiredSet) -> bool {
    let together = found.entries.union(&wanted.entries).count();
    u32::try_from(together).map_or(true, |together| together > found.max_elements)
}

/// A set whose entries live longer or shorter than they should: made by an older agent, or by hand.
fn forgets_otherwise(set: SetId, found: &ObservedSet) -> bool {
    found.timeout_seconds != set.role.timeout_seconds()
}

fn entries(batch: &mut Batch, set: SetId, wanted: &DesiredSet, found: &ObservedSet) {
    let (add, remove) = phases(set.role);
    for entry in wanted.entries.difference(&found.entries) {
        batch.push(add, Op::AddEntry { set, entry: *entry });
    }
    for entry in found.entries.difference(&wanted.entries) {
        batch.push(remove, Op::DeleteEntry { set, entry: *entry });
    }
}

fn phases(role: SetRole) -> (Phase, Phase) {
    match role {
        SetRole::Allow => (Phase::Admit, Phase::Unadmit),
        SetRole::ClusterIp
        | SetRole::Hairpin
        | SetRole::Health
        | SetRole::Masq
        | SetRole::NoLocal
        | SetRole::Guarded
        | SetRole::Pods => (Phase::Guard, Phase::Unguard),
        SetRole::Frontend => (Phase::Answer, Phase::Unanswer),
        SetRole::VipNet => (Phase::Refuse, Phase::Unrefuse),
        SetRole::Hold => (Phase::Release, Phase::Release),
    }
}

fn rules(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let nothing = ObservedRules::default();
    let unread = |family| observed.unread_rules.contains_key(&family);
    for rules in desired.rules.iter().filter(|rules| !unread(rules.family)) {
        let found = observed.rules.get(&rules.family).unwrap_or(&nothing);
        if let Some(text) = restore_text(rules, found) {
            let (family, rules) = (rules.family, Box::new(rules.expected()));
            batch.push(
                Phase::Rules,
                Op::LoadRules {
                    family,
                    text,
                    rules,
                },
            );
        }
    }
}

fn servers(batch: &mut Batch, observed: &Observed, desired: &Desired, owned: &Owned) {
    let mut changes = Vec::new();
    let hidden = hidden(batch, observed, desired);
    for (server, wanted) in &desired.virtual_servers {
        let found = observed.virtual_servers.get(server);
        let phase = if found.is_none() && hidden(server) {
            Phase::Hidden
        } else if desired.boot_critical.contains(server) {
            Phase::BootCritical
        } else {
            Phase::Servers
        };
        match found {
            None => {
                let op = Op::AddVirtualServer {
                    server: *server,
                    scheduling: wanted.scheduling(),
                };
                batch.push(phase, op);
            }
            Some(found) if found.scheduler != wanted.scheduler => {
                changes.push((*server, wanted.scheduling()));
            }
            Some(found) if !found.same_service(wanted) => {
                let op = Op::EditVirtualServer {
                    server: *server,
                    scheduling: wanted.scheduling(),
                };
                batch.push(phase, op);
            }
            Some(_) => {}
        }
        real_servers(batch, phase, &desired.node, *server, wanted, found);
    }
    reschedule::schedulers(batch, observed, desired, changes);
    for (server, held) in &observed.virtual_servers {
        if desired.virtual_servers.contains_key(server) || !owned.contains(server) {
            continue;
        }
        // Without its Service it goes at once, with all connections (S-120).
        if desired.resting.contains(server) && !held.real_servers.is_empty() {
            unwanted(batch, *server, held.real_servers.iter());
        } else {
            batch.push(
                Phase::RemoveServers,
                Op::DeleteVirtualServer { server: *server },
            );
        }
    }
}

/// Which virtual servers no packet from elsewhere can reach before the routes are there, and nobody is
/// kept out of: cluster IPs, as long as our device does not exist. Of no use where no rules are loaded.
fn hidden<'a>(
    batch: &Batch,
    observed: &'a Observed,
    desired: &'a Desired,
) -> impl Fn(&VirtualServerKey) -> bool + use<'a> {
    let loads = Family::BOTH.map(|family| (family, batch.loads_rules(family)));
    move |server| {
        let family = Family::of(server.address);
        let role = SetRole::ClusterIp;
        let cluster_ips = desired.sets.get(&SetId { role, family });
        !observed.device_up
            && loads.contains(&(family, true))
            && cluster_ips.is_some_and(|set| set.entries.contains(&SetEntry::of(*server)))
            && !observed.host.owns(server.address)
    }
}

/// Takes real servers away, or lets them drain. Those that drain already are left alone: they go when
/// they have no connections, which is not known here.
fn unwanted<'a>(
    batch: &mut Batch,
    server: VirtualServerKey,
    backends: impl Iterator<Item = (&'a RealServerKey, &'a u32)>,
) {
    for (backend, weight) in backends {
        let backend = *backend;
        if !drain::drains(server.protocol) {
            batch.push(
                Phase::RemoveServers,
                Op::DeleteRealServer { server, backend },
            );
        } else if *weight != 0 {
            let weight = 0;
            batch.push(
                Phase::Drain,
                Op::EditRealServer {
                    server,
                    backend,
                    weight,
                },
            );
        }
    }
}

fn real_servers(
    batch: &mut Batch,
    phase: Phase,
    node: &str,
    server: VirtualServerKey,
    wanted: &VirtualServer,
    found: Option<&VirtualServer>,
) {
    let nothing = BTreeMap::new();
    let found = found.map_or(&nothing, |found| &found.real_servers);
    let mut missing: Vec<(u64, RealServerKey, u32)> = Vec::new();
    for (backend, weight) in &wanted.real_servers {
        match found.get(backend) {
            None => missing.push((backend.rank(node, &server), *backend, *weight)),
            Some(held) if held != weight => {
                let (backend, weight) = (*backend, *weight);
                batch.push(
                    phase,
                    Op::EditRealServer {
                        server,
                        backend,
                        weight,
                    },
                );
            }
            Some(_) => {}
        }
    }
    missing.sort_unstable();
    for (_, backend, weight) in missing {
        batch.push(
            phase,
            Op::AddRealServer {
                server,
                backend,
                weight,
            },
        );
    }
    let gone = |(backend, _): &(&RealServerKey, &u32)| !wanted.real_servers.contains_key(backend);
    unwanted(batch, server, found.iter().filter(gone));
}

fn routes(batch: &mut Batch, observed: &Observed, desired: &Desired) {
    let device = || desired.device.clone();
    for route in desired.routes.difference(&observed.routes) {
        batch.push(
            Phase::Route,
            Op::PutRoute {
                device: device(),
                route: *route,
            },
        );
    }
    let wanted: BTreeSet<_> = desired
        .routes
        .iter()
        .map(|route| route.destination)
        .collect();
    // A route that only has another source is replaced in place, never taken away.
    for route in observed
        .routes
        .iter()
        .filter(|route| !wanted.contains(&route.destination))
    {
        batch.push(
            Phase::Unroute,
            Op::DeleteRoute {
                device: device(),
                route: *route,
            },
        );
    }
}
