//! One agent's stream: a batch, its answer, the next batch.
//!
//! One batch is in flight; changes that happen meanwhile are part of the next one. Messages are produced only as the
//! agent reads them.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use portolan_plan::{BUCKETS, BucketHashes, PlanHash};
use portolan_planner::model::Kind;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{CHUNK_BYTES, OLDEST_WIRE_VERSION, wire};
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::Plans;
use super::ack::{self, AgentRecords, Sent};
use super::behind;
use super::confirmed::Confirmed;
use super::draining::Draining;
use super::outgoing::Outgoing;
use super::pace::Turns;
use super::trip::Trip;
use crate::agent_registry::{AgentRegistry, InForce};
use crate::auth::Admission;
use crate::store::{Begin, Held, Outdated, Store, Walk};
use crate::watch::Mark;

/// Why a session ended.
pub(super) enum End {
    /// The agent went away.
    Gone,
    /// The server ends it; the agent gets the reason.
    Refused(Status),
}

impl From<Status> for End {
    fn from(_: Status) -> Self {
        Self::Gone
    }
}

/// Serves one agent until it goes away, breaks the protocol, or this server ends.
pub(super) async fn run(
    plans: &Plans,
    admission: &Admission,
    answers: Streaming<wire::AgentMessage>,
    outgoing: Outgoing,
) {
    let (mut ending, queue) = (plans.ending.clone(), outgoing.queue());
    tokio::select! {
        () = serve(plans, admission, answers, outgoing) => {}
        // An agent that does not read notices when the connection ends.
        _ = ending.wait_for(|ending| *ending) => drop(queue.try_send(Err(Status::unavailable(
            "this controller is ending",
        )))),
    }
}

async fn serve(
    plans: &Plans,
    admission: &Admission,
    mut answers: Streaming<wire::AgentMessage>,
    mut outgoing: Outgoing,
) {
    let mut hello = match answers.message().await {
        Ok(Some(wire::AgentMessage {
            message: Some(Answer::Hello(hello)),
        })) => hello,
        Ok(_) => {
            let wrong = Status::invalid_argument("the first message has to be a Hello");
            outgoing.end(wrong).await;
            return;
        }
        Err(_) => return,
    };
    if let Err(refusal) = admission.covers(&hello.node) {
        plans.entrance.refusals.note(&hello.node, &refusal);
        outgoing.end(refusal.into()).await;
        return;
    }
    let held = held_by(&hello);
    // Free it: it takes kilobytes and is not needed again.
    hello.bucket_hashes = Vec::new();
    let stream = OnBoard::new(&plans.registry, &hello, admission.pod());
    connected(&hello);
    let in_force = stream.in_force.clone();
    let ended = follow(plans, &hello, held, in_force, &mut answers, &mut outgoing).await;
    drop(stream);
    if let Err(End::Refused(status)) = ended {
        plans.entrance.counters.broken();
        refused(&hello, &status);
        outgoing.end(status).await;
    } else {
        gone(&hello);
    }
}

/// Keeps the stream on the registry as long as it lasts, however it ends.
struct OnBoard<'a> {
    registry: &'a AgentRegistry,
    node: &'a str,
    since: SystemTime,
    in_force: InForce,
}

impl<'a> OnBoard<'a> {
    fn new(registry: &'a AgentRegistry, hello: &'a wire::Hello, pod: Option<&str>) -> Self {
        let since = SystemTime::now();
        Self {
            registry,
            node: &hello.node,
            since,
            in_force: registry.connected(&hello.node, &hello.agent_version, pod, since),
        }
    }
}

impl Drop for OnBoard<'_> {
    fn drop(&mut self) {
        self.registry.gone(self.node, self.since, SystemTime::now());
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
    held: Result<Held, End>,
    in_force: InForce,
    answers: &mut Streaming<wire::AgentMessage>,
    outgoing: &mut Outgoing,
) -> Result<(), End> {
    if hello.wire_version < OLDEST_WIRE_VERSION {
        let versions = format!(
            "the agent uses wire version {}, but this controller needs at least {OLDEST_WIRE_VERSION}: \
             upgrade the agent",
            hello.wire_version
        );
        return Err(End::Refused(Status::failed_precondition(versions)));
    }
    let store = &plans.store;
    let mut changes = store.changes();
    let mut serving = Serving {
        plans,
        hello,
        outgoing,
        held: held?,
        batches: 0,
        sent_marks: BTreeMap::new(),
        records: AgentRecords {
            draining: Draining::default(),
            confirmed: Confirmed::new(in_force),
        },
        said_unknown: false,
        turns: plans.pace.join(),
    };
    loop {
        // Changes after this line wake the loop again.
        changes.mark_unchanged();
        while serving.serve(answers).await? == Served::Again {}
        if let Some(gone) = serving.records.draining.update(store) {
            serving.outgoing.put(Message::Gone(gone)).await?;
        }
        tokio::select! {
            // In this order, so that a simulation can repeat a stream. Messages are not delayed for long: those that
            // arrive during a batch are processed with its answer.
            biased;
            more = serving.turns.next(&mut changes) => if !more {
                return Err(End::Gone);
            },
            // No answer is expected now: one is a protocol error, and the end of the stream is a normal end.
            message = answers.message() => match message? {
                Some(wire::AgentMessage { message: Some(Answer::Status(status)) }) => {
                    ack::status(&status, hello, &plans.registry, &mut serving.records)?;
                }
                Some(_) => {
                    let wrong = "received an answer without a batch";
                    return Err(End::Refused(Status::invalid_argument(wrong)));
                }
                None => return Ok(()),
            },
        }
    }
}

/// The state of serving one agent.
struct Serving<'a> {
    plans: &'a Plans,
    hello: &'a wire::Hello,
    outgoing: &'a mut Outgoing,
    held: Held,
    /// Number of batches sent.
    batches: u64,
    /// The watermarks sent to it.
    sent_marks: BTreeMap<Kind, Mark>,
    records: AgentRecords,
    said_unknown: bool,
    turns: Turns,
}

/// The result of bringing an agent up to date.
#[derive(Debug, PartialEq, Eq)]
enum Served {
    /// It holds its plan, or has none.
    Done,
    /// It needs the whole plan at once.
    Again,
}

impl Serving<'_> {
    /// Sends a batch if one is due, and processes the answer.
    async fn serve(&mut self, answers: &mut Streaming<wire::AgentMessage>) -> Result<Served, End> {
        let store = &self.plans.store;
        let node = &self.hello.node;
        if self.batches == 0 {
            behind::catch_up(store, self.hello).await?;
        }
        // Before the contents of the batch are determined: later plans may not be part of it.
        let made = Instant::now();
        let Some(mut walk) = store.begin(node, self.held.clone()) else {
            if !std::mem::replace(&mut self.said_unknown, true) {
                warn!(node, "no such node; waiting for a Node with this name");
            }
            return Ok(Served::Done);
        };
        let snapshot = matches!(walk.begin(), Begin::Nothing);
        let trip = Trip::begin(&self.plans.changes, store.causes(&walk));
        let mut sent = Sent::new(self.batches + 1, snapshot, made, trip);
        let watermark = || behind::news(&mut self.sent_marks, &store.marks().borrow());
        let batch = Batch {
            before: self.batches,
            trip: &sent.trip,
        };
        match send(self.outgoing, store, &mut walk, watermark, batch).await? {
            Sending::Nothing => {}
            Sending::Done => {
                self.turns.taken();
                sent.handed(walk.end().hash());
                self.batches += 1;
                let (registry, records) = (&self.plans.registry, &mut self.records);
                if !ack::wait(answers, self.hello, &sent, registry, records).await? {
                    // A rejected batch is followed by the whole plan at once.
                    self.plans.entrance.counters.resent();
                    return Ok(self.begin_again());
                }
                self.outgoing.answered();
            }
            Sending::Outdated => return Ok(self.begin_again()),
        }
        let position = walk.end();
        let confirmed = &mut self.records.confirmed;
        confirmed.holds(position.version(), position.hash());
        self.held = Held::Sent(position);
        Ok(Served::Done)
    }
}

impl Serving<'_> {
    /// The agent has dropped the batch, and with it the watermarks of its plan.
    fn begin_again(&mut self) -> Served {
        self.held = Held::Nothing;
        self.sent_marks.clear();
        Served::Again
    }
}

/// The plan that an agent reports to hold.
fn held_by(hello: &wire::Hello) -> Result<Held, End> {
    let Some(hash) = PlanHash::from_bytes(&hello.plan_hash) else {
        return Ok(Held::Nothing);
    };
    let buckets = match hello.bucket_hashes.len() {
        0 => None,
        length => Some(
            BucketHashes::from_bytes(&hello.bucket_hashes).ok_or_else(|| {
                let wrong = format!("hello.bucket_hashes: {length} bytes are not {BUCKETS} hashes");
                End::Refused(Status::invalid_argument(wrong))
            })?,
        ),
    };
    Ok(Held::Reported(hash, buckets))
}

/// The result of sending a batch.
enum Sending {
    /// Nothing had to be sent.
    Nothing,
    /// All of it was sent.
    Done,
    /// The rest of it is unknown; the agent drops what it got.
    Outdated,
}

/// The header of a batch.
struct Batch<'a> {
    /// Number of batches sent before.
    before: u64,
    trip: &'a Trip,
}

/// Distributes items over messages. Usually it is one: only the items of a large Service are more than a chunk.
fn frames(items: Vec<Bytes>) -> Vec<wire::Items> {
    let (mut frames, mut frame, mut bytes) = (Vec::new(), wire::Items::default(), 0);
    for item in items {
        bytes += item.len();
        frame.items.push(item);
        if bytes >= CHUNK_BYTES {
            frames.push(std::mem::take(&mut frame));
            bytes = 0;
        }
    }
    if !frame.items.is_empty() {
        frames.push(frame);
    }
    frames
}

/// Sends a batch in chunks as the agent reads it. The first batch is sent even if it is empty, since it confirms that
/// the agent's plan is right (ADR 0007).
async fn send(
    outgoing: &mut Outgoing,
    store: &Store,
    walk: &mut Walk,
    watermark: impl FnOnce() -> Option<wire::Watermark>,
    Batch { before, trip }: Batch<'_>,
) -> Result<Sending, End> {
    let Ok(first) = store.more(walk, CHUNK_BYTES) else {
        return Ok(Sending::Outdated);
    };
    if first.is_empty() && walk.is_done() && before > 0 {
        return Ok(Sending::Nothing);
    }
    let batch = before + 1;
    let begin = wire::Begin {
        batch,
        snapshot: matches!(walk.begin(), Begin::Nothing),
        buckets: match walk.begin() {
            Begin::Buckets(buckets) => buckets.iter().collect(),
            Begin::Nothing | Begin::Position(_) => Vec::new(),
        },
        watermark: watermark(),
        trace: trip.trace(),
        triggered_microseconds: trip.triggered(),
    };
    let commit = |walk: &Walk| wire::Commit {
        batch,
        plan_hash: walk.end().hash().to_bytes().to_vec(),
    };
    let mut frames = frames(first);
    if walk.is_done() && frames.len() <= 1 {
        let whole = wire::Batch {
            begin: Some(begin),
            items: Some(frames.pop().unwrap_or_default()),
            commit: Some(commit(walk)),
        };
        outgoing.put(Message::Batch(whole)).await?;
        return Ok(Sending::Done);
    }
    outgoing.put(Message::Begin(begin)).await?;
    loop {
        for frame in frames {
            outgoing.put(Message::Items(frame)).await?;
        }
        if walk.is_done() {
            break;
        }
        match store.more(walk, CHUNK_BYTES) {
            Ok(more) => frames = self::frames(more),
            Err(Outdated) => return Ok(Sending::Outdated),
        }
    }
    outgoing.put(Message::Commit(commit(walk))).await?;
    Ok(Sending::Done)
}
