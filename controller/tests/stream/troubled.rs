//! Services that are not in force on a node although its plan is.

use std::time::{Duration, SystemTime};

use portolan_controller::convergence::{Question, answer};
use portolan_plan::{Failing, ServiceId};
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::{WIRE_VERSION, wire};

use super::{Agent, Batch, Controller, LIMIT, NODE, message};

fn service(name: &str) -> ServiceId {
    ServiceId::new("shop", name)
}

fn troubles(failing: &[&str]) -> wire::Troubles {
    let services: Vec<_> = failing.iter().map(|name| service(name)).collect();
    let shown = services.iter().map(|service| wire::ServiceTrouble {
        service: service.to_string(),
        reason: "EndpointRefused".into(),
        message: "the kernel refuses endpoint 10.0.0.255:80".into(),
        in_force: false,
    });
    wire::Troubles {
        shown: shown.collect(),
        failing: Failing::of(&services).hashes().to_vec(),
        failing_services: u32::try_from(services.len()).unwrap(),
    }
}

impl Agent {
    async fn applied(&self, batch: &Batch, failing: &[&str]) {
        let hash = batch.hash.to_bytes().to_vec();
        let ack = wire::Ack {
            batch: batch.number,
            received_hash: hash.clone(),
            applied_hash: hash,
            troubles: Some(troubles(failing)),
            ..wire::Ack::default()
        };
        self.answers.send(message(Answer::Ack(ack))).await.unwrap();
    }
}

impl Controller {
    /// Why the node does not have a Service; `None` if it has.
    fn waits_for(&self, name: &str) -> Option<String> {
        let question = Question {
            service: service(name),
            gone: None,
            read: [].into(),
        };
        let now = SystemTime::now();
        let found = answer(&question, &self.store, &self.registry, now, now);
        found.waiting.into_iter().next().map(|waits| waits.reason)
    }

    async fn until(&self, name: &str, waits: bool) {
        let started = std::time::Instant::now();
        while self.waits_for(name).is_some() != waits {
            assert!(started.elapsed() < LIMIT, "{:?}", self.waits_for(name));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// S-229: the waits of others end, those for the Service name the cause, and a status ends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_in_force_except_for_the_services_that_the_agent_names() {
    let controller = Controller::start(2).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.applied(&first, &["s0"]).await;
    controller.until("s1", false).await;
    let reason = controller.waits_for("s0").unwrap();
    assert_eq!(reason, "the kernel refuses endpoint 10.0.0.255:80");
    let known = controller.registry.get("node-a").unwrap();
    assert_eq!(known.failing_services(), 1);
    let status = wire::Status {
        applied_hash: first.hash.to_bytes().to_vec(),
        troubles: Some(troubles(&[])),
        ..wire::Status::default()
    };
    let status = message(Answer::Status(status));
    agent.answers.send(status).await.unwrap();
    controller.until("s0", false).await;
}

/// The plan before is still the last one in force, with its exceptions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_resolves_nothing() {
    let mut controller = Controller::start(2).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.applied(&first, &["s0"]).await;
    controller.until("s1", false).await;
    controller.publish(NODE, 3);
    let delta = agent.batch().await;
    agent.ack(delta.number, true).await;
    let whole = agent.batch().await;
    assert!(controller.waits_for("s0").is_some());
    agent.applied(&whole, &[]).await;
    controller.until("s2", false).await;
    assert_eq!(controller.waits_for("s0"), None);
}

/// A reconnected agent has reported nothing yet, so no Service counts as in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconnected_agent_has_no_service_in_force_until_it_reports() {
    let controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.applied(&first, &[]).await;
    controller.until("s0", false).await;
    let hash = first.hash.to_bytes().to_vec();
    let mut again = Agent::connect_with(&controller, "node-a", WIRE_VERSION, hash).await;
    let first = again.batch().await;
    assert!(controller.waits_for("s0").is_some());
    again.applied(&first, &["s0"]).await;
    controller
        .until_known("node-a", |known| known.fails(&service("s0")))
        .await;
    assert!(controller.waits_for("s0").is_some());
}

impl Controller {
    async fn until_known(
        &self,
        node: &str,
        holds: impl Fn(&portolan_controller::agent_registry::Delivery) -> bool,
    ) {
        let started = std::time::Instant::now();
        while !self.registry.get(node).is_some_and(|known| holds(&known)) {
            assert!(started.elapsed() < LIMIT, "{:?}", self.registry.get(node));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
