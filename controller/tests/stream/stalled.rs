//! An agent that does not read.

use portolan_controller::telemetry::metrics::{Format, Metrics};
use portolan_proto::{CHUNK_BYTES, WIRE_VERSION, wire};
use tonic::transport::Endpoint;

use super::{Agent, Controller, two_nodes};

/// It reads no message. A gRPC client would read some megabytes on its behalf.
async fn stalled(controller: &Controller, node: &str) -> Agent {
    let endpoint = Endpoint::from_shared(controller.address.clone()).unwrap();
    let hello = wire::Hello {
        node: node.into(),
        wire_version: WIRE_VERSION,
        ..wire::Hello::default()
    };
    Agent::say_at(endpoint.initial_stream_window_size(1 << 16), hello).await
}

/// Maximum number of bytes that waited for one agent.
fn most_waited(controller: &Controller) -> usize {
    let (registry, store) = (controller.registry.clone(), controller.store.clone());
    let metrics = Metrics::new(&controller.counters, registry, store);
    let page = metrics.page(Format::Text).unwrap();
    let name = "portolan_controller_stream_waiting_bytes_max ";
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
    lines.next().unwrap().parse().unwrap()
}

/// I-9: an agent that does not read costs little memory, and delays no other agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_read_delays_no_other() {
    let mut controller = Controller::start(4_000).await;
    let stalled = stalled(&controller, "node-a").await;
    for services in [4_001, 4_002] {
        controller.publish(&two_nodes(), services);
        let mut other = Agent::connect(&controller, "node-b", WIRE_VERSION).await;
        let first = other.batch().await;
        let mut entries = first.upserts.len();
        // A first plan may be a few versions old; the rest follows at once.
        if entries < 1 + 2 * services {
            other.ack(first.number, false).await;
            entries += other.batch().await.upserts.len();
        }
        assert_eq!(entries, 1 + 2 * services);
    }
    let waited = most_waited(&controller);
    assert!((CHUNK_BYTES..256 << 10).contains(&waited), "{waited} bytes");
    drop(stalled);
}
