//! Counts drift by kind since the agent started.

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::Family;

use super::{DriftKind, Drifted, is_fleeting};
use crate::rules::ObservedRules;
use crate::{Desired, Observed, sysctls};

/// The counts of each kind of drift that ever occurred.
pub type Drift = BTreeMap<DriftKind, DriftCount>;

/// The counts of one kind of drift.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriftCount {
    /// The number of drifted objects found.
    pub found: u64,
    /// The number of drifted objects corrected.
    pub repaired: u64,
    /// The number of objects that still differ: left alone because the settings say so, or not corrected yet.
    pub unrepaired: u64,
}

/// Counts drift. Drift that remains is counted once, however often it is observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriftLedger {
    counts: BTreeMap<DriftKind, (u64, u64)>,
    /// Drift that is left alone.
    alone: BTreeSet<Drifted>,
    /// Drift that is to be corrected.
    pending: BTreeSet<Drifted>,
}

/// How much of the kernel was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedScope {
    /// The whole state.
    Everything,
    /// Links, routes and kernel settings.
    Network,
}

impl DriftLedger {
    /// Records the drift that was found and the part of it that is left alone. Returns the drift that was not known
    /// before.
    pub fn note(
        &mut self,
        scope: ObservedScope,
        drifted: &BTreeSet<Drifted>,
        alone: BTreeSet<Drifted>,
    ) -> BTreeSet<Drifted> {
        let known = |what: &&Drifted| self.alone.contains(what) || self.pending.contains(what);
        let fresh: BTreeSet<_> = drifted
            .iter()
            .filter(|what| !known(what))
            .cloned()
            .collect();
        for what in &fresh {
            self.counts.entry(what.kind()).or_default().0 += 1;
        }
        self.pending.extend(drifted.difference(&alone).cloned());
        self.pending.retain(|what| !alone.contains(what));
        // Drift outside the observed part is unchanged.
        self.alone
            .retain(|what| scope == ObservedScope::Network && !is_network(what));
        self.alone.extend(alone);
        fresh
    }

    /// Counts drift as repaired if the state now matches the plan.
    pub fn settle(&mut self, state: &Observed, desired: &Desired) {
        let counts = &mut self.counts;
        self.pending.retain(|what| {
            let right = is_right(what, state, desired);
            if right {
                counts.entry(what.kind()).or_default().1 += 1;
            }
            !right
        });
    }

    /// Whether any drift is left alone.
    pub fn leaves_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Whether no drift remains, neither left alone nor to be corrected.
    pub fn is_quiet(&self) -> bool {
        self.alone.is_empty() && self.pending.is_empty()
    }

    /// The counts of each kind of drift that ever occurred.
    pub fn counts(&self) -> Drift {
        let unrepaired = |kind| {
            let all = self.alone.iter().chain(&self.pending);
            all.filter(|what| what.kind() == kind).count()
        };
        let count = |(kind, (found, repaired)): (&DriftKind, &(u64, u64))| {
            let unrepaired = u64::try_from(unrepaired(*kind)).unwrap_or(u64::MAX);
            let (found, repaired) = (*found, *repaired);
            (
                *kind,
                DriftCount {
                    found,
                    repaired,
                    unrepaired,
                },
            )
        };
        self.counts.iter().map(count).collect()
    }
}

fn is_network(what: &Drifted) -> bool {
    matches!(
        what,
        Drifted::Route(_) | Drifted::PolicyRule(_) | Drifted::Device | Drifted::Setting(_)
    )
}

/// Whether a drifted object is now as the plan wants it.
fn is_right(what: &Drifted, state: &Observed, desired: &Desired) -> bool {
    let servers = (&state.virtual_servers, &desired.virtual_servers);
    match what {
        Drifted::VirtualServer(key) => match (servers.0.get(key), servers.1.get(key)) {
            (Some(held), Some(wanted)) => held.same_service(wanted),
            (None, Some(_)) => false,
            (_, None) => true,
        },
        Drifted::RealServer(key, backend) | Drifted::Weight(key, backend) => {
            let held = servers.0.get(key);
            let held = held.and_then(|held| held.real_servers.get(backend));
            let wanted = servers.1.get(key);
            let wanted = wanted.and_then(|wanted| wanted.real_servers.get(backend));
            // A real server that the plan does not contain drains with weight 0.
            held == wanted || (wanted.is_none() && held == Some(0))
        }
        Drifted::Set(id) => {
            let (held, wanted) = (state.sets.get(id), desired.sets.get(id));
            let as_made = |set: &crate::ObservedSet| {
                let made = (Some(id.role.kind()), id.role.timeout_seconds());
                (set.kind, set.timeout_seconds) == made || wanted.is_none()
            };
            held.is_some_and(as_made) || (held.is_none() && wanted.is_none())
        }
        Drifted::Entry(id, _) if is_fleeting(*id) => true,
        Drifted::Entry(id, entry) => {
            let held = state.sets.get(id);
            let wanted = desired.sets.get(id);
            held.is_some_and(|set| set.entries.contains(entry))
                == wanted.is_some_and(|set| set.entries.contains(entry))
        }
        Drifted::Rules(family, ..) => rules_are_right(*family, state, desired),
        Drifted::Route(route) => state.routes.contains(route) == desired.routes.contains(route),
        Drifted::PolicyRule(rule) => state.policy.contains(rule) == desired.policy.contains(rule),
        Drifted::Device => state.device_up && state.routes == desired.routes,
        Drifted::Timeouts => desired.timeouts.are_met_by(&state.timeouts),
        Drifted::Setting(name) => {
            let held = state.sysctls.get(name);
            let wanted = desired.sysctls.get(name);
            wanted.is_none_or(|wanted| {
                held.is_some_and(|held| sysctls::is_enough(name, held, wanted))
            })
        }
    }
}

fn rules_are_right(family: Family, state: &Observed, desired: &Desired) -> bool {
    let mut wanted = desired.rules.iter().filter(|rules| rules.family == family);
    let held = state.rules.get(&family);
    let is_idle = desired.idle.contains(&family) && held.is_none_or(ObservedRules::is_empty);
    is_idle || wanted.all(|rules| held == Some(&rules.expected()))
}
