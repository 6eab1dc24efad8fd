//! The gRPC service that carries plans to agents.
//!
//! Touches: the network. One task for each stream; a slow agent holds back only its own.

mod ack;
mod behind;
mod draining;
mod drift;
mod listen;
mod session;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use portolan_proto::wire::plan_stream_server::{PlanStream, PlanStreamServer};
use portolan_proto::{MAX_MESSAGE_BYTES, wire};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::board::Board;
use crate::store::Store;

pub use listen::{Listen, ListenError, Listener};

/// Messages on their way to one agent. Each carries at most
/// [`portolan_proto::CHUNK_BYTES`] of entries, so an agent that does not read costs little.
const QUEUE: usize = 2;

/// How long an agent may be silent before it is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The service.
#[derive(Debug, Clone)]
struct Plans {
    store: Arc<Store>,
    board: Arc<Board>,
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
        let (queue, messages) = mpsc::channel(QUEUE);
        let session = session::run(self.clone(), request.into_inner(), queue);
        tokio::spawn(session);
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

/// Serves plans until `end` is done; what agents say goes on the board. Streams are then told to go elsewhere: they never end by
/// themselves.
///
/// # Errors
/// What the transport says when it cannot go on.
pub async fn serve(
    listener: Listener,
    store: Arc<Store>,
    board: Arc<Board>,
    end: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let (tell_streams, ending) = watch::channel(false);
    let end = async move {
        end.await;
        tell_streams.send_replace(true);
    };
    let plans = PlanStreamServer::new(Plans {
        store,
        board,
        ending,
    })
    .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .add_service(plans);
    match listener {
        Listener::Tcp(incoming) => server.serve_with_incoming_shutdown(incoming, end).await,
        Listener::Unix(incoming, path) => {
            let served = server.serve_with_incoming_shutdown(incoming, end).await;
            // A socket that stays behind is replaced at the next start.
            drop(std::fs::remove_file(path));
            served
        }
    }
}
