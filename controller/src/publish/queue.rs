//! A queue of items with a due time and a priority class. Pure; the time since the start is an argument.
//!
//! Invariant: no item waits forever. Long overdue items have their own share of turns, regardless of items with a
//! higher priority.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The priority among due items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Users wait for it: new nodes, changed conditions.
    Urgent,
    /// The plan of a node changed.
    Plan,
    /// Objects that nodes share changed.
    Shared,
    /// Not urgent: counts, heartbeats, comparisons.
    Background,
}

impl Class {
    /// Number of classes.
    const COUNT: usize = 4;

    fn place(self) -> usize {
        match self {
            Self::Urgent => 0,
            Self::Plan => 1,
            Self::Shared => 2,
            Self::Background => 3,
        }
    }
}

/// Time after its due time from which an item counts as overdue.
const OVERDUE_AFTER: Duration = Duration::from_secs(60);
/// One in this many turns goes to overdue items.
const TURNS_PER_OVERDUE_ITEM: u32 = 4;

/// Due items, each at most once.
#[derive(Debug)]
pub struct Queue<T> {
    turn: u32,
    known: BTreeMap<T, (Class, Duration)>,
    due: [BTreeSet<(Duration, T)>; Class::COUNT],
}

impl<T: Ord> Default for Queue<T> {
    fn default() -> Self {
        Self {
            turn: 0,
            known: BTreeMap::new(),
            due: Default::default(),
        }
    }
}

impl<T: Ord + Clone> Queue<T> {
    /// Adds an item. An item that is already queued only moves forward: it keeps its earlier due time and its higher
    /// class.
    pub fn push(&mut self, thing: T, class: Class, due: Duration) {
        let (mut class, mut due) = (class, due);
        if let Some((old_class, old_due)) = self.known.get(&thing).copied() {
            class = class.min(old_class);
            due = due.min(old_due);
            self.due[old_class.place()].remove(&(old_due, thing.clone()));
        }
        self.due[class.place()].insert((due, thing.clone()));
        self.known.insert(thing, (class, due));
    }

    /// Takes the first due item.
    pub fn take(&mut self, now: Duration) -> Option<(T, Class)> {
        self.turn = self.turn.wrapping_add(1);
        let firsts = self.due.iter().map(BTreeSet::first).enumerate();
        let firsts = firsts.filter_map(|(place, first)| Some((place, first?.0)));
        let due: Vec<_> = firsts.filter(|(_, due)| *due <= now).collect();
        let overdue = due.iter().filter(|(_, due)| *due + OVERDUE_AFTER <= now);
        let overdue = overdue.min_by_key(|(_, due)| *due);
        let (place, _) = match overdue {
            Some(overdue) if self.turn.is_multiple_of(TURNS_PER_OVERDUE_ITEM) => overdue,
            _ => due.first()?,
        };
        let (_, thing) = self.due[*place].pop_first()?;
        let (class, _) = self.known.remove(&thing)?;
        Some((thing, class))
    }

    /// When the next item is due.
    pub fn next_due(&self) -> Option<Duration> {
        let firsts = self.due.iter().filter_map(BTreeSet::first);
        firsts.map(|(due, _)| *due).min()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the queue has no items.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn due_targets_are_ordered_by_class_then_by_time() {
        let mut queue = Queue::default();
        queue.push("figures", Class::Background, at(1));
        queue.push("plan", Class::Plan, at(3));
        queue.push("older plan", Class::Plan, at(2));
        queue.push("not yet", Class::Urgent, at(9));
        let mut taken = Vec::new();
        while let Some((thing, _)) = queue.take(at(5)) {
            taken.push(thing);
        }
        assert_eq!(taken, ["older plan", "plan", "figures"]);
        assert_eq!(queue.next_due(), Some(at(9)));
    }

    #[test]
    fn long_overdue_targets_get_a_quarter_of_the_turns() {
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.push(number, Class::Urgent, at(100));
            queue.push(1000 + number, Class::Background, at(1));
        }
        let taken: Vec<_> = (0..40).filter_map(|_| queue.take(at(100))).collect();
        let background = taken
            .iter()
            .filter(|(_, class)| *class == Class::Background);
        assert_eq!((taken.len(), background.count()), (40, 10));
        assert_eq!(taken[0].1, Class::Urgent);
    }

    #[test]
    fn a_target_is_queued_once_and_only_moves_forward() {
        let mut queue = Queue::default();
        queue.push("a", Class::Background, at(300));
        queue.push("a", Class::Urgent, at(10));
        queue.push("a", Class::Background, at(600));
        assert_eq!((queue.len(), queue.next_due()), (1, Some(at(10))));
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.take(at(10)), Some(("a", Class::Urgent)));
        assert!(queue.is_empty() && queue.next_due().is_none());
    }
}
