//! The steps of a simulation, chosen by its seed alone.

use std::time::Duration;

use portolan_planner::model::Kind;

use crate::choices::Choices;
use crate::link::Passage;
use crate::objects::{NODES, Name};

/// Maximum number of changes at once.
const MAX_CHANGES: usize = 12;

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Objects change.
    Change(Vec<Change>),
    /// The events of a kind reach a controller later.
    Lag {
        slot: usize,
        kind: Kind,
        lag: Duration,
    },
    /// The connection of a controller to the API server changes.
    ApiLink { slot: usize, passage: Passage },
    /// The connection of an agent to a controller changes.
    Link {
        agent: usize,
        slot: usize,
        passage: Passage,
        latency: Duration,
    },
    /// The next batch from a controller to an agent announces a wrong hash.
    WrongHash { agent: usize, slot: usize },
    /// A controller crashes, or ends gracefully. If it does not run, it starts.
    Controller { slot: usize, gracefully: bool },
    /// An agent crashes. If it does not run, it starts.
    Agent { agent: usize },
    /// The passes of an agent stop, or go on.
    Stall { agent: usize, stalls: bool },
    /// The passes of an agent fail, or succeed again.
    Fail { agent: usize, fails: bool },
    /// The API server forgets old events.
    Compact,
    /// The store is copied.
    BackUp,
    /// The store is replaced by its last copy.
    Restore,
    /// Time passes.
    Pass(Duration),
}

/// A change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is created, or gets another state.
    Put(Name),
    /// It is deleted.
    Delete(Name),
}

impl Step {
    /// Chooses a step for this number of controllers.
    pub(crate) fn choose(choices: &mut Choices, controllers: usize) -> Self {
        let slot = choices.below(controllers);
        let agent = choices.below(NODES);
        match choices.below(100) {
            0..24 => Self::Change(vec![change(choices)]),
            24..28 => {
                let count = 2 + choices.below(MAX_CHANGES - 1);
                Self::Change((0..count).map(|_| change(choices)).collect())
            }
            28..34 => Self::Lag {
                slot,
                kind: *pick(choices, &Kind::ALL, &Kind::Service),
                lag: choices.milliseconds(0, 3_000),
            },
            34..41 => Self::ApiLink {
                slot,
                passage: passage(choices),
            },
            41..51 => Self::Link {
                agent,
                slot,
                passage: passage(choices),
                latency: choices.milliseconds(1, 40),
            },
            51..54 => Self::WrongHash { agent, slot },
            54..60 => Self::Controller {
                slot,
                gracefully: choices.one_in(2),
            },
            60..65 => Self::Agent { agent },
            65..69 => Self::Stall {
                agent,
                stalls: choices.one_in(2),
            },
            69..73 => Self::Fail {
                agent,
                fails: choices.one_in(2),
            },
            73..75 => Self::Compact,
            75..77 => Self::BackUp,
            77 => Self::Restore,
            _ => Self::Pass(time(choices)),
        }
    }
}

fn pick<'a, T>(choices: &mut Choices, all: &'a [T], or: &'a T) -> &'a T {
    all.get(choices.below(all.len())).unwrap_or(or)
}

/// Nodes only change; Services and slices are deleted, too.
fn change(choices: &mut Choices) -> Change {
    let all: Vec<Name> = Name::all().collect();
    let name = *pick(choices, &all, &Name::Node(0));
    let is_deleted = choices.one_in(5);
    match name {
        Name::Service(_) | Name::Slice(_) if is_deleted => Change::Delete(name),
        _ => Change::Put(name),
    }
}

fn passage(choices: &mut Choices) -> Passage {
    *pick(
        choices,
        &[Passage::Up, Passage::Up, Passage::Held, Passage::Cut],
        &Passage::Up,
    )
}

/// Mostly short times, and now and then one that is longer than timeouts.
fn time(choices: &mut Choices) -> Duration {
    match choices.below(10) {
        0..4 => choices.milliseconds(1, 50),
        4..7 => choices.milliseconds(50, 1_000),
        7..9 => choices.milliseconds(1_000, 6_000),
        _ => choices.milliseconds(6_000, 25_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_steps() {
        let steps = |seed| {
            let mut choices = Choices::from_seed(seed);
            (0..200)
                .map(|_| Step::choose(&mut choices, 3))
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }
}
