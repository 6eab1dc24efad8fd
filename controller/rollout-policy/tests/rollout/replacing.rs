//! Rollouts that replace agents.

use crate::stories::policy;
use crate::world::World;

#[test]
fn agents_are_replaced_one_by_one_where_one_may_be_unavailable() {
    let mut world = World::new(5, 1, policy());
    world.replaces = true;
    world.ask("two");
    let lines = world.run(100);
    assert_eq!(
        lines,
        [
            "canary Progressing 1/5",
            "canary Soaking 1/5",
            "zone zone-0 Progressing 1/5",
            "zone zone-0 Progressing 2/5",
            "zone zone-0 Progressing 3/5",
            "zone zone-0 Progressing 4/5",
            "zone zone-0 Progressing 5/5",
            "zone zone-0 Soaking 5/5",
            "Complete 2",
        ]
    );
}

#[test]
fn an_agent_that_is_not_replaced_in_time_rolls_the_change_back_unless_paused() {
    let mut world = World::new(5, 1, policy());
    world.replaces = true;
    world.ask("two");
    world.decide();
    let wait = |world: &mut World, minutes: u32| {
        for _ in 0..minutes {
            world.now += 60;
            world.decide();
        }
    };
    wait(&mut world, 3);
    let waiting = &world.state.rolling().unwrap().waiting;
    assert!(
        waiting.contains("do not have their new agents"),
        "{waiting}"
    );
    world.policy().paused = true;
    wait(&mut world, 60);
    world.policy().paused = false;
    wait(&mut world, 3);
    assert_eq!(world.summary(), "canary Progressing 1/5");
    wait(&mut world, 6);
    assert_eq!(world.summary(), "RolledBack 1");
    let reason = &world.state.reason;
    assert!(reason.contains("do not have their new agents"), "{reason}");
}

#[test]
fn an_agent_that_does_not_return_rolls_the_change_back() {
    let mut world = World::new(5, 1, policy());
    world.replaces = true;
    world.policy().canaries = 0;
    world.ask("two");
    world.decide();
    world.decide();
    assert_eq!(world.summary(), "zone zone-0 Progressing 1/5");
    let gone = world.given(2);
    for _ in 0..20 {
        let there = |name: &str| !gone.contains(name);
        world.take(there);
        for name in &gone {
            world.agents.get_mut(name).unwrap().connected = false;
        }
        world.decide();
        world.now += 60;
    }
    assert_eq!(world.summary(), "RolledBack 1");
    let reason = &world.state.reason;
    assert!(reason.contains("have not returned"), "{reason}");
    assert!(reason.contains(&**gone.first().unwrap()), "{reason}");
}
