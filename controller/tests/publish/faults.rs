//! Behaviour if the API server rejects writes.

use serde_json::json;

use crate::cluster::{node, shop, slice};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn objects_are_written_once_the_server_is_back() {
    let world = World::new();
    world.server.away(true);
    world.change(&shop());
    world.pass(900).await;
    world.server.away(false);
    world.pass(40).await;
    assert_eq!(world.server.names("proxyplans").len(), 3);
    assert!(!world.server.names("proxyplanslices").is_empty());
    assert_eq!(world.server.names("proxyconfigs"), ["default"]);
}

#[tokio::test(start_paused = true)]
async fn changes_during_an_outage_of_the_server_are_written_later() {
    let world = World::of(&shop()).await;
    world.pass(60).await;
    world.server.away(true);
    world.change(&slice("local", &["10.244.1.77 node-a"]));
    world.change(&node("node-d", "zone-1"));
    world.pass(100).await;
    world.server.away(false);
    world.pass(60).await;
    let shown = &world.plan("node-a")["spec"]["services"][0]["ports"][0]["internal"]["endpoints"];
    assert_eq!(*shown, json!(["10.244.1.77:8080"]));
    assert_eq!(world.plan("node-d")["spec"]["zone"], "zone-1");
}

#[tokio::test(start_paused = true)]
async fn one_rejected_object_delays_no_other() {
    for code in [409, 422, 500] {
        let world = World::new();
        world.server.refuse("proxyplans/node-b", Some(code));
        world.change(&shop());
        world.pass(300).await;
        let names = world.server.names("proxyplans");
        assert!(names.contains(&"node-a".to_owned()), "{code}: {names:?}");
        assert!(names.contains(&"node-c".to_owned()), "{code}: {names:?}");
        let made = world.server.take_made();
        let tries = made
            .iter()
            .filter(|made| made.what == "PATCH proxyplans/node-b");
        assert!(tries.count() <= 12, "{code}");
        world.server.refuse("proxyplans/node-b", None);
        world.pass(600).await;
        assert_eq!(world.server.names("proxyplans").len(), 3, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_definition_delays_no_other_kind() {
    let world = World::new();
    world.server.missing("proxyplanslices", true);
    world.change(&shop());
    world.pass(30).await;
    assert_eq!(world.server.names("proxyplans").len(), 3);
    let tries = world.server.take_made();
    let tries = tries
        .iter()
        .filter(|made| made.what.contains("proxyplanslices"));
    assert!(tries.count() <= 6);
    world.server.missing("proxyplanslices", false);
    world.pass(310).await;
    assert!(!world.server.names("proxyplanslices").is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_definitions_may_come_after_the_controller() {
    let world = World::new();
    for resource in ["proxyplans", "proxyplanslices", "proxyconfigs"] {
        world.server.missing(resource, true);
    }
    world.change(&shop());
    world.pass(600).await;
    for resource in ["proxyplans", "proxyplanslices", "proxyconfigs"] {
        world.server.missing(resource, false);
    }
    world.pass(620).await;
    assert_eq!(world.server.names("proxyconfigs"), ["default"]);
    assert_eq!(world.server.names("proxyplans").len(), 3);
    assert!(!world.server.names("proxyplanslices").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_deleted_and_installed_again_has_all_its_objects_soon() {
    let world = World::of(&shop()).await;
    world.pass(60).await;
    for name in world.server.names("proxyplans") {
        world
            .server
            .edit("proxyplans", &name, |object| *object = json!(null));
    }
    world.server.missing("proxyplans", true);
    world.change(&slice("local", &["10.244.1.77 node-a"]));
    world.pass(60).await;
    world.server.missing("proxyplans", false);
    world.pass(70).await;
    assert_eq!(world.server.names("proxyplans").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_plan_is_written_again_with_its_next_status() {
    let world = World::of(&shop()).await;
    world.agent("node-a");
    world.pass(10).await;
    world
        .server
        .edit("proxyplans", "node-a", |object| *object = json!(null));
    world.pass(320).await;
    assert_eq!(world.conditions("node-a")[0], "Applied=True");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_spec_is_reported_in_the_status_of_the_proxyconfig() {
    let world = World::of(&shop()).await;
    let accepted = || {
        let config = world.server.get("proxyconfigs", "default").unwrap();
        let condition = config["status"]["conditions"][0].clone();
        let generation = config["status"]["observedGeneration"].clone();
        (
            condition["status"].as_str().unwrap().to_owned(),
            condition["message"].as_str().unwrap().to_owned(),
            generation,
        )
    };
    assert_eq!(accepted().0, "True");
    world.server.edit("proxyconfigs", "default", |object| {
        object["spec"] = json!({"settings": {"sync": {"period": "1s", "minPeriod": "1h"}}});
    });
    world.pass(70).await;
    let (status, message, generation) = accepted();
    assert_eq!((status.as_str(), generation), ("False", json!(2)));
    assert!(
        message.contains("spec.settings.sync.minPeriod"),
        "{message}"
    );
    // No node gets other settings because of it.
    assert_eq!(
        world.plan("node-a")["spec"]["settingsRevision"],
        "default-1"
    );
    world.server.edit("proxyconfigs", "default", |object| {
        object["spec"] = json!({});
    });
    world.pass(70).await;
    assert_eq!(accepted().0, "True");
}

#[tokio::test(start_paused = true)]
async fn settings_that_change_reach_the_plans_with_their_generation() {
    let world = World::of(&shop()).await;
    world.pass(60).await;
    world.server.take_made();
    world.server.edit("proxyconfigs", "default", |object| {
        object["spec"] = json!({"settings": {"scheduler": "sh"}});
    });
    world.change(
        "{apiVersion: proxy.portolan.dev/v1alpha1, kind: ProxyConfig, metadata: {name: default}, \
         spec: {settings: {scheduler: sh}}}",
    );
    world.pass(10).await;
    for node in ["node-a", "node-b", "node-c"] {
        assert_eq!(world.plan(node)["spec"]["settingsRevision"], "default-2");
    }
    let writes = world.server.take_writes();
    let of_node_a = writes
        .iter()
        .filter(|what| *what == "PATCH proxyplans/node-a");
    assert_eq!(of_node_a.count(), 1, "{writes:?}");
}
