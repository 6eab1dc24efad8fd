//! The whole path in one process: manifests, controller, gRPC over a Unix socket, agents, and the
//! model kernel, which rejects the same operations as a real kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod cluster;
mod fresher;
mod manifests;

use portolan_reconcile::VirtualServerKey;

use cluster::{Agent, Cluster, settled};
use manifests::{HINTED_SLICE, NODES, SLICE, WEB};

const WEB_SERVER: &str = "TCP 10.96.0.10:80";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_reaches_the_kernels_of_all_nodes() {
    let cluster = Cluster::start();
    let (a, b) = (
        Agent::start(&cluster, "node-a"),
        Agent::start(&cluster, "node-b"),
    );
    for agent in [&a, &b] {
        settled(&cluster, agent).await;
        assert_eq!(
            agent.backends("TCP 10.96.0.10:80"),
            ["10.244.1.5:8080", "10.244.2.5:8080"]
        );
        assert!(
            agent.backends("TCP 10.96.0.99:80").is_empty(),
            "S-21: nothing serves it"
        );
    }
    // Only this node's own endpoints may need a masquerade on their way to themselves (S-74).
    assert_eq!(
        a.entries("PORTOLAN-HAIRPIN"),
        ["10.244.1.5,tcp:8080,10.244.1.5"]
    );
    assert_eq!(
        b.entries("PORTOLAN-HAIRPIN"),
        ["10.244.2.5,tcp:8080,10.244.2.5"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_endpoint_more_costs_one_operation_on_each_node() {
    let cluster = Cluster::start();
    let agents = [
        Agent::start(&cluster, "node-a"),
        Agent::start(&cluster, "node-b"),
    ];
    for agent in &agents {
        settled(&cluster, agent).await;
        agent.forget();
    }
    let more = format!("{SLICE}- {{addresses: [10.244.2.7], nodeName: node-b}}\n");
    cluster.write("slice.yaml", &more);
    for agent in &agents {
        agent
            .wait("the new endpoint", |state| {
                state.contains("10.244.2.7:8080")
            })
            .await;
        settled(&cluster, agent).await;
    }
    // node-b has the new endpoint itself, so it has one more hairpin entry.
    let made = |agent: &Agent| {
        agent
            .log()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let added = "add 10.244.2.7:8080 (weight 1) to TCP 10.96.0.10:80";
    assert_eq!(made(&agents[0]), [added]);
    let hairpin = "add 10.244.2.7,tcp:8080,10.244.2.7 to set PORTOLAN-HAIRPIN";
    assert_eq!(made(&agents[1]), [hairpin, added]);
}

/// S-59, S-60, S-62.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_and_a_node_that_changes_its_zone_reach_the_kernel() {
    let cluster = Cluster::start();
    cluster.write("slice.yaml", HINTED_SLICE);
    let (a, b) = (
        Agent::start(&cluster, "node-a"),
        Agent::start(&cluster, "node-b"),
    );
    let only = |agent: &Agent, backends: &[&str]| agent.backends(WEB_SERVER) == backends;
    for (agent, own) in [(&a, "10.244.1.5:8080"), (&b, "10.244.2.5:8080")] {
        agent
            .wait("the zone's own list", |_| only(agent, &[own]))
            .await;
        settled(&cluster, agent).await;
        agent.forget();
    }
    let node_a_in = |labels: &str| {
        NODES.replace(
            "{name: node-a, labels: {topology.kubernetes.io/zone: zone-1}}",
            &format!("{{name: node-a, labels: {{{labels}}}}}"),
        )
    };
    for (labels, backends) in [
        (
            "topology.kubernetes.io/zone: zone-2",
            &["10.244.2.5:8080"][..],
        ),
        // S-60: no endpoint has a hint for this zone, so all of them serve it.
        (
            "topology.kubernetes.io/zone: zone-9",
            &["10.244.1.5:8080", "10.244.2.5:8080"],
        ),
        ("topology.kubernetes.io/zone: zone-1", &["10.244.1.5:8080"]),
        ("", &["10.244.1.5:8080", "10.244.2.5:8080"]),
    ] {
        cluster.write("nodes.yaml", &node_a_in(labels));
        a.wait(labels, |_| only(&a, backends)).await;
        settled(&cluster, &a).await;
    }
    assert_eq!(b.log(), [], "another node's zone is nothing to this one");
    // S-57: one ready endpoint has no hint, so all endpoints serve all zones.
    cluster.write("slice.yaml", SLICE);
    b.wait("the whole list", |_| {
        only(&b, &["10.244.1.5:8080", "10.244.2.5:8080"])
    })
    .await;
    settled(&cluster, &b).await;
}

/// S-23, S-43, S-64.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_local_is_served_by_the_nodes_own_endpoints_or_refuses() {
    let cluster = Cluster::start();
    let agents = [
        (Agent::start(&cluster, "node-a"), "10.244.1.5:8080"),
        (Agent::start(&cluster, "node-b"), "10.244.2.5:8080"),
    ];
    for (agent, _) in &agents {
        settled(&cluster, agent).await;
    }
    let local = WEB.replace("spec: {", "spec: {internalTrafficPolicy: Local, ");
    cluster.write("web.yaml", &local);
    for (agent, own) in &agents {
        agent
            .wait("the node's own list", |_| {
                agent.backends(WEB_SERVER) == [*own]
            })
            .await;
        settled(&cluster, agent).await;
        agent.forget();
    }
    let [(a, _), (b, _)] = &agents;
    let ending = "nodeName: node-a, conditions: {ready: false, serving: true, terminating: true}";
    // Another endpoint, on node-b, shows that the change has arrived.
    let ending = SLICE.replace("nodeName: node-a", ending)
        + "- {addresses: [10.244.2.6], nodeName: node-b}\n";
    cluster.write("slice.yaml", &ending);
    b.wait("another endpoint", |state| state.contains("10.244.2.6"))
        .await;
    settled(&cluster, a).await;
    assert_eq!(
        a.log(),
        [],
        "the one that ends serves on: nothing else is here"
    );
    let gone = SLICE.replace("- {addresses: [10.244.1.5], nodeName: node-a}\n", "");
    cluster.write("slice.yaml", &gone);
    a.wait("the end of the last one", |state| {
        !state.contains("10.96.0.10:80")
    })
    .await;
    settled(&cluster, a).await;
    let refused = !a
        .entries("PORTOLAN-FRONTEND")
        .contains(&"10.96.0.10,tcp:80".into());
    assert!(refused, "what is routed and no frontend is refused");
    settled(&cluster, b).await;
    assert_eq!(b.backends(WEB_SERVER), ["10.244.2.5:8080"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_controller_changes_nothing_that_is_right() {
    let mut cluster = Cluster::start();
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    agent.forget();
    let before = agent.applied(0).await.generation;
    cluster.restart().await;
    // An empty batch confirms that the plan is current.
    let confirmed = agent.applied(before + 1).await;
    assert_eq!((confirmed.operations, confirmed.failed), (0, 0));
    assert_eq!(agent.log(), []);
    cluster.write("web.yaml", &WEB.replace("port: 80,", "port: 8000,"));
    agent
        .wait("the new port", |state| {
            state.contains("10.96.0.10:8000") && !state.contains("10.96.0.10:80 ")
        })
        .await;
    settled(&cluster, &agent).await;
    // One virtual server, two real servers and two entries are added; one virtual server and two entries are removed.
    let made: Vec<_> = agent.log().iter().map(ToString::to_string).collect();
    assert_eq!(made.len(), 8, "{made:?}");
    assert!(made.iter().all(|op| op.contains("10.96.0.10")), "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_writes_nothing_when_all_is_right() {
    let cluster = Cluster::start();
    let first = Agent::start(&cluster, "node-a");
    settled(&cluster, &first).await;
    first.forget();
    let kernel = first.stop();
    let second = Agent::start_with(&cluster, "node-a", kernel);
    let applied = second.applied(1).await;
    assert_eq!((applied.operations, applied.failed), (0, 0));
    assert_eq!(second.log(), []);
    assert_eq!(Some(applied.hash), cluster.hash("node-a"));
}

/// S-230, I-12: the agent is killed before its newest plan is on its disk, and the only controller has read less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_gets_nothing_from_a_controller_that_lags_behind() {
    let mut cluster = Cluster::start();
    cluster.restart_at(5, 1).await;
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    let old = agent.plan();
    cluster.stop().await;
    let more = format!("{SLICE}- {{addresses: [10.244.2.7], nodeName: node-b}}\n");
    cluster.write("slice.yaml", &more);
    cluster.restart_at(9, 2).await;
    let newest = ["10.244.1.5:8080", "10.244.2.5:8080", "10.244.2.7:8080"];
    agent
        .wait("the new endpoint", |_| agent.backends(WEB_SERVER) == newest)
        .await;
    settled(&cluster, &agent).await;
    cluster.stop().await;
    agent.forget();
    let agent = agent.restart(&cluster, &old).await;
    cluster.write("slice.yaml", SLICE);
    cluster.restart_at(5, 1).await;
    cluster.list_requested().await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(agent.log(), [], "the kernel keeps the newest plan");
    cluster.write("slice.yaml", &more);
    cluster.listed(9, 2, "node-a", old.hash()).await;
    settled(&cluster, &agent).await;
    assert_eq!(agent.backends(WEB_SERVER), newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_plan_nothing_is_written_and_without_a_controller_nothing_is_removed() {
    let mut cluster = Cluster::start();
    // I-4, I-8, S-183: no Node object of this name, so no plan.
    let stranger = Agent::start(&cluster, "node-z");
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    assert_eq!(stranger.log(), []);
    let before = agent.kernel.lock().state.clone();
    agent.forget();
    cluster.stop().await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(agent.log(), []);
    assert_eq!(agent.kernel.lock().state, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_broken_object_stops_no_other() {
    let cluster = Cluster::start();
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    cluster.write("broken.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {clusterIP: 10.96.0.300, ports: [{port: 0}]}\n");
    cluster.write(
        "more.yaml",
        &WEB.replace("name: web", "name: more")
            .replace("10.96.0.10", "10.96.0.11"),
    );
    cluster.write("more-slice.yaml", &SLICE.replace("web", "more"));
    agent
        .wait("the good Service", |state| state.contains("10.96.0.11:80"))
        .await;
    settled(&cluster, &agent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_refuses_is_tried_again_until_it_does_not() {
    let cluster = Cluster::start();
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    // The settings name a scheduler that the kernel does not have (S-104).
    cluster.write("config.yaml", &config("twos"));
    let failed = agent.applied_where(|applied| applied.failed > 0).await;
    // One cause is reported once; the virtual server that waits for it is counted.
    let [load] = &failed.failures[..] else {
        panic!("{failed:?}");
    };
    assert!(load.starts_with("load scheduler twos"), "{load}");
    assert_eq!(failed.failed, 2);
    assert_eq!(
        agent.backends("TCP 10.96.0.10:80").len(),
        2,
        "S-104: the old one stays"
    );
    cluster.write("config.yaml", &config("rr"));
    settled(&cluster, &agent).await;
}

/// Settings with this scheduler.
fn config(scheduler: &str) -> String {
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec: {{settings: {{scheduler: {scheduler}}}}}\n"
    )
}

/// S-229: the Service is served with the settings' scheduler, and the node's plan is in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_a_service_asks_for_and_the_kernel_lacks_fails_no_node() {
    let cluster = Cluster::start();
    let agent = Agent::start(&cluster, "node-a");
    settled(&cluster, &agent).await;
    let before = agent.applied.borrow().hash;
    cluster.write(
        "web.yaml",
        &WEB.replace(
            "namespace: shop}",
            "namespace: shop, annotations: {proxy.portolan.dev/scheduler: twos}}",
        ),
    );
    let applied = agent
        .applied_where(|applied| !applied.troubles.is_empty())
        .await;
    assert_eq!((applied.failed, applied.failures), (0, Vec::new()));
    assert_ne!(applied.hash, before, "the new plan is in force");
    let web: VirtualServerKey = WEB_SERVER.parse().unwrap();
    let scheduler = |agent: &Agent| {
        let kernel = agent.kernel.lock();
        kernel.state.virtual_servers[&web].scheduler.to_string()
    };
    assert_eq!(scheduler(&agent), "rr");
    assert_eq!(agent.backends(WEB_SERVER).len(), 2);
    cluster.write(
        "web.yaml",
        &WEB.replace(
            "namespace: shop}",
            "namespace: shop, annotations: {proxy.portolan.dev/scheduler: lc}}",
        ),
    );
    agent
        .applied_where(|applied| applied.troubles.is_empty())
        .await;
    settled(&cluster, &agent).await;
    assert_eq!(scheduler(&agent), "lc");
}
