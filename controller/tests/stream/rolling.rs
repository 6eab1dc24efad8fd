//! A Service with many pods is rolled out while agents join, and the history keeps none of its states.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use portolan_controller::store::HistoryLimits;
use portolan_controller::telemetry::metrics::{Format, Metrics};
use portolan_plan::{
    Backend, Family, Frontend, FrontendKind, Head, HeadPort, ListKey, NodeEntry, Scope, ServiceId,
};
use portolan_planner::{PlannedService, Update};
use smallvec::smallvec;

use super::*;

const PODS: u8 = 100;
const AGENTS: usize = 10;

fn name(agent: usize) -> String {
    format!("node-{agent}")
}

/// All nodes, and a Service of which this number of pods is replaced.
fn update(replaced: u8) -> Update {
    let id = ServiceId::new("shop", "web");
    let port = HeadPort {
        name: "http".into(),
        frontends: smallvec![Frontend {
            kind: FrontendKind::ClusterIp,
            address: Some(Ipv4Addr::new(10, 96, 0, 1).into()),
            port: 80,
        }],
        ..HeadPort::default()
    };
    let head = Head {
        ports: smallvec![port],
        ..Head::default()
    };
    let list = ListKey {
        service: id.clone(),
        port: "http".into(),
        family: Family::Ipv4,
        scope: Scope::Cluster,
    };
    let backends = (0..PODS).map(|pod| Backend {
        address: Ipv4Addr::new(10, 1 + u8::from(pod < replaced), 0, pod).into(),
        port: 8080,
        weight: 1,
    });
    let planned = PlannedService {
        id: id.clone(),
        heads: vec![Arc::new(head)],
        head_of_zone: BTreeMap::new(),
        head_of_node: BTreeMap::new(),
        lists: [(list, Arc::new(backends.collect()))].into(),
        locals: BTreeMap::new(),
        elsewhere: None,
        hints: Vec::new(),
        warnings: Vec::new(),
    };
    let mut update = Update::default();
    update.services.insert(id, Some(Arc::new(planned)));
    for agent in (0..AGENTS).filter(|_| replaced == 0) {
        let node: Arc<str> = name(agent).into();
        let entry = NodeEntry {
            name: node.clone(),
            ..NodeEntry::default()
        };
        update.nodes.insert(node, Some(Arc::new(entry)));
    }
    update
}

/// Receives batches until the plan has this hash. Returns the number of whole plans among them.
async fn follow(endpoint: Endpoint, node: String, end: PlanHash) -> usize {
    let hello = wire::Hello {
        node,
        wire_version: WIRE_VERSION,
        ..wire::Hello::default()
    };
    let mut agent = Agent::say_at(endpoint, hello).await;
    let mut whole = 0;
    loop {
        let batch = agent.batch().await;
        whole += usize::from(batch.snapshot);
        agent.ack(batch.number, false).await;
        if batch.hash == end {
            return whole;
        }
    }
}

/// Each agent receives one whole plan, its first, however far it is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_of_a_large_service_causes_no_whole_plans() {
    let store = Arc::new(Store::with_limits(HistoryLimits {
        bytes: 0,
        ..HistoryLimits::default()
    }));
    let ended = Store::default();
    store.publish(update(0));
    ended.publish(update(0));
    ended.publish(update(PODS));
    let listen: Listen = "127.0.0.1:0".parse().unwrap();
    let counters: Arc<Counters> = Arc::default();
    let opened = listen.open_insecure_counted(counters.clone()).await;
    let (listener, listen) = opened.unwrap();
    let registry = Arc::new(AgentRegistry::default());
    let served = (store.clone(), registry.clone());
    tokio::spawn(serve(listener, served.0, served.1, std::future::pending()));
    let mut agents = tokio::task::JoinSet::new();
    let mut replaced = 0;
    for agent in 0..AGENTS {
        let endpoint = Endpoint::from_shared(format!("http://{listen}")).unwrap();
        let end = ended.plan(&name(agent)).unwrap().hash();
        agents.spawn(follow(endpoint, name(agent), end));
        for _ in 0..usize::from(PODS) / AGENTS {
            tokio::time::sleep(Duration::from_millis(5)).await;
            replaced += 1;
            store.publish(update(replaced));
        }
    }
    assert_eq!(agents.join_all().await, [1; AGENTS]);
    let page = Metrics::new(&counters, registry, store);
    let page = page.page(Format::Text).unwrap();
    for (series, count) in [
        ("whole_plans_total{cause=\"first\"}", AGENTS),
        ("whole_plans_total{cause=\"outdated\"}", 0),
        ("whole_plans_waiting", 0),
    ] {
        let line = format!("\nportolan_controller_{series} {count}\n");
        assert!(page.contains(&line), "{series} is not {count}: {page}");
    }
    let none = "\nportolan_controller_batches_without_history_total 0\n";
    assert!(!page.contains(none), "the history was never missing");
}
