//! Draining addresses reported by agents, and the notifications about them.

use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{WIRE_VERSION, wire};

use super::{Agent, Controller, NODE, message};

impl Agent {
    async fn drains(&self, addresses: &[&[u8]]) {
        let draining = addresses.iter().map(|address| address.to_vec()).collect();
        let status = wire::Status {
            draining,
            ..wire::Status::default()
        };
        let status = message(Answer::Status(status));
        self.answers.send(status).await.unwrap();
    }

    /// The next notification about drained addresses; batches received meanwhile are answered.
    async fn gone(&mut self) -> Vec<Vec<u8>> {
        loop {
            match self.message().await.unwrap() {
                Message::Gone(gone) => return gone.addresses,
                Message::Commit(commit) => self.ack(commit.batch, false).await,
                Message::Batch(batch) => self.ack(batch.commit.unwrap().batch, false).await,
                Message::Begin(_) | Message::Items(_) | Message::Freshness(_) => {}
            }
        }
    }
}

/// A slice whose endpoint is not served.
fn slice(address: &str, node: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: s0-x, namespace: shop, labels: {{kubernetes.io/service-name: s0}}}}\naddressType: IPv4\nports: [{{name: '', port: 8080, protocol: TCP}}]\nendpoints: [{{addresses: [{address}], nodeName: {node}, conditions: {{ready: false, serving: false, terminating: true}}}}]\n"
    )
}

/// S-115: an agent is notified which of its draining backends have left the cluster, and again when one comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_notified_of_drained_addresses_that_left_the_cluster() {
    let mut controller = Controller::silent().await;
    let there = format!("{NODE}{}", slice("10.244.1.5", "node-a"));
    controller.publish(&there, 1);
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    // Also while an answer to a batch is expected.
    let (five, nine) = ([10, 244, 1, 5], [10, 244, 9, 9]);
    agent.drains(&[&five, &nine]).await;
    agent.ack(first.number, false).await;
    assert_eq!(agent.gone().await, [nine]);
    controller.publish(NODE, 1);
    assert_eq!(agent.gone().await, [five, nine]);
    // An endpoint on a nonexistent node has left the cluster as well.
    controller.publish(&format!("{NODE}{}", slice("10.244.9.9", "node-z")), 1);
    controller.publish(&there, 1);
    assert_eq!(agent.gone().await, [nine]);
    agent.drains(&[&five]).await;
    assert_eq!(agent.gone().await, [[0_u8; 0]; 0]);
    agent.drains(&[&[1, 2, 3]]).await;
    let status = agent.end().await;
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("status.draining"), "{status:?}");
}

/// S-117: an agent remembers earlier notifications. A backend that came back while it was disconnected must not be
/// dropped at its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconnected_agent_is_notified_that_no_address_is_gone() {
    let mut controller = Controller::silent().await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let five = [10, 244, 1, 5];
    // Nothing is sent before the plans are known; afterwards a notification is sent, even if it is empty.
    agent.drains(&[&five]).await;
    controller.publish(&format!("{NODE}{}", slice("10.244.1.5", "node-a")), 1);
    assert_eq!(agent.gone().await, [[0_u8; 0]; 0]);
}
