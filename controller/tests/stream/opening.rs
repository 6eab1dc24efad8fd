//! The beginning of streams.

use portolan_proto::{MAX_MESSAGE_BYTES, WIRE_VERSION};

use super::*;

/// A client that was admitted, and then sends nothing.
#[tokio::test]
async fn a_stream_without_a_hello_ends() {
    let controller = Controller::start(1).await;
    let endpoint = Endpoint::from_shared(controller.address.clone()).unwrap();
    let mut client = PlanStreamClient::new(endpoint.connect().await.unwrap());
    let (answers, outgoing) = mpsc::channel(4);
    let stream = client.watch(ReceiverStream::new(outgoing)).await.unwrap();
    let messages = stream.into_inner();
    let mut silent = Agent { answers, messages };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let status = silent.end().await;
    assert_eq!(status.message(), "the agent sent no Hello within 10 s");
}

/// Two agents of one node, perhaps by mistake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_stream_of_a_node_replaces_the_older_one() {
    let mut controller = Controller::start(1).await;
    let mut older = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = older.batch().await;
    older.ack(first.number, false).await;
    let mut newer = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = newer.batch().await;
    newer.ack(first.number, false).await;
    let status = older.end().await;
    assert_eq!(status.code(), tonic::Code::Aborted);
    assert!(status.message().contains("two agents"), "{status}");
    assert!(controller.registry.get("node-a").unwrap().connected);
    controller.publish(NODE, 2);
    assert_eq!(newer.batch().await.upserts.len(), 2);
}

/// What is kept of an agent is bounded, whatever it sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_texts_of_an_agent_are_shortened() {
    let controller = Controller::start(1).await;
    let hello = wire::Hello {
        node: "node-a".into(),
        wire_version: WIRE_VERSION,
        agent_version: "v".repeat(50_000),
        ..wire::Hello::default()
    };
    let mut agent = Agent::say(&controller, hello).await;
    let batch = agent.batch().await;
    let long = vec!["x\n".repeat(2000); 10];
    let ack = wire::Ack {
        batch: batch.number,
        failures: long.clone(),
        failed_operations: 10,
        ..wire::Ack::default()
    };
    assert!(ack.encoded_len() < MAX_MESSAGE_BYTES);
    agent.answers.send(message(Answer::Ack(ack))).await.unwrap();
    let status = wire::Status {
        closed_ports: long,
        ..wire::Status::default()
    };
    let status = message(Answer::Status(status));
    agent.answers.send(status).await.unwrap();
    let waited = async {
        loop {
            let delivery = controller.registry.get("node-a").unwrap();
            if !delivery.closed_ports.is_empty() {
                return delivery;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let delivery = tokio::time::timeout(LIMIT, waited).await.unwrap();
    assert_eq!(*delivery.agent_version, "v".repeat(64));
    let (_, acked) = delivery.acked.unwrap();
    let texts = acked.failures.iter().chain(delivery.closed_ports.iter());
    let texts: Vec<_> = texts.collect();
    assert_eq!(texts.len(), 10, "five of each");
    assert!(
        texts
            .iter()
            .all(|text| text.len() == 1024 && !text.contains('\n'))
    );
}
