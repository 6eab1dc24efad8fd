//! Misbehaving agents among honest ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portolan_agent::receive::Access;
use tonic::{Code, Status};

use super::NAME;
use super::authority::Authority;
use super::controller::{Agent, Controller};

/// Number of changes during the misbehaviour.
const CHANGES: usize = 40;
/// Number of Services before the changes.
const BEFORE: usize = 3;
/// Entries of a change: the head of a Service and its list.
const ENTRIES: usize = 2;

/// Counts of the misbehaviour.
#[derive(Debug, Default)]
struct Done {
    /// Streams of the agent that disconnects.
    left: u64,
    /// Batches that one agent acknowledged with a wrong hash.
    lied: u64,
    /// Streams that this agent lost.
    ended: u64,
    /// Requests for the plan of another node.
    asked: u64,
    /// Streams beyond the rate of a node.
    limited: u64,
}

impl Done {
    /// Counts a stream beyond the rate of its node.
    async fn limited(&mut self, status: &Status) {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        self.limited += 1;
        // Connections have a rate, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Connects, receives a batch and disconnects.
async fn leave(access: &Access, done: &mut Done) {
    let mut agent = Agent::open(access, "node-d").await.unwrap();
    match agent.take().await {
        Ok((entries, _)) => {
            assert!(entries > 0);
            done.left += 1;
        }
        Err(status) => done.limited(&status).await,
    }
}

/// Accepts the plan, then acknowledges each batch with a wrong hash, until its stream ends.
async fn lie(access: &Access, done: &mut Done) {
    let mut agent = Agent::open(access, "node-e").await.unwrap();
    if let Err(status) = agent.batch().await {
        return done.limited(&status).await;
    }
    let status = loop {
        match agent.take().await {
            Ok((_, commit)) => {
                agent.answer(commit.batch, vec![7; 16]).await;
                done.lied += 1;
            }
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    done.ended += 1;
}

/// Requests the plan of another node with its own token.
async fn ask(access: &Access, done: &mut Done) {
    let status = match Agent::open(access, "node-a").await {
        Ok(mut agent) => agent.take().await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    done.asked += 1;
}

/// I-2, I-9, I-13: one agent does not read, one disconnects repeatedly, one acknowledges a wrong hash and one
/// requests another node's plan. Honest agents get every change, each in its own batch, and the misbehaviour is
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_agents_get_every_change_while_others_misbehave() {
    let authority = Authority::new("one");
    let controller = Controller::start(&authority.server(NAME)).await;
    controller.publish(BEFORE);
    let access = |node| controller.access(&authority, NAME, Some(node));
    let mut honest = Vec::new();
    for node in ["node-a", "node-b"] {
        let mut agent = Agent::open(&access(node), node).await.unwrap();
        assert_eq!(agent.batch().await.unwrap(), 1 + ENTRIES * BEFORE);
        honest.push(agent);
    }
    let (silent, liar) = (access("node-c"), access("node-e"));
    let (leaver, thief) = (access("node-d"), access("node-f"));
    let stalled = Agent::open(&silent, "node-c").await.unwrap();
    let over = AtomicBool::new(false);
    let others = async {
        let mut done = Done::default();
        while !over.load(Ordering::Relaxed) {
            leave(&leaver, &mut done).await;
            ask(&thief, &mut done).await;
            lie(&liar, &mut done).await;
        }
        done
    };
    let changes = async {
        for change in 1..=CHANGES {
            controller.publish(BEFORE + change);
            for agent in &mut honest {
                assert_eq!(agent.batch().await.unwrap(), ENTRIES, "change {change}");
            }
        }
        over.store(true, Ordering::Relaxed);
        // The agent with the wrong hash waits for another change.
        for more in 1.. {
            controller.publish(BEFORE + CHANGES + more % 2);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let done = tokio::select! {
        done = others => done,
        () = changes => unreachable!("it goes on for ever"),
    };
    assert!(done.left > 0 && done.asked > 0, "{done:?}");
    // The first wrong hash of a stream is for a change, and the controller sends the whole plan again. The second one
    // is for that plan, and ends the stream.
    assert_eq!(done.lied, 2 * done.ended, "{done:?}");
    controller
        .wait_metric("whole_plans_total{cause=\"rejected\"}", done.ended)
        .await;
    controller
        .wait_metric("stream_protocol_errors_total", done.ended)
        .await;
    controller.counted("other_node", done.asked);
    // A request for another node's plan also opens a stream; the honest and the stalled agents have one each.
    controller.wait_counted("too_many", done.limited).await;
    let streams = 3 + done.left + done.ended + done.asked + done.limited;
    controller.wait_metric("streams_total", streams).await;
    drop((stalled, honest));
}
