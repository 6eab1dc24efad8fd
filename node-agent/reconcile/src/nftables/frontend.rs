//! A frontend in the tables: as it should be, and the elements that it has.

use std::collections::BTreeSet;

use ipnet::IpNet;
use portolan_plan::ServiceId;
use smallvec::SmallVec;

use super::element::TableElement;
use super::set::SetName;
use super::slots::{self, SlotPlan, Slots};
use crate::facts::{FrontendFacts, Masquerade};
use crate::{RealServerKey, RealServers, VirtualServerKey};

/// The sets of frontends that contain a frontend, in order.
pub(super) type Members = SmallVec<[SetName; 4]>;

/// A frontend as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFrontend {
    /// Its Service.
    pub service: ServiceId,
    /// Its backends with their weights.
    pub backends: RealServers,
    /// The number of slots that they take.
    pub(super) slots: usize,
    /// Whether it is programmed before others.
    pub boot_critical: bool,
    /// The sets that contain it, except for its size class.
    pub(super) members: Members,
    /// The ranges that may connect, if it is guarded: none of them overlap.
    pub(super) allow: BTreeSet<IpNet>,
}

/// The elements of a frontend that are in the kernel, or were written there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontendElements {
    pub(super) slots: Slots<RealServerKey>,
    pub(super) members: Members,
    pub(super) allow: BTreeSet<IpNet>,
}

impl WantedFrontend {
    /// A frontend that chooses backends by the client's address if `by_hash`.
    pub(super) fn new(facts: &FrontendFacts, by_hash: bool) -> Self {
        let mut wanted = Self {
            service: facts.service.clone(),
            backends: facts.backends.clone(),
            slots: 0,
            boot_critical: facts.boot_critical,
            members: Members::new(),
            allow: BTreeSet::new(),
        };
        if let Some(sources) = &facts.sources {
            wanted.guard(sources);
        }
        // A backend of weight 0 takes no new connections.
        if !facts.backends.iter().any(|(_, weight)| weight > 0) {
            wanted.insert(SetName::Refuse);
            return wanted;
        }
        wanted.slots = slots::count(facts.backends.iter());
        wanted.insert(SetName::Frontend);
        match facts.masquerade {
            Masquerade::ClusterIp => wanted.insert(SetName::ClusterIp),
            Masquerade::External => wanted.insert(SetName::Masquerade),
            Masquerade::Never => {}
        }
        if facts.drops_external_clients {
            wanted.insert(SetName::NoLocal);
        }
        if let Some(seconds) = facts.affinity_seconds {
            wanted.insert(SetName::Sticky);
            wanted.insert(SetName::StickyFor(seconds));
        }
        if by_hash {
            wanted.insert(SetName::SourceHash);
        }
        wanted
    }

    /// Whether it takes connections.
    pub fn is_served(&self) -> bool {
        self.members.contains(&SetName::Frontend)
    }

    /// How long a client stays with its backend, in seconds.
    pub fn affinity_seconds(&self) -> Option<u32> {
        self.members.iter().find_map(|set| match set {
            SetName::StickyFor(seconds) => Some(*seconds),
            _ => None,
        })
    }

    fn insert(&mut self, set: SetName) {
        insert(&mut self.members, set);
    }

    /// Overlapping ranges become one, because an interval set contains no overlaps.
    fn guard(&mut self, sources: &[IpNet]) {
        self.insert(SetName::Guarded);
        let all = self
            .allow
            .iter()
            .chain(sources)
            .copied()
            .collect::<Vec<_>>();
        self.allow = IpNet::aggregate(&all).into_iter().collect();
    }

    /// Resolves a frontend that several Services claim: one with endpoints serves it, the last in the order of the
    /// plan, and the restrictions of all apply.
    pub(super) fn settle(self, other: Self) -> Self {
        let (mut winner, loser) = match other.is_served() || !self.is_served() {
            true => (other, self),
            false => (self, other),
        };
        if loser.members.contains(&SetName::Guarded) {
            let sources: Vec<_> = loser.allow.into_iter().collect();
            winner.guard(&sources);
        }
        if winner.is_served() && loser.members.contains(&SetName::NoLocal) {
            winner.insert(SetName::NoLocal);
        }
        winner.boot_critical |= loser.boot_critical;
        winner
    }

    /// The number of backends that have no slot.
    pub(super) fn left_out(&self) -> usize {
        let most = usize::try_from(super::MAX_SLOTS).unwrap_or(usize::MAX);
        match self.backends.len() > most {
            true => SlotPlan::new(&Slots::new(), self.backends.iter()).left_out,
            false => 0,
        }
    }
}

impl FrontendElements {
    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.members.is_empty() && self.allow.is_empty()
    }

    /// The backends that take connections, with their numbers of slots.
    pub fn backends(&self) -> RealServers {
        let mut backends = RealServers::new();
        for backend in self.slots.values() {
            let slots = backends.get(backend).unwrap_or(0).saturating_add(1);
            backends.insert(*backend, slots);
        }
        backends
    }

    /// The sets that contain it.
    pub fn sets(&self) -> &[SetName] {
        &self.members
    }

    /// The ranges that may connect, if it is in [`SetName::Guarded`].
    pub fn allowed(&self) -> impl Iterator<Item = &IpNet> {
        self.allow.iter()
    }

    /// All elements.
    pub(super) fn elements(
        &self,
        frontend: VirtualServerKey,
    ) -> impl Iterator<Item = TableElement> {
        let slots = self
            .slots
            .iter()
            .map(move |(slot, backend)| TableElement::Slot {
                frontend,
                slot: *slot,
                backend: *backend,
            });
        let members = self.members.iter();
        let members = members.map(move |set| TableElement::Member {
            set: *set,
            frontend,
        });
        let allow = self.allow.iter();
        let allow = allow.map(move |range| TableElement::Allow {
            frontend,
            range: *range,
        });
        slots.chain(members).chain(allow)
    }

    /// Adds an element of this frontend.
    pub(super) fn add(&mut self, element: &TableElement) {
        match element {
            TableElement::Slot { slot, backend, .. } => {
                self.slots.insert(*slot, *backend);
            }
            TableElement::Member { set, .. } => insert(&mut self.members, *set),
            TableElement::Allow { range, .. } => {
                self.allow.insert(*range);
            }
            TableElement::Hairpin(_)
            | TableElement::Range { .. }
            | TableElement::Foreign { .. } => {}
        }
    }

    /// Removes an element of this frontend.
    pub(super) fn delete(&mut self, element: &TableElement) {
        match element {
            TableElement::Slot { slot, backend, .. } => {
                if self.slots.get(slot) == Some(backend) {
                    self.slots.remove(slot);
                }
            }
            TableElement::Member { set, .. } => self.members.retain(|held| *held != *set),
            TableElement::Allow { range, .. } => {
                self.allow.remove(range);
            }
            TableElement::Hairpin(_)
            | TableElement::Range { .. }
            | TableElement::Foreign { .. } => {}
        }
    }
}

fn insert(members: &mut Members, set: SetName) {
    if let Err(place) = members.binary_search(&set) {
        members.insert(place, set);
    }
}
