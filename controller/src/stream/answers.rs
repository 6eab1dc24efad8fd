//! The messages of an agent after its Hello. Newer tokens go to the admission of the stream, whenever they come. All
//! others are answers to what the controller sent.

use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use tonic::{Status, Streaming};

use crate::auth::{Admission, Token};

/// The messages of one agent.
pub(super) struct Answers<'a> {
    messages: Streaming<wire::AgentMessage>,
    admission: &'a Admission,
}

impl<'a> Answers<'a> {
    pub(super) fn new(messages: Streaming<wire::AgentMessage>, admission: &'a Admission) -> Self {
        Self {
            messages,
            admission,
        }
    }

    /// The next answer; `None` at the end of the stream. It may be cancelled.
    ///
    /// # Errors
    /// As [`Streaming::message`].
    pub(super) async fn message(&mut self) -> Result<Option<wire::AgentMessage>, Status> {
        loop {
            match self.messages.message().await? {
                Some(wire::AgentMessage {
                    message: Some(Answer::Renewal(renewal)),
                }) => self.renew(renewal),
                other => return Ok(other),
            }
        }
    }

    /// A text that cannot be a token is ignored: the present token counts, as after a newer one that is rejected.
    fn renew(&self, renewal: wire::Renewal) {
        if let Some(token) = Token::of_message(renewal.token) {
            self.admission.renew(token);
        }
    }
}
