//! The attackers. Clients without a valid token send forged ones in mass or nothing at all; nodes in the hands of an
//! attacker send with valid tokens what agents never send.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use portolan_agent::receive::{Access, Address};
use portolan_proto::wire;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use rustix::process::nice;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::super::lab::Lab;
use super::super::tokens;
use super::sources::{address, connect, proxy};
use crate::agent_stream::{AgentStream, hello, hello_ahead};
use crate::waits::LATER;

/// Nodes in the hands of the attacker: one for oversized messages, one for many streams, the others for watermarks.
pub(super) const CAPTURED: u8 = 2 + AHEAD;
/// Nodes of which watermarks are forged.
pub(super) const AHEAD: u8 = 2;
/// Priority of the attackers' threads, the lowest. Their work is not the controller's: real attackers have machines of
/// their own.
const NICE: i32 = 19;

/// Addresses with clients that send tokens with a wrong signature, and clients at each of them.
const FORGING: [u8; 2] = [1, 2];
const FORGERS: u64 = 2;
/// Pause of such a client between two connections: 50 handshakes and 200 tokens a second in all.
const FORGER_PAUSE: Duration = Duration::from_millis(80);
/// Addresses with clients that send tokens of unknown keys, and clients at each of them. They use up what the
/// controller reviews of such tokens.
const UNKNOWN: [u8; 2] = [11, 12];
const UNKNOWN_CLIENTS: u64 = 20;
const UNKNOWN_PAUSE: Duration = Duration::from_millis(500);
/// Requests on a connection: as many as the controller answers.
const REQUESTS: u64 = 4;
/// Addresses with silent connections, and connections of each. The controller has places for half of them at most.
const SILENT: [u8; 4] = [21, 22, 23, 24];
const SILENT_CONNECTIONS: u32 = 500;
/// Until a silent connection that was closed is opened again; more than that, so that they do not come together.
const REOPENED: Duration = Duration::from_secs(4);
/// The address of the first captured node; the others follow.
const FIRST_CAPTURED: u8 = 31;
/// Length of the text in the oversized message, and the pause between two. A node may open 12 streams a minute.
const OVERSIZED_BYTES: usize = 4 << 20;
const OVERSIZED_PAUSE: Duration = Duration::from_secs(1);
/// How long a stream with a forged watermark stays: longer than the controller waits before it lists.
const AHEAD_STAYS: Duration = Duration::from_secs(5);
const AHEAD_PAUSE: Duration = Duration::from_secs(1);
/// Streams of one node beside each other, and the pause between two.
const CROWD: usize = 100;
const CROWD_PAUSE: Duration = Duration::from_millis(50);

/// What the attackers did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Tokens with a wrong signature that were refused.
    forged: AtomicU64,
    /// Tokens of unknown keys that were refused.
    unknown: AtomicU64,
    /// Silent connections that were opened.
    silent: AtomicU64,
    /// Oversized messages that ended their streams.
    oversized: AtomicU64,
    /// Streams with a forged watermark.
    ahead: AtomicU64,
    /// Streams that one node requested.
    crowd: AtomicU64,
    /// Requests that were granted without a valid token, and oversized messages that were answered.
    granted: AtomicU64,
}

impl Done {
    /// Requests that had to be refused and were granted.
    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Fails unless all of them have begun.
    fn all_at_work(&self) -> Result<()> {
        for (counter, least) in [
            (&self.forged, 200),
            (&self.unknown, 20),
            (&self.silent, 2000),
            (&self.oversized, 1),
            (&self.ahead, 1),
            (&self.crowd, 20),
        ] {
            ensure!(counter.load(Ordering::Relaxed) >= least, "{self:?}");
        }
        Ok(())
    }
}

/// The address of a captured node.
pub(super) fn address_of_captured(place: u8) -> Ipv4Addr {
    address(FIRST_CAPTURED + place)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// All attackers; dropping it ends them and closes their connections.
pub(super) struct Flood {
    runtime: Runtime,
    done: Arc<Done>,
}

impl Flood {
    /// Starts them. `captured` has the nodes that are in the hands of the attacker, with valid tokens, and `turn` is
    /// another number for each flood.
    pub(super) fn start(lab: &Lab<'_>, captured: &[(String, String)], turn: u64) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("attackers")
            // Of this thread only. A failure leaves it as it is.
            .on_thread_start(|| {
                let _priority = nice(NICE);
            })
            .enable_all()
            .build()
            .context("start the attackers' thread")?;
        let Address::Tcp(controller) = lab.address()? else {
            bail!("the controller does not listen on an address");
        };
        let done = Arc::<Done>::default();
        runtime.block_on(async {
            strangers(lab, controller, captured, turn, &done).await?;
            nodes(lab, controller, captured, &done).await
        })?;
        Ok(Self { runtime, done })
    }

    /// Waits until each of them has done some of what it does.
    pub(super) fn wait_at_work(&self, lab: &Lab<'_>) -> Result<()> {
        let what = "all attackers to be at work";
        lab.rig.eventually(what, LATER, || self.done.all_at_work())
    }

    /// Ends them.
    pub(super) fn end(self) -> Arc<Done> {
        let Self { runtime, done } = self;
        drop(runtime);
        done
    }
}

/// A way to the controller from one of the attackers' addresses.
async fn way(
    lab: &Lab<'_>,
    controller: SocketAddr,
    from: Ipv4Addr,
    name: &str,
    token: Option<&str>,
) -> Result<Access> {
    let mut access = lab.access(name, token)?;
    access.address = Address::Tcp(proxy(from, controller).await?);
    Ok(access)
}

/// Starts the clients without a valid token.
async fn strangers(
    lab: &Lab<'_>,
    controller: SocketAddr,
    captured: &[(String, String)],
    turn: u64,
    done: &Arc<Done>,
) -> Result<()> {
    let (_, token) = captured.first().context("no node is captured")?;
    let mut client = turn << 16;
    let forging = FORGING.map(|from| (from, FORGERS, false));
    let unknown = UNKNOWN.map(|from| (from, UNKNOWN_CLIENTS, true));
    for (from, clients, is_unknown) in forging.into_iter().chain(unknown) {
        let access = way(lab, controller, address(from), "stranger", None).await?;
        for _ in 0..clients {
            client += 1;
            let forger = Forger {
                access: access.clone(),
                token: token.clone(),
                number: client << 32,
                is_unknown,
                done: done.clone(),
            };
            drop(tokio::spawn(forger.run()));
        }
    }
    for from in SILENT {
        for number in 0..SILENT_CONNECTIONS {
            let silent = keep_silent(address(from), controller, number, done.clone());
            drop(tokio::spawn(silent));
        }
    }
    Ok(())
}

/// Starts the captured nodes.
async fn nodes(
    lab: &Lab<'_>,
    controller: SocketAddr,
    captured: &[(String, String)],
    done: &Arc<Done>,
) -> Result<()> {
    for ((node, token), place) in captured.iter().zip(0_u8..) {
        let from = address_of_captured(place);
        let access = way(lab, controller, from, node, Some(token)).await?;
        let (node, done) = (node.clone(), done.clone());
        match place {
            0 => drop(tokio::spawn(oversize(access, node, done))),
            1 => drop(tokio::spawn(crowd(access, node, done))),
            _ => drop(tokio::spawn(run_ahead(access, node, done))),
        }
    }
    Ok(())
}

/// Sends forged tokens, each of them once.
struct Forger {
    access: Access,
    /// A valid token, of which the claims are taken.
    token: String,
    /// The number of the last token.
    number: u64,
    /// Whether the tokens name keys that the API server does not have.
    is_unknown: bool,
    done: Arc<Done>,
}

impl Forger {
    async fn run(mut self) {
        let pause = match self.is_unknown {
            true => UNKNOWN_PAUSE,
            false => FORGER_PAUSE,
        };
        loop {
            // An error ends the connection, and the next one is opened.
            drop(self.connection().await);
            sleep(pause).await;
        }
    }

    /// Sends as many tokens as a connection may send.
    async fn connection(&mut self) -> Result<()> {
        let channel = self.access.connect().await?;
        for _ in 0..REQUESTS {
            self.number += 1;
            let (token, refused) = match self.is_unknown {
                true => (
                    tokens::of_unknown_key(&self.token, self.number)?,
                    &self.done.unknown,
                ),
                false => (
                    tokens::unsigned(&self.token, self.number)?,
                    &self.done.forged,
                ),
            };
            match request(channel.clone(), &token).await? {
                Code::Unauthenticated => count(refused),
                Code::Ok => count(&self.done.granted),
                // There was no place for it.
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Requests a stream with a token. Returns the status of the answer.
async fn request(channel: Channel, token: &str) -> Result<Code> {
    // Nothing is sent on the stream: the token decides first.
    let (_silent, outgoing) = mpsc::channel::<wire::AgentMessage>(1);
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    let header: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
    request.metadata_mut().insert("authorization", header);
    Ok(match PlanStreamClient::new(channel).watch(request).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    })
}

/// Keeps a connection open without a byte on it, and opens it again if the controller closes it.
async fn keep_silent(from: Ipv4Addr, controller: SocketAddr, number: u32, done: Arc<Done>) {
    let share = |all: Duration| all / SILENT_CONNECTIONS * number;
    sleep(share(Duration::from_secs(1))).await;
    loop {
        if let Ok(mut stream) = connect(from, controller).await {
            count(&done.silent);
            // Its end, because the controller sends nothing first.
            drop(stream.read_u8().await);
        }
        sleep(REOPENED + share(REOPENED)).await;
    }
}

async fn open(access: &Access, hello: wire::Hello) -> Result<AgentStream> {
    let channel = access.connect().await?;
    AgentStream::open(access, channel, hello).await
}

/// Sends a first message that is larger than any message may be.
async fn oversize(access: Access, node: String, done: Arc<Done>) {
    let large = wire::Hello {
        agent_version: "x".repeat(OVERSIZED_BYTES),
        ..hello(&node)
    };
    loop {
        if let Ok(mut stream) = open(&access, large.clone()).await {
            match stream.messages.message().await {
                Ok(Some(_)) => count(&done.granted),
                Ok(None) | Err(_) => count(&done.oversized),
            }
        }
        sleep(OVERSIZED_PAUSE).await;
    }
}

/// Reports a watermark that no controller reaches, and waits for what the controller does about it.
async fn run_ahead(access: Access, node: String, done: Arc<Done>) {
    let ahead = hello_ahead(&node);
    loop {
        if let Ok(mut stream) = open(&access, ahead.clone()).await {
            count(&done.ahead);
            let end = async { while let Ok(Some(_)) = stream.messages.message().await {} };
            drop(timeout(AHEAD_STAYS, end).await);
        }
        sleep(AHEAD_PAUSE).await;
    }
}

/// Opens streams of its node as if each were the only one, and keeps them.
async fn crowd(access: Access, node: String, done: Arc<Done>) {
    let mut streams = VecDeque::new();
    loop {
        if let Ok(stream) = open(&access, hello(&node)).await {
            streams.push_back(stream);
            if streams.len() > CROWD {
                drop(streams.pop_front());
            }
        }
        count(&done.crowd);
        sleep(CROWD_PAUSE).await;
    }
}
