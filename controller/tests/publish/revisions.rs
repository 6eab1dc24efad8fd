//! The settings revision of a node.

use std::sync::Arc;
use std::time::Duration;

use portolan_controller::agent_registry::Acked;
use portolan_planner::model::ProxyConfig;

use crate::cluster::shop;
use crate::world::{World, applied, wall};

/// An agent's answer from before a change of its settings does not confirm them.
#[tokio::test(start_paused = true)]
async fn the_settings_of_a_node_are_reported_once_a_plan_with_them_is_in_force() {
    let world = World::of(&shop()).await;
    let number = |number, scheduler: &str| {
        let settings = portolan_plan::Settings {
            scheduler: scheduler.into(),
            ..portolan_plan::Settings::default()
        };
        let mut config = ProxyConfig::of(settings);
        Arc::make_mut(&mut config.current).number = Some(number);
        let update = world.shared.write().planner.apply([config.into()]);
        world.notes.changed(&update);
    };
    let revision = || world.plan("node-a")["status"]["settingsRevision"].clone();
    number(1, "rr");
    world.pass(1).await;
    world.agent("node-a");
    world.pass(10).await;
    assert_eq!(revision(), "default-1");
    number(2, "mh");
    world.pass(10).await;
    assert_eq!(revision(), "default-1", "no agent has answered");
    world.registry.acked("node-a", failing(), wall());
    world.pass(10).await;
    assert_eq!(revision(), "default-1", "not the whole plan is in force");
    let late = Acked {
        lag: Duration::from_secs(60),
        ..applied()
    };
    world.registry.acked("node-a", late, wall());
    world.pass(10).await;
    assert_eq!(revision(), "default-1", "it was made before the change");
    world.registry.acked("node-a", applied(), wall());
    world.pass(10).await;
    assert_eq!(revision(), "default-2");
}

/// A wave waits for it; otherwise an unchanged status is written again only after five minutes.
#[tokio::test(start_paused = true)]
async fn settings_whose_write_was_lost_are_reported_soon_after() {
    let world = World::of(&shop()).await;
    let mut config = ProxyConfig::of(portolan_plan::Settings::default());
    world.pass(1).await;
    world.agent("node-a");
    world.pass(10).await;
    let revision = || world.plan("node-a")["status"]["settingsRevision"].clone();
    assert_eq!(revision(), serde_json::Value::Null);
    Arc::make_mut(&mut config.current).number = Some(3);
    let update = world.shared.write().planner.apply([config.into()]);
    world.notes.changed(&update);
    world.server.refuse("proxyplans/node-a", Some(500));
    world.registry.acked("node-a", applied(), wall());
    world.pass(5).await;
    world.server.refuse("proxyplans/node-a", None);
    world.pass(60).await;
    assert_eq!(revision(), "default-3");
}

fn failing() -> Acked {
    Acked {
        failed_operations: 1,
        failures: vec!["no".into()],
        ..applied()
    }
}
