//! One agent's stream: a batch, its answer, the next batch.
//!
//! One batch is in flight; what changes meanwhile is part of the next one. Messages are made only
//! as the agent takes them.

use std::time::SystemTime;

use bytes::Bytes;
use portolan_plan::{EntryKey, PlanHash};
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{CHUNK_BYTES, WIRE_VERSION, item, wire};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::Plans;
use super::ack::{self, Sent};
use super::draining::Draining;
use crate::board::Board;
use crate::store::{Batch, Position};

type Queue = mpsc::Sender<Result<wire::PlanMessage, Status>>;

/// Why a session ended.
pub(super) enum End {
    /// The agent went away.
    Gone,
    /// It is told why.
    Refused(Status),
}

impl From<Status> for End {
    fn from(_: Status) -> Self {
        Self::Gone
    }
}

/// Serves one agent until it goes away, breaks the protocol, or this server ends.
pub(super) async fn run(plans: Plans, answers: Streaming<wire::AgentMessage>, queue: Queue) {
    let mut ending = plans.ending.clone();
    tokio::select! {
        () = serve(&plans, answers, &queue) => {}
        // An agent that does not read finds out when the connection ends.
        _ = ending.wait_for(|ending| *ending) => drop(queue.try_send(Err(Status::unavailable(
            "this controller is ending",
        )))),
    }
}

async fn serve(plans: &Plans, mut answers: Streaming<wire::AgentMessage>, queue: &Queue) {
    let hello = match answers.message().await {
        Ok(Some(wire::AgentMessage {
            message: Some(Answer::Hello(hello)),
        })) => hello,
        Ok(_) => {
            let wrong = Status::invalid_argument("the first message has to be a Hello");
            drop(queue.send(Err(wrong)).await);
            return;
        }
        Err(_) => return,
    };
    let stream = OnBoard::new(&plans.board, &hello);
    connected(&hello);
    let ended = follow(plans, &hello, &mut answers, queue).await;
    drop(stream);
    if let Err(End::Refused(status)) = ended {
        refused(&hello, &status);
        drop(queue.send(Err(status)).await);
    } else {
        gone(&hello);
    }
}

/// Shows the stream on the board as long as it lasts, however it ends.
struct OnBoard<'a> {
    board: &'a Board,
    node: &'a str,
    since: SystemTime,
}

impl<'a> OnBoard<'a> {
    fn new(board: &'a Board, hello: &'a wire::Hello) -> Self {
        let since = SystemTime::now();
        board.connected(&hello.node, &hello.agent_version, since);
        Self {
            board,
            node: &hello.node,
            since,
        }
    }
}

impl Drop for OnBoard<'_> {
    fn drop(&mut self) {
        self.board.gone(self.node, self.since, SystemTime::now());
    }
}

fn connected(hello: &wire::Hello) {
    info!(
        node = hello.node,
        agent = hello.agent_version,
        "agent connected"
    );
}

fn refused(hello: &wire::Hello, status: &Status) {
    warn!(
        node = hello.node,
        reason = status.message(),
        "agent refused"
    );
}

fn gone(hello: &wire::Hello) {
    info!(node = hello.node, "agent gone");
}

async fn follow(
    plans: &Plans,
    hello: &wire::Hello,
    answers: &mut Streaming<wire::AgentMessage>,
    queue: &Queue,
) -> Result<(), End> {
    if hello.wire_version != WIRE_VERSION {
        let versions = format!(
            "this controller speaks wire version {WIRE_VERSION}, the agent {}; bring both to \
             releases that belong together",
            hello.wire_version
        );
        return Err(End::Refused(Status::failed_precondition(versions)));
    }
    let store = &plans.store;
    let mut changes = store.changes();
    let held = PlanHash::from_bytes(&hello.plan_hash);
    let mut position: Option<Position> = None;
    let mut number = 0;
    let mut said_unknown = false;
    let mut draining = Draining::default();
    loop {
        // Changes after this line wake the loop again.
        changes.mark_unchanged();
        if number == 0 {
            // An agent often comes back before this controller has read its first object.
            position = held.and_then(|held| store.resume(&hello.node, held));
        }
        match store.batch(&hello.node, position.as_ref()) {
            // The first batch goes out even when it is empty: it tells the agent that it is right.
            Some((batch, next)) if number == 0 || !batch.is_empty() => {
                number += 1;
                let sent = Sent::now(number, &batch);
                send(queue, number, batch).await?;
                let done = ack::wait(answers, hello, &sent, &plans.board, &mut draining).await?;
                position = done.then_some(next);
                if position.is_none() {
                    // A refused batch is followed by the whole plan at once.
                    continue;
                }
            }
            Some((_, next)) => position = Some(next),
            None if said_unknown => {}
            None => {
                said_unknown = true;
                warn!(
                    node = hello.node,
                    "no such node; waiting for a Node object of this name"
                );
            }
        }
        if let Some(gone) = draining.news(store) {
            put(queue, Message::Gone(gone)).await?;
        }
        tokio::select! {
            changed = changes.changed() => changed.map_err(|_| End::Gone)?,
            // No answer is expected now: one would be one too many, an end is an end.
            message = answers.message() => match message? {
                Some(wire::AgentMessage { message: Some(Answer::Status(status)) }) => {
                    ack::status(&status, hello, &plans.board, &mut draining)?;
                }
                Some(_) => {
                    let wrong = "an answer came without a batch to answer";
                    return Err(End::Refused(Status::invalid_argument(wrong)));
                }
                None => return Ok(()),
            },
        }
    }
}

/// Sends a batch, which is gone when the agent has it: nothing is kept while it is being applied.
async fn send(queue: &Queue, number: u64, batch: Batch) -> Result<(), End> {
    let begin = wire::Begin {
        batch: number,
        snapshot: batch.snapshot,
    };
    put(queue, Message::Begin(begin)).await?;
    let mut chunk = Chunk::default();
    for (key, bytes) in batch.upserts {
        if let Some(full) = chunk.push(item::upsert(&key, bytes.clone()), size(&key, &bytes)) {
            put(queue, Message::Items(full)).await?;
        }
    }
    for key in batch.removals {
        if let Some(full) = chunk.push(item::remove(&key), size(&key, &Bytes::new())) {
            put(queue, Message::Items(full)).await?;
        }
    }
    if let Some(rest) = chunk.rest() {
        put(queue, Message::Items(rest)).await?;
    }
    let plan_hash = batch.hash.to_bytes().to_vec();
    put(
        queue,
        Message::Commit(wire::Commit {
            batch: number,
            plan_hash,
        }),
    )
    .await
}

async fn put(queue: &Queue, message: Message) -> Result<(), End> {
    let message = wire::PlanMessage {
        message: Some(message),
    };
    queue.send(Ok(message)).await.map_err(|_| End::Gone)
}

fn size(key: &EntryKey, bytes: &Bytes) -> usize {
    key.to_string().len() + bytes.len()
}

/// Items gathered for one message.
#[derive(Default)]
struct Chunk {
    items: Vec<wire::Item>,
    bytes: usize,
}

impl Chunk {
    /// Adds an item; gives a message back when it is full.
    fn push(&mut self, item: wire::Item, bytes: usize) -> Option<wire::Items> {
        self.items.push(item);
        self.bytes += bytes;
        if self.bytes < CHUNK_BYTES {
            return None;
        }
        self.bytes = 0;
        Some(wire::Items {
            items: std::mem::take(&mut self.items),
        })
    }

    fn rest(self) -> Option<wire::Items> {
        (!self.items.is_empty()).then_some(wire::Items { items: self.items })
    }
}
