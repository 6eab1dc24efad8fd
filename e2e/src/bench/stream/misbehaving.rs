//! Misbehaving agents in a separate process: one reads nothing, one disconnects every second, one acknowledges a wrong
//! hash. If agents authenticate, one requests the plan of another node, one opens any number of streams, and one reports
//! a plan that is newer than there can be. None of them ever has a plan in force.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use serde::{Deserialize, Serialize};
use tonic::transport::Endpoint;

use super::clients::say;
use super::objects::node_name;
use super::place::Way;
use crate::agent_stream::{AgentStream, hello, hello_ahead};

/// Number of agents.
pub(super) const AGENTS: u32 = 6;
/// Between two times that one of them does what it does.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two streams of the one that opens any number.
const CROWD_PAUSE: Duration = Duration::from_millis(50);
/// Streams that it keeps.
const CROWD: usize = 100;
/// The longest stream with a forged report.
const FORGED_STREAM: Duration = Duration::from_secs(5);
/// Characters of the version that the one with the forged report sends.
const LONG: usize = 60_000;
/// HTTP/2 window of the agent that reads nothing; the default of the library would be millions of
/// bytes.
const WINDOW: u32 = (1 << 16) - 1;

/// Identity of the agents.
#[derive(Debug, Clone, Args)]
pub struct MisbehavingOptions {
    #[command(flatten)]
    way: Way,
    /// The number of the first one's node; the others follow.
    #[arg(long)]
    first: u32,
}

/// Counts of their actions.
#[derive(Debug, Default)]
struct Done {
    left: AtomicU64,
    lied: AtomicU64,
    asked: AtomicU64,
    crowded: AtomicU64,
    forged: AtomicU64,
}

/// The actions that they report at the end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Streams that one opened and left.
    pub(super) left: u64,
    /// Answers with a hash that is not the one of the plan.
    pub(super) lied: u64,
    /// Streams for another node's plan.
    pub(super) asked: u64,
    /// Streams of one node, beside each other.
    pub(super) crowded: u64,
    /// Streams with a forged report of a newer plan.
    pub(super) forged: u64,
}

/// Runs until standard input ends, then prints the counts.
///
/// # Errors
/// Threads cannot be started.
pub fn run(options: &MisbehavingOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start their thread")?;
    let node = |place: u32| node_name(options.first + place);
    let done = Arc::<Done>::default();
    let way = &options.way;
    drop(runtime.spawn(stall(way.clone(), node(0))));
    drop(runtime.spawn(leave(way.clone(), node(1), done.clone())));
    drop(runtime.spawn(lie(way.clone(), node(2), done.clone())));
    if way.is_trusted() {
        drop(runtime.spawn(ask(way.clone(), node(3), done.clone())));
        drop(runtime.spawn(crowd(way.clone(), node(4), done.clone())));
        drop(runtime.spawn(forge(way.clone(), node(5), done.clone())));
    }
    for line in std::io::stdin().lock().lines() {
        line?;
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let report = Report {
        left: count(&done.left),
        lied: count(&done.lied),
        asked: count(&done.asked),
        crowded: count(&done.crowded),
        forged: count(&done.forged),
    };
    say(&format!("did {}", serde_json::to_string(&report)?));
    runtime.shutdown_background();
    Ok(())
}

/// Opens a stream and never reads from it.
async fn stall(way: Way, node: String) -> Result<()> {
    let narrow = |endpoint: Endpoint| {
        endpoint
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
    };
    loop {
        let access = way.access(&node)?;
        if let Ok(channel) = access.connect_as(narrow).await
            && let Ok(stream) = AgentStream::open(&access, channel, hello(&node)).await
        {
            say("stalled");
            std::future::pending::<()>().await;
            drop(stream);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn open(way: &Way, owner: &str, node: &str) -> Result<AgentStream> {
    let access = way.access(owner)?;
    let channel = access.connect().await?;
    let mut hello = hello(node);
    // No agent has this hash, so the whole plan has to be sent.
    hello.plan_hash = vec![7; 16];
    AgentStream::open(&access, channel, hello).await
}

/// Takes the first message of a plan and is gone.
async fn leave(way: Way, node: String, done: Arc<Done>) {
    loop {
        if let Ok(mut stream) = open(&way, &node, &node).await {
            // The age of the objects comes first.
            drop(stream.messages.message().await);
            drop(stream.messages.message().await);
            done.left.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Acknowledges its plan and each batch with a wrong hash.
async fn lie(way: Way, node: String, done: Arc<Done>) {
    loop {
        if let Ok(mut stream) = open(&way, &node, &node).await {
            drop(lie_on(&mut stream, &done).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn lie_on(stream: &mut AgentStream, done: &Done) -> Result<()> {
    let mut first = true;
    loop {
        let message = stream
            .messages
            .message()
            .await?
            .context("the stream ended")?;
        let commit = match message.message {
            Some(Message::Commit(commit)) => commit,
            Some(Message::Batch(batch)) => batch.commit.context("no commit")?,
            _ => continue,
        };
        let lie = vec![7; 16];
        let ack = wire::Ack {
            batch: commit.batch,
            received_hash: if std::mem::take(&mut first) {
                commit.plan_hash
            } else {
                done.lied.fetch_add(1, Ordering::Relaxed);
                lie.clone()
            },
            applied_hash: lie,
            ..wire::Ack::default()
        };
        stream.answer(Answer::Ack(ack)).await?;
    }
}

/// Requests the plan of the first node with its own token.
async fn ask(way: Way, node: String, done: Arc<Done>) {
    loop {
        if let Ok(mut stream) = open(&way, &node, &node_name(1)).await {
            // It ends with a refusal.
            drop(stream.messages.message().await);
            done.asked.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Opens streams of its node as if each were the only one.
async fn crowd(way: Way, node: String, done: Arc<Done>) {
    let mut streams = std::collections::VecDeque::new();
    loop {
        if let Ok(stream) = open(&way, &node, &node).await {
            streams.push_back(stream);
            if streams.len() > CROWD {
                drop(streams.pop_front());
            }
            done.crowded.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(CROWD_PAUSE).await;
    }
}

/// Reports a watermark that no controller reaches, and in every second stream a version that is too long.
async fn forge(way: Way, node: String, done: Arc<Done>) {
    let ahead = hello_ahead(&node);
    let long = wire::Hello {
        agent_version: "x".repeat(LONG),
        ..ahead.clone()
    };
    for forged in [ahead, long].iter().cycle() {
        if let Ok(access) = way.access(&node)
            && let Ok(channel) = access.connect().await
            && let Ok(mut stream) = AgentStream::open(&access, channel, forged.clone()).await
        {
            done.forged.fetch_add(1, Ordering::Relaxed);
            let read = async { while let Ok(Some(_)) = stream.messages.message().await {} };
            // The controller may serve this agent: nothing that it reports is a reason to refuse the plan.
            drop(tokio::time::timeout(FORGED_STREAM, read).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
