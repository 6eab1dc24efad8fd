//! The times of writes.

use std::collections::BTreeMap;

use portolan_controller::agent_registry::Acked;
use portolan_crds::limit;
use portolan_planner::model::ObjectId;
use portolan_planner::model::SliceId;
use serde_json::json;

use crate::cluster::{node, service, shop, slice};
use crate::world::{World, applied, wall};

fn plans(writes: &[String]) -> Vec<&str> {
    let plans = writes
        .iter()
        .filter_map(|w| w.strip_prefix("PATCH proxyplans/"));
    plans.collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_there_is_a_complete_plan() {
    let world = World::new();
    world.agent("node-a");
    world.pass(3600).await;
    assert!(world.server.take_made().is_empty());
    world.notes.changed(&portolan_planner::Update::default());
    world.pass(10).await;
    assert_eq!(
        world.server.take_writes(),
        ["POST proxyconfigs", "PATCH proxyconfigs/default/status"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_written_at_once() {
    let world = World::new();
    world.change(&shop());
    for name in ["node-a", "node-b", "node-c"] {
        world.agent(name);
    }
    world.pass(4).await;
    assert_eq!(world.server.names("proxyconfigs"), ["default"]);
    assert_eq!(
        world.server.names("proxyplans"),
        ["node-a", "node-b", "node-c"]
    );
    assert!(world.server.names("proxyplanslices").len() >= 4);
    let healthy = [
        "Applied=True",
        "Drifted=Unknown",
        "Healthy=True",
        "KernelSettings=True",
    ];
    assert_eq!(world.conditions("node-a"), healthy);
    assert_eq!(
        world.plan("node-a")["spec"]["settingsRevision"],
        "default-1"
    );
    let made = world.server.take_made();
    assert!(
        made.iter()
            .all(|made| made.code < 300 || made.what.starts_with("GET"))
    );
}

#[tokio::test(start_paused = true)]
async fn stored_objects_are_not_written_again_even_by_another_process() {
    let world = World::of(&shop()).await;
    for name in ["node-a", "node-b", "node-c"] {
        world.agent(name);
    }
    world.pass(100).await;
    world.server.take_made();
    let world = world.restart().await;
    for name in ["node-a", "node-b", "node-c"] {
        world.agent(name);
    }
    world.pass(120).await;
    // Each status once: it shows other controllers that this one has the agent's stream now.
    let mut writes = world.server.take_writes();
    writes.sort();
    assert_eq!(
        writes,
        ["a", "b", "c"].map(|name| format!("PATCH proxyplans/node-{name}/status"))
    );
    let listed = world.server.get("proxyplans", "node-a").is_some();
    assert!(listed);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_written_once_in_thirty_seconds_however_often_it_comes() {
    let world = World::of(&shop()).await;
    world.pass(60).await;
    world.server.take_made();
    for round in 0..50 {
        let endpoint = format!("10.244.1.{} node-a", 10 + round);
        world.change(&slice("local", &[&endpoint]));
        world.pass(1).await;
    }
    world.pass(40).await;
    let writes = world.server.take_writes();
    let of_node_a = plans(&writes)
        .iter()
        .filter(|name| **name == "node-a")
        .count();
    assert!((2..=4).contains(&of_node_a), "{of_node_a}: {writes:?}");
    let plan = world.plan("node-a");
    let shown = &plan["spec"]["services"][0]["ports"][0]["internal"]["endpoints"];
    assert_eq!(
        *shown,
        json!(["10.244.1.59:8080"]),
        "the last change is there"
    );
    assert!(!plans(&writes).contains(&"node-c"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn figures_of_the_cluster_alone_cause_a_write_every_five_minutes_at_most() {
    let world = World::of(&shop()).await;
    world.pass(400).await;
    world.server.take_made();
    for round in 0..12 {
        let (name, address) = (format!("more-{round}"), format!("10.96.1.{round}"));
        world.change(&service(&name, &address, "Cluster"));
        world.pass(60).await;
    }
    world.pass(400).await;
    let made = world.server.take_made();
    let of_node = |node: &str| {
        let what = format!("PATCH proxyplans/{node}");
        let times = made.iter().filter(|made| made.what == what);
        times.map(|made| made.at.as_secs()).collect::<Vec<_>>()
    };
    for node in ["node-a", "node-b", "node-c"] {
        let times = of_node(node);
        assert!((3..=5).contains(&times.len()), "{times:?}");
        assert!(
            times.windows(2).all(|two| two[1] - two[0] >= 300),
            "{times:?}"
        );
    }
    assert_eq!(world.plan("node-c")["spec"]["counts"]["services"], 16);
}

#[tokio::test(start_paused = true)]
async fn the_plan_of_a_node_goes_and_comes_with_it() {
    let world = World::of(&shop()).await;
    world.remove([ObjectId::Node("node-b".into())]);
    world.pass(2).await;
    assert_eq!(world.server.names("proxyplans"), ["node-a", "node-c"]);
    world.change(&node("node-b", "zone-2"));
    world.pass(2).await;
    assert_eq!(
        world.server.names("proxyplans"),
        ["node-a", "node-b", "node-c"]
    );
}

/// A plan waiting thirty seconds does not delay the deletion of its node, and writes in flight end in the right
/// order.
#[tokio::test(start_paused = true)]
async fn the_last_state_of_a_node_that_comes_and_goes_is_written() {
    let world = World::of(&shop()).await;
    for round in 0..20 {
        world.remove([ObjectId::Node("node-b".into())]);
        if round % 2 == 0 {
            world.pass(1).await;
        }
        world.change(&node("node-b", &format!("zone-{round}")));
    }
    world.pass(60).await;
    assert_eq!(world.plan("node-b")["spec"]["zone"], "zone-19");
    world.remove([ObjectId::Node("node-b".into())]);
    world.pass(60).await;
    assert_eq!(world.server.names("proxyplans"), ["node-a", "node-c"]);
}

#[tokio::test(start_paused = true)]
async fn changes_by_others_are_reverted_within_ten_minutes() {
    let world = World::of(&shop()).await;
    let before = world.plan("node-a")["spec"].clone();
    let slices = world.server.names("proxyplanslices");
    let zone = |object: &mut serde_json::Value| object["spec"]["zone"] = json!("elsewhere");
    world.server.edit("proxyplans", "node-a", zone);
    world
        .server
        .edit("proxyplans", "node-b", |object| *object = json!(null));
    world.server.edit("proxyplans", "node-x", |object| {
        *object = json!({"apiVersion": "proxy.portolan.dev/v1alpha1", "kind": "ProxyPlan",
            "metadata": {"name": "node-x"}, "spec": before});
    });
    world.server.edit("proxyplanslices", &slices[0], |object| {
        *object = json!(null);
    });
    world.server.edit("proxyplanslices", &slices[1], |object| {
        object["spec"]["part"] = json!(7);
    });
    world.pass(620).await;
    assert_eq!(world.plan("node-a")["spec"], before);
    assert_eq!(
        world.server.names("proxyplans"),
        ["node-a", "node-b", "node-c"]
    );
    assert_eq!(world.server.names("proxyplanslices"), slices);
    let slice = world.server.get("proxyplanslices", &slices[1]).unwrap();
    assert_eq!(slice["spec"]["part"], 0);
    world.server.take_made();
    world.pass(1200).await;
    let writes = world.server.take_writes();
    let specs = writes.iter().filter(|what| !what.ends_with("/status"));
    assert_eq!(specs.count(), 0, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn conditions_are_written_at_once_and_the_rest_every_five_minutes() {
    let world = World::of(&shop()).await;
    world.agent("node-a");
    world.pass(1).await;
    assert_eq!(
        plans(&world.server.take_writes()).last(),
        Some(&"node-a/status")
    );
    world.pass(10).await;
    // A successful batch causes no write.
    world.registry.acked("node-a", applied(), wall());
    world.pass(10).await;
    assert_eq!(plans(&world.server.take_writes()), Vec::<&str>::new());
    let failing = Acked {
        failures: vec!["no".into()],
        failed_operations: 1,
        ..applied()
    };
    world.registry.acked("node-a", failing, wall());
    world.pass(1).await;
    assert_eq!(plans(&world.server.take_writes()), ["node-a/status"]);
    assert_eq!(world.conditions("node-a")[0], "Applied=False");
    world.registry.acked("node-a", applied(), wall());
    world.pass(10).await;
    world.server.take_made();
    world.pass(3000).await;
    let writes = world.server.take_writes();
    let heartbeats = plans(&writes)
        .iter()
        .filter(|name| **name == "node-a/status")
        .count();
    assert_eq!(heartbeats, 10);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_is_unknown_after_a_minute_unless_another_controller_has_it() {
    let world = World::of(&shop()).await;
    let (a, b) = (world.agent("node-a"), world.agent("node-b"));
    world.pass(10).await;
    world.registry.gone("node-a", a, wall());
    world.registry.gone("node-b", b, wall());
    world.pass(30).await;
    assert_eq!(world.conditions("node-a")[0], "Applied=True");
    // Another controller now has the stream of node-b and reports it.
    let heartbeat = jiff::Timestamp::try_from(wall()).unwrap();
    world.server.edit("proxyplans", "node-b", |object| {
        object["status"]["heartbeatTime"] = json!(heartbeat.to_string());
    });
    world.pass(40).await;
    let unknown = [
        "Applied=Unknown",
        "Drifted=Unknown",
        "Healthy=Unknown",
        "KernelSettings=Unknown",
    ];
    assert_eq!(world.conditions("node-a"), unknown);
    assert_eq!(world.conditions("node-b")[0], "Applied=True");
    world.agent("node-a");
    world.pass(6).await;
    assert_eq!(world.conditions("node-a")[0], "Applied=True");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_agent_is_reported_after_a_while() {
    let world = World::of(&shop()).await;
    world.pass(300).await;
    assert_eq!(world.conditions("node-a"), Vec::<String>::new());
    world.pass(120).await;
    assert_eq!(world.conditions("node-a")[0], "Applied=Unknown");
}

#[tokio::test(start_paused = true)]
async fn slices_are_written_as_the_proxyconfig_sets() {
    let world = World::of(&shop()).await;
    let shared = |value: &str| {
        let value = value.to_owned();
        world.server.edit("proxyconfigs", "default", move |object| {
            object["spec"]["publish"] = json!({"shared": value});
        });
    };
    let before = world.server.names("proxyplanslices");
    assert!(!before.is_empty());
    shared("Never");
    world.pass(70).await;
    assert_eq!(world.server.names("proxyplanslices"), Vec::<String>::new());
    shared("Always");
    world.pass(70).await;
    assert_eq!(world.server.names("proxyplanslices"), before);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_service_writes_the_slices_of_its_bucket_only() {
    let world = World::of(&shop()).await;
    world.pass(60).await;
    world.server.take_made();
    world.change(&slice("cart", &["10.244.1.99 node-a"]));
    world.pass(2).await;
    let writes = world.server.take_writes();
    let slices: Vec<_> = writes
        .iter()
        .filter(|w| w.contains("proxyplanslices"))
        .collect();
    assert_eq!(slices.len(), 1, "{writes:?}");
    let gone = SliceId {
        namespace: "shop".into(),
        name: "cart-1".into(),
    };
    world.remove([ObjectId::EndpointSlice(gone)]);
    world.pass(40).await;
    let writes = world.server.take_writes();
    let slices: Vec<_> = writes
        .iter()
        .filter(|w| w.contains("proxyplanslices"))
        .collect();
    assert_eq!(slices.len(), 1, "{writes:?}");
}

/// 1,500 nodes: more than the budget of the first half minute.
#[tokio::test(start_paused = true)]
async fn writes_stay_within_the_budget_and_new_nodes_come_first() {
    // I-11.
    let mut yaml = shop();
    for number in 0..1500 {
        yaml += &node(&format!("n-{number}"), "zone-1");
    }
    let world = World::new();
    world.change(&yaml);
    world.pass(60).await;
    assert_eq!(world.server.names("proxyplans").len(), 1503);
    let mut seconds: BTreeMap<u64, usize> = BTreeMap::new();
    let made = world.server.take_made();
    for made in &made {
        *seconds.entry(made.at.as_secs()).or_default() += 1;
    }
    assert!(seconds.values().all(|count| *count <= 101), "{seconds:?}");
    let total: usize = seconds.range(..20).map(|(_, count)| count).sum();
    assert!(total <= 50 * 21, "{total}");
    let first_slice = made
        .iter()
        .position(|made| made.what.contains("PATCH proxyplanslices"));
    let last_plan = made
        .iter()
        .rposition(|made| made.what.starts_with("PATCH proxyplans/"));
    assert!(first_slice > last_plan, "{first_slice:?} {last_plan:?}");
}

#[tokio::test(start_paused = true)]
async fn every_object_fits_its_definition_at_the_limits() {
    let mut yaml = node("node-a", "zone-1");
    let endpoints: Vec<_> = (0..3000)
        .map(|n| format!("10.1.{}.{} node-a", n / 250, n % 250 + 1))
        .collect();
    let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
    for number in 0..400 {
        let (name, address) = (
            format!("web-{number}"),
            format!("10.96.{}.{}", number / 250, number % 250 + 1),
        );
        yaml += &service(&name, &address, "Local");
        yaml += &slice(
            &name,
            if number < 3 {
                &endpoints
            } else {
                &endpoints[..2]
            },
        );
    }
    for number in 0..120 {
        yaml += &format!(
            "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: \
            {{namespace: shop, name: s-{number}}}, addressType: IPv4, ports: [], endpoints: []}}\n"
        );
    }
    let world = World::of(&yaml).await;
    let failures = vec!["ü".repeat(3000); 50];
    let failing = Acked {
        failures: failures.clone(),
        undecodable: failures,
        failed_operations: u64::MAX,
        operations: u64::MAX,
        ..applied()
    };
    world.agent("node-a");
    world.registry.acked("node-a", failing, wall());
    world.pass(30).await;
    let made = world.server.take_made();
    let refused: Vec<_> = made.iter().filter(|made| made.code == 422).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let status = &world.plan("node-a")["status"];
    assert_eq!(
        status["failures"].as_array().unwrap().len(),
        limit::FAILURES
    );
    let config = world.server.get("proxyconfigs", "default").unwrap();
    assert_eq!(
        config["status"]["warnings"].as_array().unwrap().len(),
        limit::CONFIG_WARNINGS
    );
}
