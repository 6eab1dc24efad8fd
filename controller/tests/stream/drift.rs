//! Drift reported by agents.

use std::time::Duration;

use portolan_controller::agent_registry::MAX_LISTED_ITEMS;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::{WIRE_VERSION, wire};

use super::{Agent, Controller, LIMIT, message};

/// The registry has it by kind, also while an answer to a batch is expected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_reported_by_an_agent_is_in_the_registry() {
    let controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    let reported = || {
        controller
            .registry
            .get("node-a")
            .and_then(|known| known.drifted)
    };
    assert_eq!(reported(), None, "no report yet");
    for (unrepaired, answers) in [(2, true), (0, false)] {
        let drift = wire::Drift {
            kind: "real server".into(),
            found: 2,
            repaired: 2 - unrepaired,
            unrepaired,
        };
        let status = wire::Status {
            drift: vec![drift],
            closed_ports: vec!["listen on 0.0.0.0:32000: taken".into(); 100],
            ..wire::Status::default()
        };
        agent
            .answers
            .send(message(Answer::Status(status)))
            .await
            .unwrap();
        let started = std::time::Instant::now();
        while reported().is_none_or(|all| all.first().is_none_or(|d| d.unrepaired != unrepaired)) {
            assert!(started.elapsed() < LIMIT, "{:?}", reported());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if answers {
            agent.ack(first.number, false).await;
        }
    }
    let known = controller.registry.get("node-a").unwrap();
    assert_eq!(known.closed_ports.len(), MAX_LISTED_ITEMS, "S-143");
    let all = reported().unwrap();
    assert_eq!(
        (&*all[0].kind, all[0].found, all[0].repaired),
        ("real server", 2, 2)
    );
}
