//! The stream from an agent's point of view, message by message, over a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "stream/age.rs"]
mod age;
#[path = "stream/behind.rs"]
mod behind;
#[path = "stream/draining.rs"]
mod draining;
#[path = "stream/drift.rs"]
mod drift;
#[path = "stream/fuzz.rs"]
mod fuzz;
#[path = "stream/large.rs"]
mod large;
#[path = "stream/opening.rs"]
mod opening;
#[path = "stream/overdue.rs"]
mod overdue;
#[path = "stream/places.rs"]
mod places;
#[path = "stream/rolling.rs"]
mod rolling;
#[path = "stream/stalled.rs"]
mod stalled;
#[path = "stream/troubled.rs"]
mod troubled;
#[path = "stream/versions.rs"]
mod versions;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portolan_controller::agent_registry::AgentRegistry;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{Engine, ManifestSource};
use portolan_controller::freshness::Freshness;
use portolan_controller::open_files::Places;
use portolan_controller::store::Store;
use portolan_controller::stream::{Listen, serve};
use portolan_controller::telemetry::metrics::Counters;
use portolan_plan::{EntryHash, EntryKey, PlanHash};
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{MAX_MESSAGE_BYTES, OLDEST_WIRE_VERSION, WIRE_VERSION, wire};
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

/// Timeout of every wait; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(20);

const NODE: &str = "apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
";

/// That node and another one.
fn two_nodes() -> String {
    let other = NODE.replace("node-a", "node-b").replace(".11", ".12");
    format!("{NODE}---\n{other}")
}

fn service(number: usize) -> String {
    let (high, low) = (number / 250, number % 250 + 1);
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: shop}}\nspec: {{clusterIP: 10.96.{high}.{low}, clusterIPs: [10.96.{high}.{low}], ipFamilies: [IPv4], ports: [{{port: 80, protocol: TCP}}]}}\n"
    )
}

/// A controller with a folder of manifests, which it reads when the test requests it.
struct Controller {
    folder: TempDir,
    engine: ManifestSource,
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    counters: Arc<Counters>,
    address: String,
}

impl Controller {
    async fn start(services: usize) -> Self {
        let mut controller = Self::silent().await;
        controller.publish(NODE, services);
        controller
    }

    /// A controller that has not read anything yet.
    async fn silent() -> Self {
        Self::silent_with(Arc::default()).await
    }

    /// The same, with objects of this age.
    async fn silent_with(freshness: Arc<Freshness>) -> Self {
        Self::start_silent(freshness, Places::default()).await
    }

    async fn start_silent(freshness: Arc<Freshness>, places: Places) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manifests = folder.path().join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        let store = Arc::new(Store::default());
        let registry = Arc::new(AgentRegistry::default());
        let listen: Listen = "127.0.0.1:0".parse().unwrap();
        let counters: Arc<Counters> = Arc::default();
        let opened = listen.open_insecure_counted(counters.clone()).await;
        let (listener, listen) = opened.unwrap();
        tokio::spawn(serve(
            listener.with_freshness(freshness).with_places(places),
            store.clone(),
            registry.clone(),
            std::future::pending(),
        ));
        let engine = Engine::new(Shared::default(), store.clone(), None);
        let engine = ManifestSource::new(engine, manifests);
        let address = format!("http://{listen}");
        Self {
            folder,
            engine,
            store,
            registry,
            counters,
            address,
        }
    }

    fn manifests(&self) -> std::path::PathBuf {
        self.folder.path().join("manifests")
    }

    /// Writes a node and `services` Services into the folder and reads until they are published.
    fn publish(&mut self, node: &str, services: usize) {
        let mut text = node.to_owned();
        for number in 0..services {
            write!(text, "{}", service(number)).unwrap();
        }
        replace(&self.manifests().join("cluster.yaml"), &text);
        let before = *self.store.changes().borrow();
        let started = std::time::Instant::now();
        while *self.store.changes().borrow() == before {
            assert!(started.elapsed() < LIMIT, "nothing was published");
            self.engine.look();
        }
    }
}

fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

/// An agent that sends only what the test requests.
struct Agent {
    answers: mpsc::Sender<wire::AgentMessage>,
    messages: Streaming<wire::PlanMessage>,
}

/// A received batch.
#[derive(Debug, Default)]
struct Batch {
    number: u64,
    snapshot: bool,
    upserts: Vec<(String, Vec<u8>)>,
    removals: Vec<String>,
    patches: Vec<wire::Patch>,
    /// The parts so far of an entry in several items.
    parts: Vec<u8>,
    /// The replaced buckets.
    buckets: Vec<u8>,
    watermark: Option<wire::Watermark>,
    hash: PlanHash,
}

impl Batch {
    fn begin(&mut self, begin: wire::Begin) {
        *self = Self {
            number: begin.batch,
            snapshot: begin.snapshot,
            buckets: begin.buckets,
            watermark: begin.watermark,
            ..Self::default()
        };
    }

    fn items(&mut self, items: wire::Items) {
        for item in items.items {
            match wire::Item::decode(item).unwrap().item.unwrap() {
                wire::item::Item::Upsert(upsert) => {
                    self.upserts.push((upsert.key, upsert.value.to_vec()));
                }
                wire::item::Item::Part(part) => {
                    self.parts.extend_from_slice(&part.value);
                    if part.last {
                        let whole = std::mem::take(&mut self.parts);
                        self.upserts.push((part.key, whole));
                    }
                }
                wire::item::Item::Remove(key) => self.removals.push(key),
                wire::item::Item::Patch(patch) => self.patches.push(patch),
            }
        }
    }

    fn commit(&mut self, commit: &wire::Commit) {
        assert_eq!(commit.batch, self.number);
        self.hash = PlanHash::from_bytes(&commit.plan_hash).unwrap();
    }
}

impl Agent {
    async fn connect(controller: &Controller, node: &str, version: u32) -> Self {
        Self::connect_with(controller, node, version, Vec::new()).await
    }

    /// A Hello of an agent that holds a plan with this hash.
    async fn connect_with(
        controller: &Controller,
        node: &str,
        version: u32,
        plan_hash: Vec<u8>,
    ) -> Self {
        let hello = wire::Hello {
            node: node.into(),
            wire_version: version,
            agent_version: "test".into(),
            plan_hash,
            ..wire::Hello::default()
        };
        Self::say(controller, hello).await
    }

    async fn say(controller: &Controller, hello: wire::Hello) -> Self {
        let endpoint = Endpoint::from_shared(controller.address.clone()).unwrap();
        Self::say_at(endpoint, hello).await
    }

    async fn say_at(endpoint: Endpoint, hello: wire::Hello) -> Self {
        let client = PlanStreamClient::new(endpoint.connect().await.unwrap());
        let mut client = client.max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (answers, outgoing) = mpsc::channel(4);
        answers.send(message(Answer::Hello(hello))).await.unwrap();
        let messages = client
            .watch(ReceiverStream::new(outgoing))
            .await
            .unwrap()
            .into_inner();
        Self { answers, messages }
    }

    /// The next message about plans.
    async fn message(&mut self) -> Result<Message, Status> {
        loop {
            match self.any_message().await? {
                Message::Freshness(_) => {}
                message => return Ok(message),
            }
        }
    }

    async fn any_message(&mut self) -> Result<Message, Status> {
        let message = tokio::time::timeout(LIMIT, self.messages.message())
            .await
            .expect("a message");
        Ok(message?
            .expect("a stream that goes on")
            .message
            .expect("content"))
    }

    async fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        loop {
            match self.message().await.unwrap() {
                Message::Begin(begin) => batch.begin(begin),
                Message::Items(items) => batch.items(items),
                other @ (Message::Gone(_) | Message::Freshness(_)) => {
                    panic!("{other:?} inside a batch")
                }
                Message::Commit(commit) => {
                    batch.commit(&commit);
                    return batch;
                }
                Message::Batch(whole) => {
                    batch.begin(whole.begin.unwrap());
                    batch.items(whole.items.unwrap());
                    batch.commit(&whole.commit.unwrap());
                    return batch;
                }
            }
        }
    }

    async fn ack(&self, batch: u64, refused: bool) {
        let ack = wire::Ack {
            batch,
            refused,
            ..wire::Ack::default()
        };
        self.answers.send(message(Answer::Ack(ack))).await.unwrap();
    }

    /// The status with which the stream ended.
    async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.message().await {
                return status;
            }
        }
    }
}

fn message(answer: Answer) -> wire::AgentMessage {
    wire::AgentMessage {
        message: Some(answer),
    }
}

fn sum(batch: &Batch) -> PlanHash {
    batch
        .upserts
        .iter()
        .fold(PlanHash::default(), |sum, (key, bytes)| {
            sum.with(EntryHash::of(&EntryKey::from_peer(key), bytes))
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_matches_its_hash_and_a_delta_contains_the_changes() {
    let mut controller = Controller::start(3).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    assert!(first.snapshot && first.removals.is_empty());
    // The node, and for each Service its head and its list.
    assert_eq!(first.upserts.len(), 7);
    assert_eq!(sum(&first), first.hash);
    agent.ack(first.number, false).await;
    controller.publish(NODE, 2);
    let second = agent.batch().await;
    assert!(!second.snapshot && second.upserts.is_empty(), "{second:?}");
    assert_eq!(
        second.removals,
        ["head/shop/s2", "list/shop/s2//IPv4/cluster"]
    );
}

/// A starting controller accepts agents before it has read anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_up_to_date_is_sent_nothing_also_when_it_came_first() {
    let controller = Controller::start(2).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let held = agent.batch().await.hash;
    let mut restarted = Controller::silent().await;
    let hash = held.to_bytes().to_vec();
    let mut early = Agent::connect_with(&restarted, "node-a", WIRE_VERSION, hash).await;
    restarted.publish(NODE, 2);
    let first = early.batch().await;
    assert!(
        !first.snapshot && first.upserts.is_empty() && first.removals.is_empty(),
        "{first:?}"
    );
    assert_eq!(first.hash, held);
}

/// I-2: the agent requests the whole plan if a batch did not lead to the announced hash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_delta_is_followed_by_the_whole_plan() {
    let mut controller = Controller::start(2).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    agent.ack(first.number, false).await;
    controller.publish(NODE, 3);
    let delta = agent.batch().await;
    assert!(!delta.snapshot);
    agent.ack(delta.number, true).await;
    let whole = agent.batch().await;
    assert!(whole.snapshot);
    assert_eq!((sum(&whole), whole.hash), (delta.hash, delta.hash));
    // The same bytes would be rejected for ever.
    agent.ack(whole.number, true).await;
    assert_eq!(agent.end().await.code(), tonic::Code::DataLoss);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_during_a_batch_are_sent_in_one_batch_after_it() {
    let mut controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = agent.batch().await;
    for services in [2, 3, 4] {
        controller.publish(NODE, services);
    }
    agent.ack(first.number, false).await;
    let second = agent.batch().await;
    let keys: Vec<_> = second.upserts.iter().map(|(key, _)| key.as_str()).collect();
    let heads: Vec<_> = keys.iter().filter(|key| key.starts_with("head/")).collect();
    assert_eq!(heads, [&"head/shop/s1", &"head/shop/s2", &"head/shop/s3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_node_is_not_there_waits_for_it() {
    let mut controller = Controller::start(1).await;
    let mut agent = Agent::connect(&controller, "node-b", WIRE_VERSION).await;
    controller.publish(&two_nodes(), 1);
    assert_eq!(agent.batch().await.upserts.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_break_the_protocol_get_the_reason() {
    let controller = Controller::start(1).await;
    let mut older = Agent::connect(&controller, "node-a", OLDEST_WIRE_VERSION - 1).await;
    let status = older.end().await;
    assert_eq!(
        status.message(),
        "the agent uses wire version 1, but this controller needs at least 2: upgrade the agent"
    );
    let mut hasty = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = hasty.batch().await;
    hasty.ack(first.number + 1, false).await;
    assert_eq!(
        hasty.end().await.message(),
        "an answer to batch 1 was expected"
    );
    let mut chatty = Agent::connect(&controller, "node-a", WIRE_VERSION).await;
    let first = chatty.batch().await;
    chatty.ack(first.number, false).await;
    chatty.ack(first.number, false).await;
    assert_eq!(
        chatty.end().await.message(),
        "received an answer without a batch"
    );
}
