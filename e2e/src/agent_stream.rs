//! A stream of an agent, message by message, for clients that the real receiver cannot play.

use anyhow::Result;
use portolan_agent::receive::Access;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{MAX_MESSAGE_BYTES, WIRE_VERSION, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// A stream that has begun.
pub(crate) struct AgentStream {
    answers: mpsc::Sender<wire::AgentMessage>,
    pub(crate) messages: Streaming<wire::PlanMessage>,
}

impl AgentStream {
    /// Sends the hello of an agent.
    pub(crate) async fn open(
        access: &Access,
        channel: Channel,
        hello: wire::Hello,
    ) -> Result<Self> {
        let mut client =
            PlanStreamClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (answers, outgoing) = mpsc::channel(4);
        answers.send(message(Answer::Hello(hello))).await?;
        let request = access.request(ReceiverStream::new(outgoing))?;
        let messages = client.watch(request).await?.into_inner();
        Ok(Self { answers, messages })
    }

    /// Answers.
    pub(crate) async fn answer(&self, answer: Answer) -> Result<()> {
        Ok(self.answers.send(message(answer)).await?)
    }
}

/// The hello of a misbehaving agent that has no plan.
pub(crate) fn hello(node: &str) -> wire::Hello {
    wire::Hello {
        node: node.into(),
        wire_version: WIRE_VERSION,
        agent_version: "misbehaving".into(),
        ..wire::Hello::default()
    }
}

/// The same with a forged watermark, which no controller reaches.
pub(crate) fn hello_ahead(node: &str) -> wire::Hello {
    let mark = |kind: &str| wire::KindWatermark {
        kind: kind.into(),
        newest: u64::MAX,
        sum: 1,
    };
    wire::Hello {
        watermark: Some(wire::Watermark {
            kinds: ["Node", "Service", "EndpointSlice"].map(mark).into(),
        }),
        ..hello(node)
    }
}

fn message(answer: Answer) -> wire::AgentMessage {
    wire::AgentMessage {
        message: Some(answer),
    }
}
