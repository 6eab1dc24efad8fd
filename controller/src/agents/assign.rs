//! What both DaemonSets should be, and which nodes belong to the wrong one. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::track::{Sets, Takes, Track};

/// What agents should be, by the hashes of templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'w> {
    /// On nodes that no change has reached.
    pub(super) current: &'w str,
    /// On those that one has; nothing unless a change of agents is on its way.
    pub(super) target: Option<&'w str>,
}

/// A node that agents run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name.
    pub(super) name: Arc<str>,
    /// What its label says; another text says nothing.
    pub(super) label: Option<Track>,
    /// Whether the change on its way has reached it.
    pub(super) reached: bool,
}

/// A node that should belong to the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    /// The node.
    pub(super) node: Arc<str>,
    /// Where it should belong.
    pub(super) to: Track,
    /// Its label from then on.
    pub(super) label: Option<Track>,
    /// Nobody paced it: it goes back, or the DaemonSet that it is at is needed for others.
    pub(super) back: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// What the DaemonSets should be now.
    pub(super) sets: Sets,
    /// Nodes to be moved, in order.
    pub(super) moves: Vec<Move>,
}

/// Decides. `occupied` are DaemonSets that still have a pod somewhere; one that ends does not count, because nothing
/// makes it anew.
#[must_use]
pub(super) fn assign(
    held: &Sets,
    wanted: Wanted<'_>,
    members: &[Member],
    occupied: &BTreeSet<Track>,
) -> Assignment {
    let home = home(held, wanted.current, members);
    let other = home.other();
    let mut sets = held.clone();
    let takes = held.takes(home).unwrap_or(match held.takes(other) {
        Some(Takes::Rest) => Takes::Labelled,
        Some(Takes::Labelled) | None => Takes::Rest,
    });
    sets.put(home, wanted.current, takes);
    let is_free = || {
        let at_it = |member: &Member| held.of(member.label) == Some(other);
        !occupied.contains(&other) && !members.iter().any(at_it)
    };
    let ready = wanted.target.is_some_and(|target| {
        held.has(other, target) && held.takes(other) == Some(Takes::Labelled)
    });
    let nobody_takes_rest = takes == Takes::Labelled && held.takes(other) != Some(Takes::Rest);
    match (wanted.target, held.takes(other)) {
        (Some(target), _) if !ready && is_free() => sets.put(other, target, Takes::Labelled),
        // Somebody changed one by hand: of two that take the rest each would put a pod on a node.
        (None, Some(Takes::Rest)) if takes == Takes::Rest => {
            sets.put(other, wanted.current, Takes::Labelled);
        }
        // A change is through: whoever joins has to have it, too.
        (None, Some(Takes::Rest)) => sets.put(other, wanted.current, Takes::Rest),
        // Somebody has to take the rest.
        (None, None) if nobody_takes_rest => sets.put(other, wanted.current, Takes::Rest),
        (None, Some(Takes::Labelled)) if nobody_takes_rest && is_free() => {
            sets.put(other, wanted.current, Takes::Rest);
        }
        _ => {}
    }
    // Those that have joined go home, too: a change then finds the other one empty.
    let goal = |member: &Member| match ready && member.reached {
        true => other,
        false => home,
    };
    let moves = members.iter().filter_map(|member| {
        let to = goal(member);
        (held.of(member.label) != Some(to)).then(|| Move {
            node: member.name.clone(),
            to,
            label: (sets.rest() != Some(to)).then_some(to),
            back: to == home,
        })
    });
    Assignment {
        moves: moves.collect(),
        sets,
    }
}

/// The one that nodes are at which no change has reached: it is made of what they have. Where both are, or
/// none is, the one that has most of them.
fn home(held: &Sets, current: &str, members: &[Member]) -> Track {
    let nodes = |track: Track| {
        let at_it = |member: &&Member| held.of(member.label) == Some(track);
        members.iter().filter(at_it).count()
    };
    let rank = |track: &Track| {
        let place = match held.takes(*track) {
            Some(Takes::Rest) => 2,
            // Nobody takes the rest then; the one that is missing will.
            None => 1,
            Some(Takes::Labelled) => 0,
        };
        (held.has(*track, current), nodes(*track), place)
    };
    let mut tracks = Track::ALL;
    tracks.sort_by_key(|track| Reverse(rank(track)));
    tracks[0]
}

/// The moves that may be carried out now: those that a change has reached, whose pace is its own, and of those that
/// go back the ones that have no agent in order to lose, and so many others that no more than `most` are on their way.
#[must_use]
pub(super) fn due(
    moves: &[Move],
    under_way: usize,
    most: usize,
    serves: impl Fn(&str) -> bool,
) -> Vec<&Move> {
    let mut room = most.saturating_sub(under_way);
    let is_due = |one: &&Move| {
        if !one.back || !serves(&one.node) {
            return true;
        }
        let has_room = room > 0;
        room = room.saturating_sub(1);
        has_room
    };
    moves.iter().filter(is_due).collect()
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
