//! Scenarios: each builds its own lab, checks its claims and leaves nothing behind.

mod addresses;
mod bare;
mod boot;
mod bootstrap;
mod cluster;
mod coexistence;
mod control_plane;
mod costs;
mod dataplanes;
mod doctor;
mod draining;
mod drift;
mod extra;
mod faults;
mod health;
mod ipvs_rate;
mod listing;
mod marks;
mod metrics;
mod packet_path;
mod privileges;
mod refusals;
mod restarts;
mod rollout;
mod schedulers;
mod settings;
mod topology;
mod udp;

use anyhow::{Context, Result};

use crate::checks::Checks;
use crate::stage::Stage;

/// A scenario by name.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it proves, in one line.
    pub shows: &'static str,
    /// Runs it; an error means that it could not continue.
    pub run: fn(&Stage, &mut Checks) -> Result<()>,
}

/// All scenarios of kernels and agents, in the order of `run --all`.
pub const ALL: &[Scenario] = &[
    topology::SCENARIO,
    refusals::SCENARIO,
    packet_path::SCENARIO,
    packet_path::EXTERNAL,
    coexistence::SCENARIO,
    addresses::SCENARIO,
    packet_path::MODES,
    restarts::SCENARIO,
    dataplanes::SCENARIO,
    schedulers::SCENARIO,
    draining::SCENARIO,
    rollout::SCENARIO,
    drift::SCENARIO,
    marks::SCENARIO,
    faults::SCENARIO,
    health::SCENARIO,
    metrics::SCENARIO,
    boot::SCENARIO,
    privileges::SCENARIO,
    settings::SCENARIO,
    doctor::SCENARIO,
    costs::SCENARIO,
    udp::SCENARIO,
    ipvs_rate::SCENARIO,
    listing::SCENARIO,
];

/// Scenarios that need specially booted kernels; each runs alone.
pub const OTHER_KERNELS: &[Scenario] = &[bare::SCENARIO];

/// Scenarios on kernels whose controller follows a real API server; each runs alone.
pub const ON_API_SERVER: &[Scenario] = &[bootstrap::SCENARIO];

/// All scenarios of a real API server, in the order of `cluster --all`. They need no root.
pub const CLUSTER: &[Scenario] = &[
    control_plane::SCENARIO,
    cluster::STORES,
    cluster::OBJECTS,
    cluster::RULES,
    cluster::BAD_INPUT,
    cluster::LIMITS,
    cluster::TRUST,
    cluster::FLOOD,
    cluster::REPLICAS,
    cluster::OPEN_FILES,
    cluster::CHART,
    cluster::INSTALL,
    cluster::AGENTS,
    cluster::WAVES,
    cluster::TENANTS,
    cluster::GUARD,
    cluster::TRACES,
    cluster::CHURN,
    cluster::ROLLING,
    cluster::MEMORY,
];

/// Finds one in lists.
///
/// # Errors
/// If there is none of that name; the message lists those that are.
pub fn named(lists: &[&'static [Scenario]], name: &str) -> Result<&'static Scenario> {
    let mut all = lists.iter().copied().flatten();
    all.find(|scenario| scenario.name == name).with_context(|| {
        let all = lists.iter().copied().flatten();
        let known: Vec<_> = all.map(|scenario| scenario.name).collect();
        format!(
            "there is no scenario {name:?}; there are {}",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use portolan_lab::tiers::{TIERS, Tier, Work};

    use super::*;

    /// Those that `cargo verify` runs in a tier.
    fn verified(of: impl Fn(Work) -> Option<&'static str>) -> BTreeSet<&'static str> {
        TIERS.iter().flat_map(Tier::all).filter_map(of).collect()
    }

    fn names(lists: &[&'static [Scenario]]) -> BTreeSet<&'static str> {
        let all = lists.iter().copied().flatten();
        all.map(|scenario| scenario.name).collect()
    }

    #[test]
    fn every_scenario_is_a_part_of_verify() {
        let guest = verified(|work| match work {
            Work::Scenario(scenario) => Some(scenario.name),
            _ => None,
        });
        assert_eq!(guest, names(&[ALL, OTHER_KERNELS, ON_API_SERVER]));
        let cluster = verified(|work| match work {
            Work::Cluster(scenario) => Some(scenario.name),
            _ => None,
        });
        assert_eq!(cluster, names(&[CLUSTER]));
    }
}
