//! A connected agent that does not answer.

use std::time::{Duration, Instant};

use portolan_proto::WIRE_VERSION;

use super::{Agent, Controller, LIMIT};

/// A thread stuck in the kernel keeps its agent from answering, but has no other effect: the registry reports it until
/// an answer arrives.
#[tokio::test]
async fn a_missing_answer_is_reported() {
    let controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let batch = agent.batch().await;
    let overdue = || controller.registry.get("node-a").unwrap().overdue.is_some();
    for (passes, wanted) in [(119, false), (2, true)] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(passes)).await;
        tokio::time::resume();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(overdue(), wanted, "{passes} s later");
    }
    agent.ack(batch.number, false).await;
    let started = Instant::now();
    while overdue() {
        assert!(started.elapsed() < LIMIT, "it was answered");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
