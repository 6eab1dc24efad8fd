//! What is to be looked at, when, and what goes first. Pure; the time since the start is an
//! argument.
//!
//! Invariant: nothing waits for ever. What is long overdue has a share of its own, however much goes
//! before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What goes first among things that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Somebody waits to see it: new nodes, conditions that change.
    Urgent,
    /// The plan of a node changed.
    Plan,
    /// What nodes share changed.
    Shared,
    /// It can wait: figures, heartbeats, comparisons.
    Background,
}

impl Class {
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

/// How long something waits behind others before it is overdue.
const PATIENCE: Duration = Duration::from_secs(60);
/// One in so many turns belongs to what is overdue.
const SHARE: u32 = 4;

/// Things to look at, each once.
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
    /// Looks at it when it is due. What is in the queue already moves forward, never back.
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

    /// Takes what is due and goes first.
    pub fn take(&mut self, now: Duration) -> Option<(T, Class)> {
        self.turn = self.turn.wrapping_add(1);
        let firsts = self.due.iter().map(BTreeSet::first).enumerate();
        let firsts = firsts.filter_map(|(place, first)| Some((place, first?.0)));
        let due: Vec<_> = firsts.filter(|(_, due)| *due <= now).collect();
        let overdue = due.iter().filter(|(_, due)| *due + PATIENCE <= now);
        let overdue = overdue.min_by_key(|(_, due)| *due);
        let (place, _) = match overdue {
            Some(overdue) if self.turn.is_multiple_of(SHARE) => overdue,
            _ => due.first()?,
        };
        let (_, thing) = self.due[*place].pop_first()?;
        let (class, _) = self.known.remove(&thing)?;
        Some((thing, class))
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Duration> {
        let firsts = self.due.iter().filter_map(BTreeSet::first);
        firsts.map(|(due, _)| *due).min()
    }

    /// How many things are in it.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is nothing to look at.
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
    fn what_is_due_goes_by_class_then_by_time() {
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
    fn what_is_long_overdue_has_a_quarter_of_the_turns() {
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
    fn a_thing_is_in_it_once_and_only_moves_forward() {
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
