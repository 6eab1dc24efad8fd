//! What was published and what agents took, and the invariants about both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_plan::{NodePlan, PlanHash};

use crate::api::ApiServer;
use crate::contents::{self, ObjectState};
use crate::objects::Name;

/// An invariant that the simulation checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I-1: all controllers plan the same from the same objects.
    SamePlans,
    /// I-2: a plan of an agent is one that a controller published for its node.
    WholePlans,
    /// I-9: a slow agent does not delay other agents.
    SlowAgents,
    /// I-10: nothing is published before every kind was listed.
    ListedFirst,
    /// I-12: an agent never returns to an older plan.
    NoOlderPlans,
    /// At most one controller leads.
    OneLeader,
    /// Lists that agents request have a minimum interval, whatever agents report.
    RareLists,
    /// Once all interruptions have ended, each agent returns to its first controller.
    FirstController,
    /// Once all interruptions have ended, every node has the newest plan in force, and nothing more is requested.
    Settles,
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

/// A result of a check.
pub(crate) type Checked = Result<(), Violation>;

/// A violation with its text.
pub(crate) fn violated(invariant: Invariant, text: String) -> Checked {
    Err(Violation { invariant, text })
}

/// Records what controllers publish and what agents take.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    api: Arc<ApiServer>,
    records: Arc<Mutex<Records>>,
}

#[derive(Debug, Default)]
struct Records {
    /// The hashes of all published plans of each node.
    published: BTreeMap<usize, BTreeSet<u128>>,
    /// For each node, the place of the last state of each object in the history of the object.
    places: BTreeMap<(usize, Name), usize>,
    /// Whether the store is older than plans, which is then no violation.
    restoring: bool,
    violation: Option<Violation>,
}

impl Witness {
    /// A witness of everything made from the objects of this API server.
    pub(crate) fn new(api: Arc<ApiServer>) -> Self {
        Self {
            api,
            records: Arc::default(),
        }
    }

    /// A controller has published plans of these nodes. `first` names its run if these are its first plans.
    pub(crate) fn published(
        &self,
        plans: impl IntoIterator<Item = (usize, PlanHash)>,
        first: Option<u64>,
    ) {
        let mut records = self.records();
        for (node, hash) in plans {
            records.published.entry(node).or_default().insert(hash.0);
        }
        if let Some(run) = first.filter(|run| !self.api.has_listed_all(*run)) {
            let text = format!("run {run} of a controller published before it had all lists");
            records.violate(Invariant::ListedFirst, text);
        }
    }

    /// An agent has taken a plan from a controller.
    pub(crate) fn took(&self, node: usize, plan: &NodePlan) {
        let mut records = self.records();
        let hash = plan.hash();
        let of_node = records.published.get(&node);
        if !of_node.is_some_and(|hashes| hashes.contains(&hash.0)) {
            let text = format!("node {node} has plan {hash}, which no controller published");
            records.violate(Invariant::WholePlans, text);
        }
        match contents::read(node, plan) {
            Ok(states) => {
                for (name, state) in states {
                    let states = self.api.history(name);
                    records.observe(node, name, state, &states);
                }
            }
            Err(error) => records.violate(Invariant::WholePlans, format!("node {node}: {error}")),
        }
    }

    /// The store is about to be replaced by an older one.
    pub(crate) fn restoring(&self) {
        self.records().restoring = true;
    }

    /// All agents have plans of the replaced store.
    pub(crate) fn restored(&self) {
        let mut records = self.records();
        records.restoring = false;
        let api = &self.api;
        for ((_, name), place) in &mut records.places {
            *place = api.history(*name).len().saturating_sub(1);
        }
    }

    /// The first violation so far.
    pub(crate) fn check(&self) -> Checked {
        match self.records().violation.clone() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn violate(&mut self, invariant: Invariant, text: String) {
        self.violation.get_or_insert(Violation { invariant, text });
    }

    /// A plan of a node was made from this state of an object, whose states in order are `history`.
    fn observe(&mut self, node: usize, name: Name, state: ObjectState, history: &[ObjectState]) {
        let last = self.places.entry((node, name)).or_default();
        match place_from(*last, state, history) {
            Some(place) => *last = place,
            None if self.restoring => {}
            None => {
                let from = history.len().saturating_sub(8);
                let newest = history.get(from..).unwrap_or_default();
                let text = format!(
                    "node {node}: {name} went from place {last} of {} back to state {state:?}; the newest states are \
                     {newest:?}",
                    history.len()
                );
                self.violate(Invariant::NoOlderPlans, text);
            }
        }
    }
}

/// The first place of a state, from this place on.
fn place_from(from: usize, state: ObjectState, history: &[ObjectState]) -> Option<usize> {
    let later = history.get(from..).unwrap_or_default();
    let found = later.iter().position(|of| *of == state)?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_found_in_the_order_of_the_store() {
        let history = [None, Some(1), None, Some(2), Some(1)];
        let mut records = Records::default();
        let mut observe = |state| records.observe(0, Name::Node(0), state, &history);
        observe(Some(1));
        observe(None);
        observe(Some(2));
        // The store was restored, so the first state is also the last one.
        observe(Some(1));
        assert_eq!(records.violation, None);
        records.observe(0, Name::Node(0), Some(2), &history);
        let violation = records.violation.unwrap();
        assert_eq!(violation.invariant, Invariant::NoOlderPlans);
    }
}
