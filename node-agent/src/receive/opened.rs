//! An open stream. Touches: the network.

use std::collections::VecDeque;
use std::sync::Arc;

use portolan_proto::wire::plan_message::Message;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{MAX_MESSAGE_BYTES, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::debug;

use super::token::{Token, with_token};
use super::{Access, Dialer, QUEUE_CAPACITY, StreamError, send};

/// Maximum number of messages before the first batch: the age of the objects, and a few of other kinds.
const MAX_AHEAD: usize = 8;

/// A stream that a controller has accepted.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) controller: Access,
    pub(super) answers: mpsc::Sender<wire::AgentMessage>,
    /// The token that the controller accepted; `None` without authentication.
    pub(super) token: Option<Token>,
    incoming: Streaming<wire::PlanMessage>,
    /// Messages that were received before the stream is followed.
    ahead: VecDeque<wire::PlanMessage>,
}

impl Opened {
    /// Connects and sends the first message.
    pub(super) async fn open(
        dialer: &dyn Dialer,
        controller: Access,
        hello: wire::AgentMessage,
    ) -> Result<Self, StreamError> {
        let connection = dialer.dial(&controller).await?;
        let mut client =
            PlanStreamClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (answers, outgoing) = mpsc::channel(QUEUE_CAPACITY);
        send(&answers, hello).await?;
        let token = controller.token()?;
        let request = with_token(ReceiverStream::new(outgoing), token.as_ref());
        let incoming = client.watch(request).await?.into_inner();
        Ok(Self {
            controller,
            answers,
            token,
            incoming,
            ahead: VecDeque::new(),
        })
    }

    /// As [`Self::open`], and waits for the beginning of a batch. `None` if the controller refuses or does not serve
    /// this agent.
    pub(super) async fn open_and_wait(
        dialer: Arc<dyn Dialer>,
        controller: Access,
        hello: wire::AgentMessage,
    ) -> Option<Self> {
        let address = controller.to_string();
        let opened = async {
            let mut opened = Self::open(&*dialer, controller, hello).await?;
            let is_served = opened.wait_batch().await?;
            Ok::<_, StreamError>(is_served.then_some(opened))
        };
        match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                debug!(address, %error, "another controller does not serve this agent");
                None
            }
        }
    }

    /// The next message; `None` at the end of the stream. This can be cancelled.
    pub(super) async fn next(&mut self) -> Result<Option<wire::PlanMessage>, Status> {
        match self.ahead.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.incoming.message().await,
        }
    }

    /// Waits for the beginning of a batch without taking it. Returns false if the stream ends, or has other messages
    /// only.
    async fn wait_batch(&mut self) -> Result<bool, Status> {
        while self.ahead.len() < MAX_AHEAD {
            let Some(message) = self.incoming.message().await? else {
                return Ok(false);
            };
            let begins = matches!(message.message, Some(Message::Begin(_) | Message::Batch(_)));
            self.ahead.push_back(message);
            if begins {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
