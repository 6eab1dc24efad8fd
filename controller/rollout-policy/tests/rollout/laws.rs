//! Laws for every history of a cluster and its rollouts (I-14).

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_rollout_policy::{By, Gates, OnFailure, Policy, Revision, Share, Stage, State};
use proptest::prelude::*;

use crate::world::{Agent, World};

/// An event between two decisions.
#[derive(Debug, Clone)]
enum Act {
    /// Time passes.
    Pass(u64),
    /// Some nodes apply their revision.
    Take(u8),
    Leave(u8),
    Return(u8),
    Fail(u8),
    Heal(u8),
    Join(u8),
    Remove(u8),
    Pause,
    Resume,
    Ask(u8),
    Undo(Option<u64>),
    /// Nothing but another decision.
    Decide,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..400u64).prop_map(Act::Pass),
        8 => any::<u8>().prop_map(Act::Take),
        1 => any::<u8>().prop_map(Act::Leave),
        2 => any::<u8>().prop_map(Act::Return),
        1 => any::<u8>().prop_map(Act::Fail),
        2 => any::<u8>().prop_map(Act::Heal),
        1 => any::<u8>().prop_map(Act::Join),
        1 => any::<u8>().prop_map(Act::Remove),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        2 => (0..4u8).prop_map(Act::Ask),
        1 => proptest::option::of(1..6u64).prop_map(Act::Undo),
        4 => Just(Act::Decide),
    ]
}

prop_compose! {
    fn policy()(
        canaries in 0..4u32,
        soak in 0..500u64,
        zones in any::<bool>(),
        parallel in prop_oneof![(0..5u32).prop_map(Share::Count), (1..60u32).prop_map(Share::Percent)],
        unavailable in (0..3u32).prop_map(Share::Count),
        rollback in any::<bool>(),
        max_failed in 0..2u32,
    ) -> Policy {
        Policy {
            canaries,
            soak,
            by: if zones { By::Zone } else { By::All },
            max_parallel: parallel,
            max_unavailable: unavailable,
            on_failure: if rollback { OnFailure::Rollback } else { OnFailure::Pause },
            gates: Gates { max_failed, ..Gates::default() },
            ..Policy::default()
        }
    }
}

fn world() -> impl Strategy<Value = World> {
    let parts = (1..25usize, 1..5usize, policy(), any::<bool>());
    parts.prop_map(|(nodes, zones, policy, replaces)| {
        let mut world = World::new(nodes, zones, policy);
        world.replaces = replaces;
        world.ask("2");
        world
    })
}

/// One of the nodes.
fn pick(world: &World, number: u8) -> Option<Arc<str>> {
    let count = world.agents.len();
    let index = usize::from(number).checked_rem(count)?;
    world.agents.keys().nth(index).cloned()
}

fn happen(world: &mut World, act: &Act) {
    let mut change = |number: u8, change: fn(&mut Agent)| {
        if let Some(agent) = pick(world, number).and_then(|name| world.agents.get_mut(&name)) {
            change(agent);
        }
    };
    match *act {
        Act::Leave(number) => change(number, |agent| agent.connected = false),
        Act::Return(number) => change(number, |agent| agent.connected = true),
        Act::Fail(number) => change(number, |agent| agent.failing = true),
        Act::Heal(number) => change(number, |agent| agent.failing = false),
        Act::Pass(seconds) => world.now += seconds,
        Act::Take(number) => world.take(|name| {
            let sum: u32 = name.bytes().map(u32::from).sum();
            !(sum + u32::from(number)).is_multiple_of(3)
        }),
        Act::Join(number) => {
            let agent = Agent {
                applied: None,
                connected: number % 2 == 0,
                ..Agent::sound(&format!("zone-{}", number % 5), 0)
            };
            world
                .agents
                .insert(format!("joined-{number}").into(), agent);
        }
        Act::Remove(number) => {
            if let Some(name) = pick(world, number) {
                world.agents.remove(&name);
            }
        }
        Act::Pause => world.policy().paused = true,
        Act::Resume => world.policy().paused = false,
        Act::Ask(number) => world.ask(&format!("{number}")),
        Act::Undo(revision) => world.policy().rollback_to = revision,
        Act::Decide => {}
    }
}

/// The nodes to which the change in progress is assigned.
fn touched(world: &World) -> BTreeSet<Arc<str>> {
    match &world.state.stage {
        Stage::Rolling(progress) => world.given(progress.target),
        Stage::Complete | Stage::RolledBack { .. } => BTreeSet::new(),
    }
}

/// Of those, the nodes that could have answered and have not.
fn unanswered(world: &World) -> usize {
    let Stage::Rolling(progress) = &world.state.stage else {
        return 0;
    };
    let open = |name: &&Arc<str>| {
        let agent = &world.agents[*name];
        let fails = agent.failing || !agent.connected;
        !progress.excused.contains(*name) && !fails && agent.applied != Some(progress.target)
    };
    touched(world).iter().filter(open).count()
}

/// Of those, the nodes that have lost their agent, or whose agent fails.
fn lost(world: &World) -> usize {
    let Stage::Rolling(progress) = &world.state.stage else {
        return 0;
    };
    let lost = |name: &&Arc<str>| {
        let agent = &world.agents[*name];
        if progress.excused.contains(*name) {
            return agent.connected && agent.applied != Some(progress.target);
        }
        let had = agent.applied.is_some() || progress.reach.nodes.contains(*name);
        (agent.connected && agent.failing) || (!agent.connected && had)
    };
    touched(world).iter().filter(lost).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_decision_reaches_more_nodes_than_may_be_without_an_answer(
        mut world in world(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        for act in acts {
            happen(&mut world, &act);
            let (before, open) = (touched(&world), unanswered(&world));
            let same = world.state.rolling().map(|progress| progress.target);
            world.decide();
            let now = world.state.rolling().map(|progress| progress.target);
            let before = if same == now { before } else { BTreeSet::new() };
            let open = if same == now { open } else { 0 };
            let new = touched(&world).difference(&before).count();
            let most = world.policy().max_parallel.of(world.agents.len()).max(1);
            prop_assert!(new == 0 || new + open <= most, "{new} new, {open} open, {most} at most");
        }
    }

    /// A replaced agent is briefly disconnected.
    #[test]
    fn no_more_agents_are_replaced_at_once_than_may_be_unavailable(
        mut world in world(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        world.replaces = true;
        for act in acts {
            happen(&mut world, &act);
            let (before, missing) = (touched(&world), unanswered(&world) + lost(&world));
            let same = world.state.rolling().map(|progress| progress.target);
            world.decide();
            let now = world.state.rolling().map(|progress| progress.target);
            if now.is_none() || now != same {
                continue;
            }
            let new = touched(&world).difference(&before).count();
            let most = world.policy().max_unavailable.of(world.agents.len()).max(1);
            prop_assert!(new == 0 || new + missing <= most, "{new} new, {missing} missing, {most} at most");
        }
    }

    #[test]
    fn reached_nodes_stay_reached_until_the_change_ends(
        mut world in world(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        for act in acts {
            happen(&mut world, &act);
            let target = world.state.rolling().map(|progress| progress.target);
            let (before, current) = (touched(&world), world.state.current);
            world.decide();
            let now = world.state.rolling().map(|progress| progress.target);
            if now.is_some() && now == target {
                prop_assert!(touched(&world).is_superset(&before));
                prop_assert_eq!(world.state.current, current);
                continue;
            }
            // The change ended: it is in force everywhere, or the nodes that had it are back on their former
            // revision.
            let all: BTreeSet<_> = world.agents.keys().cloned().collect();
            if Some(world.state.current) == target && current != world.state.current {
                prop_assert_eq!(world.given(world.state.current), all);
            } else if now.is_none() {
                prop_assert_eq!(world.given(current), all);
            } else {
                let others: BTreeSet<_> = all.difference(&touched(&world)).cloned().collect();
                prop_assert_eq!(world.given(current), others);
            }
        }
    }

    #[test]
    fn a_paused_rollout_reaches_no_node_and_rolls_nothing_back_by_itself(
        mut world in world(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        for act in acts {
            happen(&mut world, &act);
            let before = touched(&world);
            world.decide();
            if !world.policy().paused {
                continue;
            }
            let after = touched(&world);
            prop_assert!(after.is_subset(&before), "{after:?} after {before:?}");
            if after != before {
                prop_assert_eq!(&world.state.stage, &Stage::Complete, "only if it was removed from the spec");
                prop_assert!(world.state.reason.ends_with("was rolled back"));
            }
        }
    }

    /// The state is the only memory: a second call, by this or another controller, changes nothing.
    #[test]
    fn a_second_decision_on_the_same_input_changes_nothing(
        mut world in world(),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        for act in acts {
            happen(&mut world, &act);
            world.decide();
            let mut settled = world.clone();
            settled.decide();
            let reached = (touched(&settled), settled.state.current);
            let first = (touched(&world), world.state.current);
            let (wave, now) = (
                world.state.rolling().map(|progress| progress.wave.clone()),
                settled.state.rolling().map(|progress| progress.wave.clone()),
            );
            // After the end of a wave the next one starts, and no node receives the change twice.
            prop_assert!(reached.0.is_superset(&first.0) || now.is_none());
            if wave == now {
                let new = reached.0.difference(&first.0).count();
                let most = world.policy().max_parallel.of(world.agents.len()).max(1);
                prop_assert!(new <= most);
            }
            // The last wave may end with this call: then its revision becomes the last one in force.
            prop_assert_eq!(by_number(&settled.decided()), by_number(&settled.state));
        }
    }

    #[test]
    fn if_nothing_fails_every_node_ends_with_the_desired_settings(
        mut world in world(),
        acts in prop::collection::vec(act(), 0..60),
    ) {
        for act in acts {
            happen(&mut world, &act);
            world.decide();
        }
        for agent in world.agents.values_mut() {
            (agent.connected, agent.failing, agent.coming) = (true, false, false);
        }
        // Resuming retries what was rolled back or halted.
        world.policy().rollback_to = None;
        world.policy().paused = true;
        world.decide();
        world.policy().paused = false;
        for _ in 0..2000 {
            world.decide();
            // A replaced agent returns in time.
            world.take(|_| true);
            world.take(|_| true);
            world.now += 100;
        }
        prop_assert_eq!(&world.state.stage, &Stage::Complete, "{}", world.summary());
        let current = world.state.revision(world.state.current).unwrap();
        prop_assert_eq!(&current.content, &world.asked.content);
        prop_assert!(world.agents.values().all(|agent| agent.applied == Some(world.state.current)));
    }

    #[test]
    fn a_failing_change_reaches_only_the_first_nodes(
        nodes in 1..40usize,
        zones in 1..4usize,
        policy in policy(),
    ) {
        let policy = Policy { on_failure: OnFailure::Rollback, gates: Gates::default(), ..policy };
        let mut world = World::new(nodes, zones, policy.clone());
        world.poison = Some("2".into());
        world.ask("2");
        let mut most = 0;
        for _ in 0..50 {
            world.decide();
            most = most.max(touched(&world).len());
            world.take(|_| true);
            world.now += 100;
        }
        prop_assert_eq!(world.state.current, 1);
        let rolled_back = matches!(world.state.stage, Stage::RolledBack { .. });
        prop_assert!(rolled_back, "{}", world.summary());
        prop_assert!(world.agents.values().all(|agent| agent.applied == Some(1)));
        prop_assert!(most <= policy.max_parallel.of(nodes).max(1));
    }
}

/// The history in the order of revision numbers.
fn by_number(state: &State) -> Vec<Revision> {
    let mut history = state.history.clone();
    history.sort_by_key(|revision| revision.number);
    history
}
