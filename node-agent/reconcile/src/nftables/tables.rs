//! The desired state of the nftables dataplane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use nft_rs::Rule;
use portolan_plan::{Family, LocalEndpoint, ServiceId};

use super::frontend::WantedFrontend;
use super::layout::{Layout, LayoutOptions};
use super::print::LayoutPrint;
use super::set::SetName;
use super::sizes::Sizes;
use crate::VirtualServerKey;
use crate::facts::{Facts, FrontendFacts};

/// Schedulers that choose by the address of the client.
const BY_HASH: [&str; 2] = ["sh", "mh"];
/// Schedulers that a random choice by weight replaces without a warning.
const BY_WEIGHT: [&str; 3] = ["rr", "wrr", "random"];

/// The desired tables of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// The table of each family that needs one.
    pub families: BTreeMap<Family, FamilyTables>,
    /// The scheduler of the settings.
    pub(super) scheduler: Arc<str>,
    /// Services whose scheduler this dataplane lacks, which is the value (S-229). Their backends are chosen at random.
    pub fallbacks: BTreeMap<ServiceId, Arc<str>>,
    /// The number of backends of Services that take no connections, because a frontend has more than
    /// [`super::MAX_SLOTS`].
    pub truncated: BTreeMap<ServiceId, usize>,
    /// Frontends that more than one Service claims.
    pub(super) contested: BTreeSet<VirtualServerKey>,
}

/// The desired table of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyTables {
    /// What chains and rules depend on.
    pub options: LayoutOptions,
    /// Whether the table is not made if it is missing: nothing uses the family.
    pub idle: bool,
    /// The frontends.
    pub frontends: BTreeMap<VirtualServerKey, WantedFrontend>,
    /// This node's endpoints, with the number of Services that have each.
    pub hairpins: BTreeMap<LocalEndpoint, u32>,
    /// The ranges whose addresses count as pods: none of them overlap.
    pub pods: BTreeSet<IpNet>,
    /// The service ranges: none of them overlap.
    pub ranges: BTreeSet<IpNet>,
    /// The addresses of load balancers that reject connections to unused ports.
    pub balancers: BTreeSet<IpNet>,
    /// The affinity timeouts in use, with the number of frontends that have each.
    pub(super) affinity: BTreeMap<u32, u32>,
    /// The number of slots of all frontends.
    slots: usize,
    /// How chains and rules look in the kernel, if that differs from how they are written. See [`Tables::accept`].
    pub(super) accepted: Option<LayoutPrint>,
}

impl Tables {
    /// The tables for these facts.
    pub fn of(facts: &Facts) -> Self {
        let families = facts.families.iter();
        let families = families.map(|family| (*family, FamilyTables::new(facts, *family)));
        let mut tables = Self {
            families: families.collect(),
            scheduler: facts.settings().scheduler.clone(),
            fallbacks: BTreeMap::new(),
            truncated: BTreeMap::new(),
            contested: facts.contested.clone(),
        };
        for frontend in &facts.frontends {
            tables.add(frontend);
        }
        tables
    }

    /// Adds a frontend.
    pub(super) fn add(&mut self, facts: &FrontendFacts) {
        let asked = facts.scheduler.as_ref();
        let scheduler = asked.unwrap_or(&self.scheduler);
        let by_hash = BY_HASH.contains(&&**scheduler);
        let wanted = WantedFrontend::new(facts, by_hash);
        if let Some(asked) = asked
            && *asked != self.scheduler
            && !by_hash
            && !BY_WEIGHT.contains(&&**asked)
            && wanted.is_served()
        {
            let service = facts.service.clone();
            self.fallbacks.insert(service, asked.clone());
        }
        let left_out = wanted.left_out();
        if left_out > 0 {
            self.truncated.insert(facts.service.clone(), left_out);
        }
        if let Some(table) = self.families.get_mut(&Family::of(facts.key.address)) {
            table.add(facts.key, wanted);
        }
    }

    /// The desired state of a frontend.
    pub fn frontend(&self, key: &VirtualServerKey) -> Option<&WantedFrontend> {
        let table = self.families.get(&Family::of(key.address))?;
        table.frontends.get(key)
    }

    /// Takes over what [`Tables::accept`] accepted of other tables, where chains and rules are the same.
    pub fn accept_like(&mut self, others: &Self) {
        for (family, table) in &mut self.families {
            let other = others.families.get(family);
            if let Some(other) = other.filter(|other| other.options == table.options) {
                table.accepted.clone_from(&other.accepted);
            }
        }
    }

    /// Accepts chains and rules as the kernel lists them, right after they were written. A kernel that lists them in
    /// another form would otherwise have its rules written again with each reading.
    pub fn accept(&mut self, family: Family, print: LayoutPrint) {
        if let Some(table) = self.families.get_mut(&family) {
            table.accepted = Some(print);
        }
    }
}

impl FamilyTables {
    fn new(facts: &Facts, family: Family) -> Self {
        let recognises_pods = facts.recognises_pods(family);
        let mut hairpins = BTreeMap::new();
        for endpoint in &facts.local_endpoints {
            if Family::of(endpoint.address) == family {
                *hairpins.entry(*endpoint).or_default() += 1;
            }
        }
        Self {
            options: LayoutOptions::new(facts.settings(), recognises_pods, facts.kernel),
            idle: facts.idle.contains(&family),
            frontends: BTreeMap::new(),
            hairpins,
            pods: disjoint(family, facts.pods.iter().copied()),
            ranges: disjoint(family, facts.ranges.iter().copied()),
            balancers: disjoint(family, facts.refusing.iter().map(|one| IpNet::from(*one))),
            affinity: BTreeMap::new(),
            slots: 0,
            accepted: None,
        }
    }

    fn add(&mut self, key: VirtualServerKey, wanted: WantedFrontend) {
        let wanted = match self.remove(&key) {
            Some(other) => other.settle(wanted),
            None => wanted,
        };
        if let Some(seconds) = wanted.affinity_seconds() {
            *self.affinity.entry(seconds).or_default() += 1;
        }
        self.slots = self.slots.saturating_add(wanted.slots);
        self.frontends.insert(key, wanted);
    }

    /// Removes a frontend.
    pub(super) fn remove(&mut self, key: &VirtualServerKey) -> Option<WantedFrontend> {
        let wanted = self.frontends.remove(key)?;
        self.slots = self.slots.saturating_sub(wanted.slots);
        if let Some(seconds) = wanted.affinity_seconds()
            && let Some(count) = self.affinity.get_mut(&seconds)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.affinity.remove(&seconds);
            }
        }
        Some(wanted)
    }

    /// The affinity timeouts in use, in seconds.
    pub(super) fn timeouts(&self) -> BTreeSet<u32> {
        self.affinity.keys().copied().collect()
    }

    /// The sizes of its sets.
    pub fn sizes(&self) -> Sizes {
        Sizes::new(self.frontends.len(), self.slots, self.hairpins.len())
    }

    /// The chains, rules and sets of the table.
    pub fn layout(&self, family: Family) -> Layout {
        Layout::new(family, &self.options, &self.timeouts(), &self.sizes())
    }

    /// The rules of these chains, with these timeouts of affinity.
    pub(super) fn rules_of(
        &self,
        family: Family,
        chains: &BTreeSet<Arc<str>>,
        timeouts: &BTreeSet<u32>,
    ) -> Vec<Rule> {
        let layout = Layout::new(family, &self.options, timeouts, &self.sizes());
        let mut rules = layout.rules;
        rules.retain(|rule| chains.contains(&*rule.chain));
        rules
    }

    /// The ranges of a set of ranges.
    pub(super) fn ranges_of(&self, set: SetName) -> &BTreeSet<IpNet> {
        match set {
            SetName::Pods => &self.pods,
            SetName::Balancers => &self.balancers,
            _ => &self.ranges,
        }
    }
}

/// The ranges of a family. Overlapping ranges become one, because an interval set contains no overlaps.
fn disjoint(family: Family, ranges: impl Iterator<Item = IpNet>) -> BTreeSet<IpNet> {
    let of_family = ranges.filter(|range| Family::of(range.addr()) == family);
    let of_family: Vec<_> = of_family.map(|range| range.trunc()).collect();
    IpNet::aggregate(&of_family).into_iter().collect()
}
