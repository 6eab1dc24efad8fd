//! Health check ports, `/healthz`, `/livez` and metrics over real sockets on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "health/metrics.rs"]
mod metrics;
#[path = "health/node.rs"]
mod node;
#[path = "health/passes.rs"]
mod passes;
mod ports;
#[allow(dead_code, reason = "other tests need more of it")]
mod running;
#[path = "health/sockets.rs"]
mod sockets;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use portolan_agent::health::Changes;
use portolan_plan::Family;
use serde::Deserialize;

use node::{TestNode, ask_until, loopback};
use ports::free_port;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    story: Vec<Event>,
    asked: u64,
    answers: Vec<Question>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    second: u64,
    arrives: Option<u64>,
    passes: Option<u64>,
    #[serde(default)]
    failed: Vec<String>,
    #[serde(default)]
    endpoints: BTreeMap<String, u32>,
    eligible: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    ask: String,
    page: String,
    over: Vec<String>,
    answer: String,
}

fn family(name: &str) -> Family {
    let mut families = Family::BOTH.into_iter();
    families.find(|family| family.as_str() == name).unwrap()
}

fn replay(node: &mut TestNode, port: u16, story: &[Event]) {
    for event in story {
        node.set_second(event.second);
        if let Some(generation) = event.arrives {
            node.health.queued(generation, Changes::default());
        }
        if let Some(generation) = event.passes {
            node.eligible = event.eligible.unwrap_or(true);
            let count = |family| event.endpoints.get(family).copied().unwrap_or(0);
            node.check("web", port, count("IPv4"), count("IPv6"));
            let failed: Vec<_> = event.failed.iter().map(|name| family(name)).collect();
            node.passes(generation, &failed);
        }
    }
}

/// Converts a response to the form in the table: without its date, and with LF line ends.
fn normal(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    let lines = head.split("\r\n").filter(|line| {
        assert!(!line.contains('\n'), "{line:?}");
        !line.starts_with("date: ") && !line.starts_with("connection: close")
    });
    let head: Vec<_> = lines.collect();
    format!("{}\n\n{}", head.join("\n"), body.trim_end_matches('\n'))
}

#[tokio::test]
async fn responses_for_every_state_of_health_are_as_in_the_table() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("health/answers.yaml")).unwrap();
    let mut wrong = String::new();
    for case in &cases {
        let mut node = TestNode::start().await;
        let port = free_port();
        replay(&mut node, port, &case.story);
        node.set_second(case.asked);
        node.open();
        for question in &case.answers {
            for over in &question.over {
                let port = match question.page.as_str() {
                    "check" => port,
                    _ => node.settings.healthz.port,
                };
                let address = SocketAddr::new(loopback(family(over)), port);
                let answer = ask_until(address, &question.ask, |answer| answer.is_ok()).await;
                let answer = normal(&answer.unwrap());
                if answer != question.answer.trim_end_matches('\n') {
                    wrong += &format!("{} / {} / {over}:\n{answer}\n\n", case.case, question.ask);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
