//! Applies a change of some Services to the desired tables, at a cost that does not depend on the others.

use std::collections::BTreeSet;

use portolan_plan::{Family, LocalEndpoint, ServiceId};

use super::tables::Tables;
use crate::VirtualServerKey;
use crate::facts::{Facts, FrontendFacts};

/// What a change of some Services may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Frontends.
    pub frontends: BTreeSet<VirtualServerKey>,
    /// This node's endpoints.
    pub hairpins: BTreeSet<LocalEndpoint>,
}

impl Touched {
    /// The families of what was touched.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> {
        let frontends = self.frontends.iter().map(|key| key.address);
        let hairpins = self.hairpins.iter().map(|own| own.address);
        frontends.chain(hairpins).map(Family::of)
    }
}

impl Tables {
    /// Replaces some Services. `before` and `after` are the facts of only these Services, on the same node and network.
    ///
    /// `None` if the change cannot be separated from the rest: another Service has the same frontend, or the node
    /// changed. Then the tables are unchanged, and have to be made again from all facts.
    pub fn replace(&mut self, before: &Facts, after: &Facts) -> Option<Touched> {
        let keys = |facts: &Facts| -> BTreeSet<_> {
            facts
                .frontends
                .iter()
                .map(|frontend| frontend.key)
                .collect()
        };
        let (was, is) = (keys(before), keys(after));
        let contested = [&self.contested, &before.contested, &after.contested];
        let is_contested = |key: &&VirtualServerKey| contested.iter().any(|all| all.contains(*key));
        let is_taken = |key: &&VirtualServerKey| self.frontend(key).is_some();
        if !self.is_on_same_node(before, after)
            || !after.contested.is_empty()
            || was.union(&is).any(|key| is_contested(&key))
            || is.difference(&was).any(|key| is_taken(&key))
        {
            return None;
        }
        self.remove_services(before);
        for frontend in &after.frontends {
            self.add(frontend);
        }
        self.count_hairpins(before, after);
        let hairpins = [before, after].into_iter();
        Some(Touched {
            frontends: &was | &is,
            hairpins: hairpins
                .flat_map(|facts| facts.local_endpoints.iter().copied())
                .collect(),
        })
    }

    /// Whether only Services differ, in families that have tables.
    fn is_on_same_node(&self, before: &Facts, after: &Facts) -> bool {
        // Several Services may share the address of a balancer.
        let of_node = |facts: &Facts| {
            let Facts {
                pods,
                ranges,
                refusing,
                ..
            } = facts;
            (pods.clone(), ranges.clone(), refusing.clone())
        };
        let has_table = |frontend: &FrontendFacts| {
            let family = Family::of(frontend.key.address);
            self.families.get(&family).is_some_and(|table| !table.idle)
        };
        before.node == after.node
            && of_node(before) == of_node(after)
            && after.frontends.iter().all(has_table)
    }

    fn remove_services(&mut self, facts: &Facts) {
        for frontend in &facts.frontends {
            let service: &ServiceId = &frontend.service;
            self.fallbacks.remove(service);
            self.truncated.remove(service);
            let family = Family::of(frontend.key.address);
            if let Some(table) = self.families.get_mut(&family) {
                table.remove(&frontend.key);
            }
        }
    }

    fn count_hairpins(&mut self, before: &Facts, after: &Facts) {
        for own in &before.local_endpoints {
            let table = self.families.get_mut(&Family::of(own.address));
            let Some(hairpins) = table.map(|table| &mut table.hairpins) else {
                continue;
            };
            if let Some(count) = hairpins.get_mut(own) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    hairpins.remove(own);
                }
            }
        }
        for own in &after.local_endpoints {
            if let Some(table) = self.families.get_mut(&Family::of(own.address)) {
                *table.hairpins.entry(*own).or_default() += 1;
            }
        }
    }
}
