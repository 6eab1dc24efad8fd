//! A controller in this process, and minimal agents.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use portolan_agent::receive::{Access, Address, Tls, Trust};
use portolan_controller::agent_registry::AgentRegistry;
use portolan_controller::auth::tls::{Pair, Presented, Spoken, server_config};
use portolan_controller::auth::{Gate, Reviewed, Reviewer, Token, TokenOptions, Tokens};
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{Engine, ManifestSource};
use portolan_controller::store::Store;
use portolan_controller::stream::{Entrance, Listen, Listener, serve};
use portolan_controller::telemetry::metrics::{Counters, Format, Metrics};
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{WIRE_VERSION, wire};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Timeout of every wait, longer than any step takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// `{"aud":["portolan-controller"],"sub":"system:serviceaccount:portolan:agent"}`, encoded as in a token.
const CLAIMS: &str = "eyJhdWQiOlsicG9ydG9sYW4tY29udHJvbGxlciJdLCJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6cG9ydG9sYW46YWdlbnQifQ";

/// The nodes of the cluster.
const NODES: [&str; 6] = ["node-a", "node-b", "node-c", "node-d", "node-e", "node-f"];

/// The signature of a renewed token is the name of its node with this suffix.
pub(crate) const RENEWED: &str = "-renewed";

/// Accepts tokens whose signature is the name of a node, with or without [`RENEWED`].
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// Signatures that are rejected from now on.
    revoked: Mutex<Vec<String>>,
    /// Signatures of all accepted tokens, one for each review.
    accepted: Mutex<Vec<String>>,
}

impl Nodes {
    pub(crate) fn revoke(&self, signature: &str) {
        self.revoked.lock().unwrap().push(signature.into());
    }

    /// Waits until tokens with this signature were accepted this many times.
    pub(crate) async fn wait_accepted(&self, signature: &str, times: usize) {
        let is_it = |accepted: &&String| *accepted == signature;
        let count = || self.accepted.lock().unwrap().iter().filter(is_it).count();
        let seen = async {
            while count() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, seen).await.expect(signature);
    }

    /// The signature and the node of a token.
    fn known(&self, token: &Token) -> Option<(String, &'static str)> {
        let tokens = NODES.into_iter().flat_map(|node| {
            let renewed = format!("{node}{RENEWED}");
            [(node.to_owned(), node), (renewed, node)]
        });
        let is_it = |signature: &str| {
            let shown = format!("Bearer {}", self::token(signature));
            Token::of_header(&shown).as_ref() == Some(token)
        };
        let mut tokens = tokens.filter(|(signature, _)| is_it(signature));
        let known = tokens.next();
        known.filter(|(signature, _)| !self.revoked.lock().unwrap().contains(signature))
    }
}

fn token(signature: &str) -> String {
    format!("e30.{CLAIMS}.{signature}")
}

impl Reviewer for Nodes {
    fn review<'a>(
        &'a self,
        token: &'a Token,
        audience: Option<&'a str>,
    ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>> {
        let status = match self.known(token) {
            Some((signature, node)) => {
                self.accepted.lock().unwrap().push(signature);
                json!({
                    "authenticated": true, "audiences": [audience],
                    "user": {
                        "username": "system:serviceaccount:portolan:agent",
                        "extra": {"authentication.kubernetes.io/node-name": [node]},
                    },
                })
            }
            None => json!({"error": "invalid bearer token"}),
        };
        let status = serde_json::from_value(status).map_err(|error| error.to_string());
        Box::pin(std::future::ready(status))
    }

    fn may_get<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> BoxFuture<'a, Reviewed<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// A controller on a folder of manifests.
pub(crate) struct Controller {
    pub(crate) address: SocketAddr,
    pub(crate) presented: Arc<Presented>,
    pub(crate) nodes: Arc<Nodes>,
    folder: TempDir,
    engine: Mutex<ManifestSource>,
    metrics: Metrics,
}

impl Controller {
    /// Over TLS, with this certificate.
    pub(crate) async fn start(pair: &Pair) -> Self {
        Self::start_reviewing(pair, Duration::from_secs(600)).await
    }

    /// The same, with a review of each open stream's token after this time.
    pub(crate) async fn start_reviewing(pair: &Pair, review_period: Duration) -> Self {
        let counters: Arc<Counters> = Arc::default();
        let presented = Presented::new(pair.clone());
        let options = TokenOptions {
            audience: "portolan-controller".into(),
            account: "portolan/agent".parse().unwrap(),
            review_period,
        };
        let nodes = Arc::new(Nodes::default());
        let tokens = Tokens::new(options, nodes.clone(), Arc::default(), counters.clone());
        let gate = Gate::Tokens(tokens);
        let config = server_config(presented.clone(), Spoken::Streams).unwrap();
        let entrance = Entrance::secure(config, gate, counters.clone());
        let opened = listen().open(entrance).await.unwrap();
        Self::serving(opened, presented, nodes, &counters)
    }

    /// Without TLS.
    pub(crate) async fn start_insecure() -> Self {
        let counters: Arc<Counters> = Arc::default();
        let opened = listen()
            .open_insecure_counted(counters.clone())
            .await
            .unwrap();
        let unknown = super::Authority::new("unknown").server("unknown");
        Self::serving(opened, Presented::new(unknown), Arc::default(), &counters)
    }

    fn serving(
        (listener, listen): (Listener, Listen),
        presented: Arc<Presented>,
        nodes: Arc<Nodes>,
        counters: &Counters,
    ) -> Self {
        let Listen::Tcp(address) = listen else {
            panic!("{listen} is no address");
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("manifests")).unwrap();
        let (store, registry): (Arc<Store>, Arc<AgentRegistry>) = Default::default();
        let engine = Engine::new(Shared::default(), store.clone(), None);
        let engine = ManifestSource::new(engine, folder.path().join("manifests"));
        let metrics = Metrics::new(counters, registry.clone(), store.clone());
        tokio::spawn(serve(listener, store, registry, std::future::pending()));
        let controller = Self {
            address,
            presented,
            nodes,
            folder,
            engine: Mutex::new(engine),
            metrics,
        };
        controller.publish(1);
        controller
    }

    /// Publishes all nodes and `services` Services.
    pub(crate) fn publish(&self, services: usize) {
        let mut text = String::new();
        for node in NODES {
            writeln!(
                text,
                "---\n{{apiVersion: v1, kind: Node, metadata: {{name: {node}}}}}"
            )
            .unwrap();
        }
        for number in 1..=services {
            writeln!(text, "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{number}, namespace: shop}}, spec: {{clusterIP: 10.96.0.{number}, clusterIPs: [10.96.0.{number}], ipFamilies: [IPv4], ports: [{{port: 80, protocol: TCP}}]}}}}").unwrap();
        }
        let path = self.folder.path().join("manifests/cluster.yaml");
        std::fs::write(path, text).unwrap();
        let mut engine = self.engine.lock().unwrap();
        // A check that reads a file during its replacement waits for the next one.
        for _ in 0..3 {
            engine.look();
        }
    }

    /// Access of an agent that trusts this authority and presents the token of a node.
    pub(crate) fn access(
        &self,
        authority: &super::Authority,
        name: &str,
        node: Option<&str>,
    ) -> Access {
        self.access_of(&authority.pem(), name, node)
    }

    pub(crate) fn access_of(&self, ca: &str, name: &str, node: Option<&str>) -> Access {
        let number = std::fs::read_dir(self.folder.path()).unwrap().count();
        let file = |name: &str| self.folder.path().join(format!("{name}-{number}"));
        let access = Access {
            address: Address::Tcp(self.address),
            trust: Trust::Tls(Tls {
                ca: file("ca"),
                name: name.to_owned().try_into().unwrap(),
                token: node.map(|_| file("token")),
            }),
        };
        self.write_ca(&access, ca);
        if let Some(node) = node {
            self.write_token(&access, node);
        }
        access
    }

    pub(crate) fn write_ca(&self, access: &Access, pem: &str) {
        std::fs::write(&tls(access).ca, pem).unwrap();
    }

    /// Writes the token of a node, or an empty file without a node.
    pub(crate) fn write_token(&self, access: &Access, node: &str) {
        let text = if node.is_empty() {
            String::new()
        } else {
            token(node) + "\n"
        };
        std::fs::write(tls(access).token.as_ref().unwrap(), text).unwrap();
    }

    /// Asserts the number of refusals for this reason.
    pub(crate) fn counted(&self, reason: &str, times: u64) {
        let line = counter(reason, times);
        let text = page(&self.metrics);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }

    /// Waits until the controller has counted the refusals: the agent gets the response first.
    pub(crate) async fn wait_counted(&self, reason: &str, times: u64) {
        self.wait_logged(&counter(reason, times)).await;
    }

    /// Waits until a metric without labels has this value.
    pub(crate) async fn wait_metric(&self, name: &str, value: u64) {
        let line = format!("\nportolan_controller_{name} {value}\n");
        self.wait_logged(&line).await;
    }

    async fn wait_logged(&self, line: &str) {
        let seen = async {
            while !page(&self.metrics).contains(line) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, seen).await.expect(line);
    }
}

fn page(metrics: &Metrics) -> String {
    metrics.page(Format::Text).unwrap()
}

fn counter(reason: &str, times: u64) -> String {
    format!("portolan_controller_stream_refusals_total{{reason=\"{reason}\"}} {times}\n")
}

fn tls(access: &Access) -> &Tls {
    match &access.trust {
        Trust::Tls(tls) => tls,
        Trust::Insecure => panic!("no TLS"),
    }
}

fn listen() -> Listen {
    "127.0.0.1:0".parse().unwrap()
}

/// An agent that takes everything.
pub(crate) struct Agent {
    answers: mpsc::Sender<wire::AgentMessage>,
    messages: Streaming<wire::PlanMessage>,
}

/// Number of entries in the first batch of a node.
pub(crate) async fn agent(access: &Access, node: &str) -> Result<usize, Status> {
    Agent::open(access, node).await?.batch().await
}

/// The first message of an agent on this node.
pub(crate) fn hello(node: &str) -> wire::Hello {
    wire::Hello {
        node: node.into(),
        wire_version: WIRE_VERSION,
        agent_version: "test".into(),
        ..wire::Hello::default()
    }
}

impl Agent {
    pub(crate) async fn open(access: &Access, node: &str) -> Result<Self, Status> {
        Self::say(access, hello(node)).await
    }

    pub(crate) async fn say(access: &Access, hello: wire::Hello) -> Result<Self, Status> {
        let channel = access.connect().await.unwrap();
        let (answers, outgoing) = mpsc::channel(4);
        let message = Some(Answer::Hello(hello));
        answers.send(wire::AgentMessage { message }).await.unwrap();
        let request = access.request(ReceiverStream::new(outgoing)).unwrap();
        let messages = PlanStreamClient::new(channel)
            .watch(request)
            .await?
            .into_inner();
        Ok(Self { answers, messages })
    }

    /// Number of entries in the next batch, which is acknowledged.
    pub(crate) async fn batch(&mut self) -> Result<usize, Status> {
        let (entries, commit) = self.take().await?;
        self.answer(commit.batch, commit.plan_hash).await;
        Ok(entries)
    }

    /// The next batch: its number of entries, and its plan hash.
    pub(crate) async fn take(&mut self) -> Result<(usize, wire::Commit), Status> {
        let mut entries = 0;
        loop {
            match self.message().await? {
                Message::Items(items) => entries += items.items.len(),
                Message::Batch(batch) => {
                    entries += batch.items.map_or(0, |items| items.items.len());
                    return Ok((entries, batch.commit.unwrap()));
                }
                Message::Commit(commit) => return Ok((entries, commit)),
                _ => {}
            }
        }
    }

    /// Sends a newer token with this signature.
    pub(crate) async fn renew(&self, signature: &str) {
        let token = token(signature);
        let message = Some(Answer::Renewal(wire::Renewal { token }));
        let message = wire::AgentMessage { message };
        self.answers.send(message).await.unwrap();
    }

    /// Whether the stream ends, with a status or without one, before it brings anything.
    pub(crate) async fn ends_without_a_plan(&mut self) -> bool {
        let message = tokio::time::timeout(LIMIT, self.messages.message()).await;
        !matches!(message.expect("a message or the end"), Ok(Some(_)))
    }

    async fn message(&mut self) -> Result<Message, Status> {
        let message = tokio::time::timeout(LIMIT, self.messages.message()).await;
        let message = message.expect("a message")?;
        Ok(message.expect("a stream that goes on").message.unwrap())
    }

    /// Acknowledges this hash as received and in force.
    pub(crate) async fn answer(&self, batch: u64, plan_hash: Vec<u8>) {
        let ack = wire::Ack {
            batch,
            received_hash: plan_hash.clone(),
            applied_hash: plan_hash,
            ..wire::Ack::default()
        };
        let message = Some(Answer::Ack(ack));
        let message = wire::AgentMessage { message };
        self.answers.send(message).await.unwrap();
    }
}
