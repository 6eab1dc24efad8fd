//! Rollouts as an operator sees them.

use portolan_rollout_policy::{By, OnFailure, Policy, Share, Stage};

use crate::world::{Agent, World};

pub(crate) fn policy() -> Policy {
    Policy {
        soak: 120,
        max_parallel: Share::Count(2),
        ..Policy::default()
    }
}

fn world() -> World {
    World::new(9, 3, policy())
}

#[test]
fn a_change_goes_to_a_canary_then_zone_by_zone_and_is_watched_in_between() {
    let mut world = world();
    world.ask("two");
    let lines = world.run(100);
    assert_eq!(
        lines,
        [
            "canary Progressing 1/9",
            "canary Soaking 1/9",
            "zone zone-0 Progressing 1/9",
            "zone zone-0 Progressing 3/9",
            "zone zone-0 Progressing 4/9",
            "zone zone-0 Soaking 4/9",
            "zone zone-1 Progressing 4/9",
            "zone zone-1 Progressing 6/9",
            "zone zone-1 Soaking 6/9",
            "zone zone-2 Progressing 6/9",
            "zone zone-2 Progressing 8/9",
            "zone zone-2 Progressing 9/9",
            "zone zone-2 Soaking 9/9",
            "Complete 2",
        ]
    );
    assert_eq!(world.given(2).len(), 9);
}

#[test]
fn by_all_there_is_one_wave_after_the_canaries() {
    let mut world = World::new(10, 2, policy());
    world.policy().by = By::All;
    world.policy().canaries = 3;
    world.policy().max_parallel = Share::Percent(40);
    world.ask("two");
    let lines = world.run(100);
    assert_eq!(
        lines,
        [
            "canary Progressing 3/10",
            "canary Soaking 3/10",
            "all Progressing 3/10",
            "all Progressing 7/10",
            "all Progressing 10/10",
            "all Soaking 10/10",
            "Complete 2",
        ]
    );
}

#[test]
fn a_rollback_skips_revisions_that_were_never_in_force() {
    let mut world = world();
    world.ask("two");
    world.decide();
    world.ask("three");
    world.run(100);
    let numbers: Vec<_> = world.state.history.iter().map(|held| held.number).collect();
    assert_eq!(numbers, [2, 1, 3]);
}

#[test]
fn a_failed_change_is_rolled_back_and_not_retried_before_a_pause() {
    let mut world = world();
    world.poison = Some("two".into());
    world.ask("two");
    let lines = world.run(10);
    assert_eq!(lines, ["canary Progressing 1/9", "RolledBack 1"]);
    assert!(world.given(2).is_empty());
    assert!(world.agents.values().all(|agent| agent.applied == Some(1)));
    let reason = &world.state.reason;
    assert!(reason.contains("maxFailedNodes is 0"), "{reason}");
    assert!(reason.contains("it does not work"), "{reason}");
    world.poison = None;
    assert_eq!(world.run(10), ["RolledBack 1"]);
    world.policy().paused = true;
    assert_eq!(world.run(10), ["RolledBack 1"]);
    world.policy().paused = false;
    assert_eq!(world.run(1), ["canary Progressing 1/9"]);
    assert_eq!(world.run(100).last().unwrap(), "Complete 2");
}

#[test]
fn with_on_failure_pause_no_other_node_gets_it_until_the_rollout_is_resumed() {
    let mut world = world();
    world.policy().on_failure = OnFailure::Pause;
    world.ask("two");
    world.run(2);
    let canary = world.given(2).into_iter().next().unwrap();
    world.agents.get_mut(&canary).unwrap().failing = true;
    assert_eq!(world.run(10), ["canary Halted 1/9"]);
    world.agents.get_mut(&canary).unwrap().failing = false;
    assert_eq!(world.run(10), ["canary Halted 1/9"]);
    world.policy().paused = true;
    assert_eq!(world.run(10), ["canary Paused 1/9"]);
    world.policy().paused = false;
    assert_eq!(world.run(100).last().unwrap(), "Complete 2");
}

#[test]
fn nodes_that_failed_or_were_disconnected_before_do_not_count_against_a_change() {
    let mut world = world();
    for (name, change) in [("node-0", 0), ("node-1", 1), ("node-2", 2)] {
        let agent = world.agents.get_mut(name).unwrap();
        agent.failing = change == 0;
        agent.connected = change != 1;
        agent.drifted = change == 2;
    }
    world.ask("two");
    // They keep failing with every revision.
    for _ in 0..60 {
        world.decide();
        world.take(|name| !["node-0", "node-2"].contains(&name));
        world.now += 60;
    }
    assert_eq!(world.summary(), "Complete 2");
    assert_eq!(world.agents["node-1"].applied, Some(1), "disconnected");
}

#[test]
fn a_canary_that_is_lost_fails_the_change() {
    let mut world = world();
    world.ask("two");
    world.run(2);
    let canary = world.given(2).into_iter().next().unwrap();
    world.agents.get_mut(&canary).unwrap().connected = false;
    let lines = world.run(20);
    assert_eq!(lines, ["canary Soaking 1/9", "RolledBack 1"]);
    assert!(
        world.state.reason.contains(&*canary),
        "{}",
        world.state.reason
    );
}

#[test]
fn a_node_that_joins_gets_the_revision_of_its_position_and_does_not_count_against_the_change() {
    let mut world = world();
    world.ask("two");
    while !world.summary().starts_with("zone zone-1 Soaking") {
        world.run(1);
    }
    for zone in ["zone-0", "zone-2"] {
        let fresh = Agent {
            connected: false,
            applied: None,
            ..Agent::sound(zone, 0)
        };
        world.agents.insert(format!("new-{zone}").into(), fresh);
    }
    let given = world.given(2);
    assert!(given.contains("new-zone-0") && !given.contains("new-zone-2"));
    assert_eq!(world.run(100).last().unwrap(), "Complete 2");
}

#[test]
fn a_second_change_takes_the_place_of_the_first() {
    let mut world = world();
    world.ask("two");
    while !world.summary().starts_with("zone zone-1") {
        world.run(1);
    }
    world.ask("three");
    assert_eq!(world.run(1), ["canary Progressing 1/9"]);
    assert_eq!((world.given(1).len(), world.given(3).len()), (8, 1));
    assert!(world.state.reason.contains("default-2 was replaced"));
    assert_eq!(world.run(100).last().unwrap(), "Complete 3");
}

#[test]
fn a_change_removed_from_the_spec_is_rolled_back_at_once_even_while_paused() {
    let mut world = world();
    world.ask("two");
    while !world.summary().starts_with("zone zone-1") {
        world.run(1);
    }
    world.policy().paused = true;
    world.ask("one");
    assert_eq!(world.run(1), ["Complete 1"]);
    assert_eq!(world.state.reason, "default-2 was rolled back");
}

#[test]
fn rollback_to_rolls_out_a_former_revision_in_waves_and_keeps_it_while_set() {
    let mut world = world();
    world.ask("two");
    world.run(100);
    world.policy().rollback_to = Some(1);
    assert_eq!(world.run(1), ["canary Progressing 1/9"]);
    assert_eq!(world.run(100).last().unwrap(), "Complete 1");
    assert_eq!(world.run(1), ["Complete 1"]);
    world.policy().rollback_to = Some(7);
    world.run(1);
    assert!(world.state.reason.contains("no revision default-7"));
    world.policy().rollback_to = None;
    assert_eq!(world.run(100).last().unwrap(), "Complete 2");
}

#[test]
fn a_change_that_affects_some_nodes_begins_with_one_of_them() {
    let mut world = world();
    for (name, agent) in &mut world.agents {
        agent.affected = ["node-4", "node-7"].contains(&&**name);
    }
    world.ask("two");
    assert_eq!(world.run(1), ["canary Progressing 1/2"]);
    let given = world.given(2);
    assert!(given.contains("node-4") || given.contains("node-7"));
    assert_eq!(world.run(100).last().unwrap(), "Complete 2");
    for agent in world.agents.values_mut() {
        agent.affected = false;
    }
    world.ask("three");
    assert_eq!(world.run(1), ["Complete 3"], "it affects no node");
}

#[test]
fn without_a_policy_all_nodes_have_it_at_once() {
    let mut world = world();
    world.asked.policy = None;
    world.ask("two");
    assert_eq!(world.run(1), ["Complete 2"]);
    world.asked.policy = Some(policy());
    world.ask("three");
    world.run(3);
    world.asked.policy = None;
    assert_eq!(world.run(1), ["Complete 3"]);
}

#[test]
fn the_history_is_in_the_order_in_which_revisions_came_into_force() {
    let mut world = world();
    let order = |world: &World| {
        let numbers = world.state.history.iter().map(|held| held.number);
        numbers.collect::<Vec<_>>()
    };
    world.ask("two");
    world.run(100);
    world.poison = Some("three".into());
    world.ask("three");
    world.run(10);
    world.ask("four");
    world.run(100);
    assert_eq!(
        order(&world),
        [1, 3, 2, 4],
        "what failed was never in force"
    );
    world.ask("two");
    world.run(100);
    assert_eq!(order(&world), [1, 3, 4, 2]);
}

#[test]
fn the_history_is_bounded() {
    let mut world = world();
    world.asked.policy = None;
    for number in 0..40 {
        world.ask(&format!("{number}"));
        world.run(1);
    }
    assert_eq!(world.state.history.len(), 10);
    let large = "x".repeat(200 * 1024);
    for number in 0..3 {
        world.ask(&format!("{number}{large}"));
        world.run(1);
    }
    assert_eq!(world.state.history.len(), 1, "only what is in force");
    assert_eq!(world.state.stage, Stage::Complete);
}

#[test]
fn a_slow_or_a_drifted_node_does_not_pass() {
    for slow in [true, false] {
        let mut world = world();
        world.ask("two");
        world.run(2);
        let canary = world.given(2).into_iter().next().unwrap();
        let agent = world.agents.get_mut(&canary).unwrap();
        if slow {
            agent.lag = 5001;
        } else {
            agent.drifted = true;
        }
        assert_eq!(world.run(1), ["RolledBack 1"]);
        let gate = if slow {
            "programmingP99"
        } else {
            "maxDriftedNodes"
        };
        assert!(world.state.reason.contains(gate), "{}", world.state.reason);
    }
}

#[test]
fn an_excused_node_that_is_healthy_with_the_change_counts_in_the_gates_from_then_on() {
    let mut world = world();
    world.agents.get_mut("node-0").unwrap().connected = false;
    world.ask("two");
    while !world.summary().starts_with("zone zone-2") {
        world.run(1);
    }
    world.agents.get_mut("node-0").unwrap().connected = true;
    world.run(2);
    assert_eq!(world.agents["node-0"].applied, Some(2));
    world.agents.get_mut("node-0").unwrap().failing = true;
    assert_eq!(world.run(1), ["RolledBack 1"]);
}
