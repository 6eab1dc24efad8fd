//! Drift reported by agents.

use std::time::Duration;

use portolan_controller::board::REMEMBERED;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::{WIRE_VERSION, wire};

use super::{Agent, Controller, LIMIT, message};

/// The board has it by kind, also while an answer to a batch is expected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_tells_of_drift_is_on_the_board() {
    let controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    let on_board = || {
        controller
            .board
            .get("node-a")
            .and_then(|known| known.drifted)
    };
    assert_eq!(on_board(), None, "no report yet");
    for (standing, answers) in [(2, true), (0, false)] {
        let drift = wire::Drift {
            kind: "real server".into(),
            found: 2,
            repaired: 2 - standing,
            standing,
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
        while on_board().is_none_or(|all| all.first().is_none_or(|d| d.standing != standing)) {
            assert!(started.elapsed() < LIMIT, "{:?}", on_board());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if answers {
            agent.ack(first.number, false).await;
        }
    }
    let known = controller.board.get("node-a").unwrap();
    assert_eq!(known.closed_ports.len(), REMEMBERED, "S-143");
    let all = on_board().unwrap();
    assert_eq!(
        (&*all[0].kind, all[0].found, all[0].repaired),
        ("real server", 2, 2)
    );
}
