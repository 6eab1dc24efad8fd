//! The gRPC service that streams plans to agents.
//!
//! Touches: the network. One task per stream; a slow agent delays only its own stream.

mod ack;
mod age;
mod answers;
mod behind;
mod confirmed;
mod connection;
mod draining;
mod drift;
mod entrance;
mod in_process;
mod listen;
mod opening;
mod outgoing;
mod pace;
mod received;
mod session;
mod trip;
mod troubled;
mod whole_plans;
mod written;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use behind::Relists;
use connection::Peer;
use futures::{Stream, StreamExt as _};
use portolan_proto::wire::plan_message::Message;
use portolan_proto::wire::plan_stream_server::{PlanStream, PlanStreamServer};
use portolan_proto::{MAX_MESSAGE_BYTES, wire};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::agent_registry::AgentRegistry;
use crate::auth::{Admission, Reason, Refusal, Source};
use crate::freshness::Freshness;
use crate::store::Store;
use crate::telemetry::changes::Changes;

pub use entrance::Entrance;
pub use in_process::in_process;
use listen::Socket;
pub use listen::{Listen, ListenError, Listener};
use opening::StreamRate;
use outgoing::Outgoing;
use pace::Pace;
use whole_plans::WholePlans;

/// Capacity of the queue of messages to one agent. Each has at most [`portolan_proto::CHUNK_BYTES`] of entries, so an
/// agent that does not read costs little.
const QUEUE_CAPACITY: usize = 1;

/// Bytes that an agent may send before they are read, on a stream and on its connection. A client that has not been
/// admitted thus takes little memory. It is also the minimum of HTTP/2, and more than any message of an agent.
const WINDOW_BYTES: u32 = 65_535;

/// Interval of HTTP/2 keepalive pings to a silent agent, and the timeout for the last message of a revoked stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// The service.
#[derive(Debug, Clone)]
struct Plans {
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    entrance: Entrance,
    changes: Changes,
    freshness: Arc<Freshness>,
    /// Changes of the age that agents have to know.
    ages: watch::Receiver<()>,
    pace: Pace,
    whole_plans: WholePlans,
    streams: StreamRate,
    relists: Relists,
    /// True once the server is about to end.
    ending: watch::Receiver<bool>,
}

type Messages = Pin<Box<dyn Stream<Item = Result<wire::PlanMessage, Status>> + Send>>;

#[tonic::async_trait]
impl PlanStream for Plans {
    type WatchStream = Messages;

    async fn watch(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Messages>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let admission = self.admit(peer.as_ref(), request.metadata()).await?;
        let (queue, messages) = mpsc::channel(QUEUE_CAPACITY);
        let (plans, answers) = (self.clone(), request.into_inner());
        let written = peer.as_ref().map(|peer| peer.written.clone());
        let written = written.unwrap_or_default();
        let counters = self.entrance.counters.clone();
        let outgoing = Outgoing::new(queue.clone(), written, counters.clone());
        tokio::spawn(async move {
            let from = peer.as_ref().map_or("", |peer| &peer.origin.text);
            tokio::select! {
                () = session::run(&plans, &admission, from, answers, outgoing) => {}
                refusal = admission.revoked() => {
                    let node = admission.node().unwrap_or_default();
                    plans.entrance.refusals.note(node, &refusal);
                    // An agent that does not read notices when its connection ends.
                    drop(timeout(KEEP_ALIVE_INTERVAL, queue.send(Err(refusal.into()))).await);
                }
            }
            if let Some(peer) = peer {
                peer.leave();
            }
        });
        counters.opened();
        let messages = ReceiverStream::new(messages).map(|message| message.map(|whole| *whole));
        let messages = messages.inspect(move |message| {
            if let Ok(wire::PlanMessage {
                message: Some(Message::Commit(_) | Message::Batch(_)),
            }) = message
            {
                counters.batch();
            }
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

impl Plans {
    /// Admits an agent with a valid connection and token.
    async fn admit(
        &self,
        peer: Option<&Peer>,
        metadata: &MetadataMap,
    ) -> Result<Admission, Status> {
        let plain = || {
            Refusal::new(
                Reason::plain_text,
                "this controller uses TLS, but the agent does not: start it with --controller-ca and \
                 --token-file, without --insecure",
            )
        };
        let again = || {
            Refusal::new(
                Reason::too_many,
                "a connection serves one stream; open a new connection for the next one",
            )
        };
        let admitted = match peer {
            Some(peer) if !peer.may_ask() => Err(again()),
            Some(peer) if peer.plain => Err(plain()),
            _ => self.entrance.gate.admit(metadata, self.source(peer)).await,
        };
        let admitted = admitted.and_then(|admission| {
            // Before the connection gives up its place. Without authentication, nothing limits a client.
            if let Some(node) = admission.node() {
                self.streams.take(&node.into())?;
            }
            let is_first = peer.is_none_or(Peer::let_in);
            is_first.then_some(admission).ok_or_else(again)
        });
        let from = peer.map_or("", |peer| &peer.origin.text);
        let admitted = admitted.inspect_err(|refusal| self.entrance.refusals.note(from, refusal));
        Ok(admitted?)
    }

    /// Where a client connects from. The name of a Unix socket is no address.
    fn source(&self, peer: Option<&Peer>) -> Source {
        let address = peer.and_then(|peer| peer.origin.address);
        let is_node = address.is_some_and(|address| self.store.is_node_address(address));
        Source { address, is_node }
    }
}

/// Serves plans until `end` completes; reports of agents are recorded on the registry. Streams are then asked to
/// reconnect elsewhere, since they never end on their own.
///
/// # Errors
/// The error of the transport if it cannot continue.
pub async fn serve(
    listener: Listener,
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    end: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (end_streams, ending) = watch::channel(false);
    let end = async move {
        end.await;
        end_streams.send_replace(true);
    };
    let Listener {
        socket,
        entrance,
        changes,
        freshness,
    } = listener;
    let new_ages = watch::Sender::new(());
    let entrance = entrance.with_store(store.clone());
    let plans = PlanStreamServer::new(Plans {
        store,
        registry,
        entrance: entrance.clone(),
        changes,
        freshness: freshness.clone(),
        ages: new_ages.subscribe(),
        pace: Pace::default(),
        whole_plans: WholePlans::new(entrance.counters.clone()),
        streams: StreamRate::default(),
        relists: Relists::default(),
        ending,
    })
    .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(entrance.authenticates().then_some(1_u32))
        .add_service(plans);
    let path = match &socket {
        Socket::Unix(_, path) => Some(path.clone()),
        Socket::Tcp(_) => None,
    };
    let incoming = ReceiverStream::new(entrance.receive(socket));
    let served = tokio::select! {
        served = server.serve_with_incoming_shutdown(incoming, end) => served,
        never = freshness.follow(&new_ages) => match never {},
    };
    if let Some(path) = path {
        // A remaining socket is replaced at the next start.
        drop(std::fs::remove_file(path));
    }
    served
}
