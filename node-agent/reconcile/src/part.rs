//! Applies a small change of the plan at a cost that depends on the change and not on the plan.
//!
//! A pass over a part works like a pass over everything, on less: the desired state of the changed Services, before
//! and after, and the corresponding kernel state. Only objects that several Services share need care: such an object
//! stays while another Service needs it. If the part alone is not enough to decide, a pass over everything is needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Desired, Observed, ObservedSet, SetEntry, SetId, SetRole, VirtualServer, VirtualServerKey,
};

/// What a pass covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything that Portolan owns.
    Everything,
    /// These virtual servers, and the objects that route traffic to them.
    Servers(BTreeSet<VirtualServerKey>),
}

impl Scope {
    /// Whether the pass covers this virtual server.
    pub fn contains(&self, server: &VirtualServerKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Servers(servers) => servers.contains(server),
        }
    }
}

/// The input of a pass.
#[derive(Debug)]
pub struct Part {
    /// The observed state of the part. It is taken out of the observed state of the whole kernel and put back by
    /// [`Observed::join`].
    pub observed: Observed,
    /// The desired state of the part.
    pub desired: Desired,
    /// What the pass covers.
    pub scope: Scope,
}

/// The objects that several Services may share, with the number of Services that need each. Every other object
/// belongs to one known Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared {
    entries: BTreeMap<(SetRole, SetEntry), u32>,
    contested: BTreeSet<VirtualServerKey>,
}

impl From<Desired> for Shared {
    /// The same as [`Shared::of`], without a copy.
    fn from(desired: Desired) -> Self {
        Self {
            entries: desired.common,
            contested: desired.contested,
        }
    }
}

impl Shared {
    /// The shared objects of a plan's Services.
    pub fn of(desired: &Desired) -> Self {
        Self {
            entries: desired.common.clone(),
            contested: desired.contested.clone(),
        }
    }

    /// The part of the kernel state that a change affects. `before` and `after` are the desired states of only the
    /// changed Services, on the same node and network. `shadow` is the kernel state that the previous plan led to.
    ///
    /// `None` if the part alone is not enough to decide. Then `shadow` is unchanged, but `self` may already count the
    /// change. The caller must run a pass over everything, which creates a new `Shared`.
    pub fn narrow(
        &mut self,
        shadow: &mut Observed,
        before: &Desired,
        mut after: Desired,
    ) -> Option<Part> {
        let servers = servers(before).chain(servers(&after));
        let servers: BTreeSet<_> = servers.copied().collect();
        let mut contested = self.contested.iter().chain(&after.contested);
        if contested.any(|server| servers.contains(server)) || !fits(shadow, before, &after) {
            return None;
        }
        let others = self.follow(before, &after);
        let fresh = |server: &&VirtualServerKey| !is_wanted(before, server);
        if servers
            .iter()
            .filter(fresh)
            .any(|server| shadow.virtual_servers.contains_key(server))
            || others.contradict(shadow, before, &after)
        {
            return None;
        }
        others.leave_out(&mut after);
        let entries = entries(before, &after, &others);
        let observed = shadow.split(&servers, &entries, &after);
        Some(Part {
            observed,
            desired: after,
            scope: Scope::Servers(servers),
        })
    }

    /// Updates the counts with the change, and returns the objects that unchanged Services need.
    fn follow(&mut self, before: &Desired, after: &Desired) -> SharedObjects {
        let (was, is) = (Self::of(before), Self::of(after));
        SharedObjects {
            entries: recount(&mut self.entries, &was.entries, is.entries),
        }
    }
}

/// Objects of a part that other Services need too: they are in the kernel and stay there.
struct SharedObjects {
    entries: BTreeSet<(SetRole, SetEntry)>,
}

impl SharedObjects {
    fn want(&self, set: SetId, entry: &SetEntry) -> bool {
        self.entries.contains(&(set.role, *entry))
    }

    fn leave_out(&self, desired: &mut Desired) {
        for (id, set) in &mut desired.sets {
            set.entries.retain(|entry| !self.want(*id, entry));
        }
    }

    /// Whether the kernel contradicts the counts: it already holds an entry that no Service was known to need.
    fn contradict(&self, shadow: &Observed, before: &Desired, after: &Desired) -> bool {
        after.sets.iter().any(|(id, set)| {
            let nothing = BTreeSet::new();
            let wanted = before.sets.get(id).map_or(&nothing, |set| &set.entries);
            let fresh = set.entries.difference(wanted);
            let mut fresh = fresh.filter(|entry| !self.want(*id, entry));
            let held = shadow.sets.get(id);
            fresh.any(|entry| held.is_some_and(|held| held.entries.contains(entry)))
        })
    }
}

/// Subtracts the counts `was` and adds `is`. Returns the keys that other Services need in between.
fn recount<K: Ord + Copy>(
    counts: &mut BTreeMap<K, u32>,
    was: &BTreeMap<K, u32>,
    is: BTreeMap<K, u32>,
) -> BTreeSet<K> {
    for (key, uses) in was {
        let count = counts.entry(*key).or_default();
        *count = count.saturating_sub(*uses);
    }
    let keys = was.keys().chain(is.keys());
    let others = keys.filter(|key| counts.get(key).is_some_and(|count| *count > 0));
    let others = others.copied().collect();
    for (key, uses) in is {
        *counts.entry(key).or_default() += uses;
    }
    for key in was.keys() {
        if counts.get(key) == Some(&0) {
            counts.remove(key);
        }
    }
    others
}

/// The virtual servers of these Services, including those that only finish existing connections.
fn servers(desired: &Desired) -> impl Iterator<Item = &VirtualServerKey> {
    desired.virtual_servers.keys().chain(&desired.resting)
}

fn is_wanted(desired: &Desired, server: &VirtualServerKey) -> bool {
    desired.virtual_servers.contains_key(server) || desired.resting.contains(server)
}

/// Whether every set exists and has capacity for the new entries in addition to the old ones.
fn fits(shadow: &Observed, before: &Desired, after: &Desired) -> bool {
    after.sets.iter().all(|(id, set)| {
        let nothing = BTreeSet::new();
        let was = before.sets.get(id).map_or(&nothing, |set| &set.entries);
        let fresh = set.entries.difference(was).count();
        let found = shadow.sets.get(id);
        found.is_some_and(|found| {
            let together = u32::try_from(found.entries.len() + fresh);
            together.is_ok_and(|together| together <= found.max_elements)
        })
    })
}

type Entries = BTreeMap<SetId, BTreeSet<SetEntry>>;

fn entries(before: &Desired, after: &Desired, others: &SharedObjects) -> Entries {
    let mut entries = Entries::new();
    for (id, set) in before.sets.iter().chain(&after.sets) {
        let own = set.entries.iter().filter(|entry| !others.want(*id, entry));
        entries.entry(*id).or_default().extend(own);
    }
    entries
}

impl Observed {
    /// Removes and returns the part with these servers and entries. State that is not specific to a Service goes with
    /// it.
    fn split(
        &mut self,
        servers: &BTreeSet<VirtualServerKey>,
        entries: &Entries,
        desired: &Desired,
    ) -> Self {
        let held = servers.iter();
        let held = held.filter_map(|server| self.virtual_servers.remove_entry(server));
        let virtual_servers: BTreeMap<_, _> = held.collect();
        let sets = self.sets.iter_mut();
        let sets = sets.map(|(id, set)| (*id, set.split(entries.get(id))));
        let mut part = Self {
            virtual_servers,
            sets: sets.collect(),
            device_up: self.device_up,
            leftover_sets: std::mem::take(&mut self.leftover_sets),
            loaded_schedulers: std::mem::take(&mut self.loaded_schedulers),
            // These are the same for every Service.
            routes: std::mem::take(&mut self.routes),
            policy: std::mem::take(&mut self.policy),
            rules: std::mem::take(&mut self.rules),
            unread_rules: std::mem::take(&mut self.unread_rules),
            sysctls: std::mem::take(&mut self.sysctls),
            timeouts: self.timeouts,
            host: std::mem::take(&mut self.host),
        };
        for server in desired.virtual_servers.values() {
            let known = part.loaded_schedulers.contains(&server.scheduler) || part.uses(server);
            if !known && self.uses(server) {
                part.loaded_schedulers.insert(server.scheduler.clone());
            }
        }
        part
    }

    /// Whether any virtual server has the scheduler of `wanted`.
    fn uses(&self, wanted: &VirtualServer) -> bool {
        let mut servers = self.virtual_servers.values();
        servers.any(|server| server.scheduler == wanted.scheduler)
    }

    /// Puts a part back after a pass.
    pub fn join(&mut self, part: Self) {
        self.virtual_servers.extend(part.virtual_servers);
        for (id, set) in part.sets {
            let held = self.sets.entry(id).or_default();
            let entries = std::mem::take(&mut held.entries);
            *held = ObservedSet {
                entries,
                ..set.clone()
            };
            held.entries.extend(set.entries);
        }
        self.routes = part.routes;
        self.policy = part.policy;
        self.device_up = part.device_up;
        self.leftover_sets = part.leftover_sets;
        self.loaded_schedulers = part.loaded_schedulers;
        self.rules = part.rules;
        self.unread_rules = part.unread_rules;
        self.sysctls = part.sysctls;
        self.timeouts = part.timeouts;
        self.host = part.host;
    }
}

impl ObservedSet {
    fn split(&mut self, entries: Option<&BTreeSet<SetEntry>>) -> Self {
        let entries = entries.into_iter().flatten();
        let taken = entries.filter(|entry| self.entries.remove(*entry)).copied();
        let entries = taken.collect();
        Self {
            kind: self.kind,
            max_elements: self.max_elements,
            timeout_seconds: self.timeout_seconds,
            entries,
        }
    }
}
