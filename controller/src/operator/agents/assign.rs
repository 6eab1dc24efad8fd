//! Decides the template and node selection of both DaemonSets, and which nodes have to move. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::track::{Sets, Takes, Track};

/// The wanted agents, as hashes of templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'w> {
    /// For nodes that the rollout has not reached.
    pub(super) current: &'w str,
    /// For nodes that the rollout has reached; `None` unless agents are being rolled out.
    pub(super) target: Option<&'w str>,
}

/// A node that agents run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name.
    pub(super) name: Arc<str>,
    /// The track in its label. An unknown value counts as no label.
    pub(super) label: Option<Track>,
    /// Whether the current rollout has reached it.
    pub(super) reached: bool,
}

/// A node that should belong to the other DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    /// The node.
    pub(super) node: Arc<str>,
    /// The DaemonSet that it should belong to.
    pub(super) to: Track,
    /// Its new label; `None` removes the label.
    pub(super) label: Option<Track>,
    /// The waves do not pace this move: the node goes back, or its DaemonSet is needed for other nodes.
    pub(super) back: bool,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The wanted DaemonSets.
    pub(super) sets: Sets,
    /// Nodes to be moved, in order.
    pub(super) moves: Vec<Move>,
}

/// Decides on both DaemonSets and on moves. `occupied` are DaemonSets that still have a pod. A terminating pod does
/// not count, because the DaemonSet does not recreate it.
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
    let rest_is_unassigned = takes == Takes::Labelled && held.takes(other) != Some(Takes::Rest);
    match (wanted.target, held.takes(other)) {
        (Some(target), _) if !ready && is_free() => sets.put(other, target, Takes::Labelled),
        // A manual change: two DaemonSets that both take the rest would both put a pod on the same node.
        (None, Some(Takes::Rest)) if takes == Takes::Rest => {
            sets.put(other, wanted.current, Takes::Labelled);
        }
        // The rollout is complete, so new nodes need the new agents, too.
        (None, Some(Takes::Rest)) => sets.put(other, wanted.current, Takes::Rest),
        // One DaemonSet has to take nodes without a label.
        (None, None) if rest_is_unassigned => sets.put(other, wanted.current, Takes::Rest),
        (None, Some(Takes::Labelled)) if rest_is_unassigned && is_free() => {
            sets.put(other, wanted.current, Takes::Rest);
        }
        _ => {}
    }
    // Nodes that joined during the rollout move home, too, so that the next rollout finds the other DaemonSet empty.
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

/// The DaemonSet of nodes that the rollout has not reached: the one with the current template. If both have it, or
/// neither, the one with more nodes.
fn home(held: &Sets, current: &str, members: &[Member]) -> Track {
    let nodes = |track: Track| {
        let at_it = |member: &&Member| held.of(member.label) == Some(track);
        members.iter().filter(at_it).count()
    };
    let rank = |track: &Track| {
        let place = match held.takes(*track) {
            Some(Takes::Rest) => 2,
            // No DaemonSet takes the rest then; the missing one will.
            None => 1,
            Some(Takes::Labelled) => 0,
        };
        (held.has(*track, current), nodes(*track), place)
    };
    let mut tracks = Track::ALL;
    tracks.sort_by_key(|track| Reverse(rank(track)));
    tracks[0]
}

/// The moves that may be carried out now: all moves of nodes that the rollout has reached, because the waves pace
/// them; moves back of nodes without a working agent; and further moves back while at most `most` nodes are under
/// way.
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
