//! One agent's stream: a batch, its answer, the next batch.
//!
//! One batch is in flight; changes that happen meanwhile are part of the next one. Messages are produced only as the
//! agent reads them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use portolan_planner::model::Kind;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{CHUNK_BYTES, wire};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::Plans;
use super::ack::{self, AgentRecords, Sent};
use super::age;
use super::answers::Answers;
use super::behind;
use super::confirmed::Confirmed;
use super::draining::Draining;
use super::opening;
use super::outgoing::Outgoing;
use super::pace::Turns;
use super::received::Hello;
use super::trip::Trip;
use crate::agent_registry::{AgentRegistry, InForce, Registered};
use crate::auth::{Admission, Reason, Refusal};
use crate::store::{Begin, Held, Outdated, Store, Walk};
use crate::watch::Mark;

/// Why a session ended.
pub(super) enum End {
    /// The agent went away.
    Gone,
    /// The server ends it; the agent gets the reason.
    Refused(Status),
    /// A newer stream of the node was opened.
    Replaced,
}

impl From<Status> for End {
    fn from(_: Status) -> Self {
        Self::Gone
    }
}

/// Serves one agent until it goes away, breaks the protocol, or this server ends. `from` is its address, for logs.
pub(super) async fn run(
    plans: &Plans,
    admission: &Admission,
    from: &str,
    answers: Streaming<wire::AgentMessage>,
    outgoing: Outgoing,
) {
    let (mut ending, queue) = (plans.ending.clone(), outgoing.queue());
    tokio::select! {
        () = serve(plans, admission, from, answers, outgoing) => {}
        // An agent that does not read notices when the connection ends.
        _ = ending.wait_for(|ending| *ending) => drop(queue.try_send(Err(Status::unavailable(
            "this controller is ending",
        )))),
    }
}

async fn serve(
    plans: &Plans,
    admission: &Admission,
    from: &str,
    mut messages: Streaming<wire::AgentMessage>,
    mut outgoing: Outgoing,
) {
    let (hello, held) = match opening::begin(plans, admission, from, &mut messages).await {
        Ok(begun) => begun,
        Err(Some(status)) => return outgoing.end(status).await,
        Err(None) => return,
    };
    let mut stream = OnBoard::new(&plans.registry, &hello, admission.pod());
    connected(&hello);
    let mut answers = Answers::new(messages, admission);
    let in_force = stream.registered.in_force.clone();
    let ended = tokio::select! {
        // What the former agent of the node reports must not count for its successor.
        biased;
        _ = &mut stream.registered.replaced => Err(End::Replaced),
        ended = follow(plans, &hello, held, in_force, &mut answers, &mut outgoing) => ended,
    };
    drop(stream);
    match ended {
        Err(End::Refused(status)) => {
            plans.entrance.counters.broken();
            refused(&hello.node, &status);
            outgoing.end(status).await;
        }
        Err(End::Replaced) => {
            let words = "a newer stream of this node was opened, so this one ends; check whether two agents run on the \
                         node";
            let refusal = Refusal::new(Reason::replaced, words);
            plans.entrance.refusals.note(&hello.node, &refusal);
            outgoing.end(refusal.into()).await;
        }
        Ok(()) | Err(End::Gone) => gone(&hello),
    }
}

/// Keeps the stream on the registry as long as it lasts, however it ends.
struct OnBoard<'a> {
    registry: &'a AgentRegistry,
    node: &'a str,
    registered: Registered,
}

impl<'a> OnBoard<'a> {
    fn new(registry: &'a AgentRegistry, hello: &'a Hello, pod: Option<&str>) -> Self {
        let now = SystemTime::now();
        let registered = registry.connected(&hello.node, &hello.agent_version, pod, now);
        registry.schedulers(&hello.node, &hello.schedulers);
        Self {
            registry,
            node: &hello.node,
            registered,
        }
    }
}

impl Drop for OnBoard<'_> {
    fn drop(&mut self) {
        let (id, now) = (self.registered.id, SystemTime::now());
        self.registry.gone(self.node, id, now);
    }
}

fn connected(hello: &Hello) {
    let (node, agent) = (&*hello.node, &*hello.agent_version);
    info!(node, agent, "agent connected");
}

fn refused(node: &str, status: &Status) {
    warn!(node, reason = status.message(), "agent refused");
}

fn gone(hello: &Hello) {
    info!(node = &*hello.node, "agent gone");
}

async fn follow(
    plans: &Plans,
    hello: &Hello,
    held: Held,
    in_force: InForce,
    answers: &mut Answers<'_>,
    outgoing: &mut Outgoing,
) -> Result<(), End> {
    let store = &plans.store;
    let (mut changes, mut ages) = (store.changes(), plans.ages.clone());
    ages.mark_unchanged();
    age::report(&plans.freshness, outgoing).await?;
    let mut serving = Serving {
        plans,
        hello,
        outgoing,
        held,
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
            Ok(()) = ages.changed() => age::report(&plans.freshness, serving.outgoing).await?,
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
    hello: &'a Hello,
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
    /// It needs another batch at once.
    Again,
}

impl Serving<'_> {
    /// Sends a batch if one is due, and processes the answer.
    async fn serve(&mut self, answers: &mut Answers<'_>) -> Result<Served, End> {
        let (store, plans) = (&self.plans.store, &self.plans.whole_plans);
        let node = &*self.hello.node;
        if self.batches == 0 {
            behind::catch_up(store, self.hello, &self.plans.relists).await?;
        }
        // Before the contents of the batch are determined: later plans may not be part of it.
        let made = Instant::now();
        let begun = plans.begin(store, node, &self.held, self.outgoing).await?;
        let Some((mut walk, slot)) = begun else {
            if !std::mem::replace(&mut self.said_unknown, true) {
                warn!(node, "no such node; waiting for a Node with this name");
            }
            return Ok(Served::Done);
        };
        let (snapshot, late) = (matches!(walk.begin(), Begin::Nothing), walk.is_late());
        let trip = Trip::begin(&self.plans.changes, store.causes(&walk));
        let mut sent = Sent::new(self.batches + 1, snapshot, made, trip);
        let watermark = || behind::news(&mut self.sent_marks, &store.marks().borrow());
        let batch = Batch {
            before: self.batches,
            trip: &sent.trip,
        };
        let keeps_services = walk.keeps_services();
        let sending = send(self.outgoing, store, &mut walk, watermark, batch);
        match slot.during(limited(keeps_services, sending)).await? {
            Sending::Nothing => {}
            Sending::Done => {
                self.turns.taken();
                sent.handed(walk.end().hash());
                self.batches += 1;
                let (registry, records) = (&self.plans.registry, &mut self.records);
                if !ack::wait(answers, self.hello, &sent, registry, records).await? {
                    // A rejected batch is followed by the whole plan at once.
                    self.held = Held::Unknown;
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
        // No change wakes the stream for what it does not have yet.
        Ok(if late { Served::Again } else { Served::Done })
    }

    /// The agent may not have read the batch to its end, and with it the watermarks of its plan.
    fn begin_again(&mut self) -> Served {
        self.sent_marks.clear();
        Served::Again
    }
}

/// The result of sending a batch.
enum Sending {
    /// Nothing had to be sent.
    Nothing,
    /// All of it was sent.
    Done,
    /// The rest of it is unknown; the agent drops what it got when the next one begins.
    Outdated,
}

/// The header of a batch.
struct Batch<'a> {
    /// Number of batches sent before.
    before: u64,
    trip: &'a Trip,
}

/// Maximum duration of a batch that keeps Services which have changed meanwhile: an agent that does not read would keep
/// them for ever.
const MAX_SENDING_TIME: Duration = Duration::from_secs(300);

/// Sends within [`MAX_SENDING_TIME`] if the batch `keeps_services`.
async fn limited(
    keeps_services: bool,
    sending: impl Future<Output = Result<Sending, End>>,
) -> Result<Sending, End> {
    if !keeps_services {
        return sending.await;
    }
    let too_slow = || {
        let seconds = MAX_SENDING_TIME.as_secs();
        let words = format!("the agent did not read its plan within {seconds} s");
        Err(End::Refused(Status::deadline_exceeded(words)))
    };
    timeout(MAX_SENDING_TIME, sending)
        .await
        .unwrap_or_else(|_| too_slow())
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
    // An empty batch of other kinds removes entries.
    let is_delta = matches!(walk.begin(), Begin::Position(_));
    if first.is_empty() && walk.is_done() && is_delta && before > 0 {
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
