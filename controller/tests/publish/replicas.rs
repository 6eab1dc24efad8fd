//! Several controllers: one of them leads, and agents move between them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{shop, slice};
use crate::world::{World, wall};

fn later(seconds: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(seconds))
}

/// The endpoints of the Service with policy Local that the plan of its node shows.
fn shown(world: &World) -> Value {
    let plan = world.plan("node-a");
    plan["spec"]["services"][0]["ports"][0]["internal"]["endpoints"].clone()
}

/// The calls of a leader end with its leadership, but the API server may still carry out a write. A new leader lists
/// everything at its beginning, and again when no such write can follow.
#[tokio::test(start_paused = true)]
async fn a_late_write_of_a_former_leader_is_reverted_by_the_next_one() {
    let (world, election) = World::candidate();
    election.send_replace(later(3600));
    world.change(&shop());
    world.pass(100).await;
    world.server.take_made();
    world.server.lag(Duration::from_secs(20));
    world.change(&slice("local", &["10.244.1.50 node-a"]));
    election.send_replace(later(5));
    world.pass(6).await;
    world.server.lag(Duration::ZERO);
    world.change(&slice("local", &["10.244.1.51 node-a"]));
    world.pass(4).await;
    let writes = world.server.take_writes();
    assert!(writes.is_empty(), "it does not lead: {writes:?}");
    // 10 s after the change, a leader begins that knows nothing of the first write.
    election.send_replace(later(3600));
    world.pass(5).await;
    assert_eq!(shown(&world), json!(["10.244.1.51:8080"]));
    world.pass(10).await;
    assert_eq!(shown(&world), json!(["10.244.1.50:8080"]), "it was late");
    world.pass(60).await;
    assert_eq!(shown(&world), json!(["10.244.1.51:8080"]));
    let lists = |world: &World| {
        let made = world.server.take_made();
        let lists = made.iter().filter(|made| made.what == "GET proxyplans");
        lists.count()
    };
    assert_eq!(lists(&world), 2);
    world.pass(500).await;
    assert_eq!(lists(&world), 0, "the next comparison is due after 600 s");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_elected_again_at_once_loses_no_write() {
    let (world, election) = World::candidate();
    election.send_replace(later(3600));
    world.change(&shop());
    world.pass(100).await;
    world.server.lag(Duration::from_secs(3600));
    world.change(&slice("local", &["10.244.1.50 node-a"]));
    world.pass(2).await;
    // Both happen before the publisher runs.
    election.send_replace(None);
    election.send_replace(later(3600));
    world.server.lag(Duration::ZERO);
    world.pass(2).await;
    election.send_replace(later(1));
    world.pass(2).await;
    election.send_replace(later(3600));
    world.pass(5).await;
    assert_eq!(shown(&world), json!(["10.244.1.50:8080"]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_moves_to_another_controller_is_never_reported_as_absent() {
    let first = World::of(&shop()).await;
    let stream = first.agent("node-a");
    first.pass(30).await;
    assert_eq!(first.conditions("node-a")[0], "Applied=True");
    // It reads that status, which the agent does not change.
    let second = first.follower();
    first.pass(5).await;
    first.registry.gone("node-a", stream, wall());
    let stream = second.agent("node-a");
    // Each controller lists all plans three times meanwhile.
    for _ in 0..190 {
        first.pass(10).await;
        assert_eq!(first.conditions("node-a")[0], "Applied=True");
    }
    second.registry.gone("node-a", stream, wall());
    second.pass(70).await;
    assert_eq!(first.conditions("node-a")[0], "Applied=Unknown");
}
