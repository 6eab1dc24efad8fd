//! The beginning of a stream: the Hello of its agent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use tokio::time::{Instant, timeout};
use tonic::{Status, Streaming};
use tracing::warn;

use super::Plans;
use super::age;
use super::received::Hello;
use crate::auth::{Admission, Reason, Refusal};
use crate::bucket::Shares;
use crate::store::Held;

/// Timeout from the admission of a stream to its Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams of one node a minute, which it may open at once. Each may cost a whole plan. An agent opens fewer, because
/// its delay between two streams doubles up to 10 s.
const STREAMS_PER_NODE: u32 = 12;

/// The rate of streams of each node.
#[derive(Debug, Clone)]
pub(super) struct StreamRate(Arc<Mutex<Shares<Arc<str>>>>);

impl Default for StreamRate {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Shares::a_minute(STREAMS_PER_NODE))))
    }
}

impl StreamRate {
    pub(super) fn take(&self, node: &Arc<str>) -> Result<(), Refusal> {
        let now = Instant::now().into_std();
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.take(node, now).map(drop).ok_or_else(|| {
            let message = format!(
                "more than {STREAMS_PER_NODE} streams of this node within a minute; check whether two agents run on the \
                 node"
            );
            Refusal::new(Reason::too_many, message)
        })
    }
}

/// Receives and checks the Hello of an agent. Without a status in the error, the agent went away. `from` is its address,
/// for logs: until then the agent may call itself anything.
pub(super) async fn begin(
    plans: &Plans,
    admission: &Admission,
    from: &str,
    answers: &mut Streaming<wire::AgentMessage>,
) -> Result<(Hello, Held), Option<Status>> {
    let refuse = |refusal: Refusal| {
        plans.entrance.refusals.note(from, &refusal);
        Some(Status::from(refusal))
    };
    let message = match timeout(HELLO_TIMEOUT, answers.message()).await {
        Ok(Ok(message)) => message,
        Ok(Err(_)) => return Err(None),
        Err(_) => {
            let seconds = HELLO_TIMEOUT.as_secs();
            let message = format!("the agent sent no Hello within {seconds} s");
            return Err(refuse(Refusal::new(Reason::silent, message)));
        }
    };
    let Some(Answer::Hello(sent)) = message.and_then(|message| message.message) else {
        let wrong = "the first message has to be a Hello";
        return Err(Some(Status::invalid_argument(wrong)));
    };
    let (hello, held) = Hello::read(&sent).map_err(|status| {
        plans.entrance.counters.broken();
        warn!(from, reason = status.message(), "agent refused");
        Some(status)
    })?;
    admission.covers(&hello.node).map_err(refuse)?;
    if let Some(status) = age::refusal(plans, &sent) {
        return Err(Some(status));
    }
    Ok((hello, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_opens_a_limited_number_of_streams_a_minute() {
        let rate = StreamRate::default();
        let (node, other) = ("node-a".into(), "node-b".into());
        for _ in 0..STREAMS_PER_NODE {
            assert_eq!(rate.take(&node), Ok(()));
        }
        let refused = rate.take(&node).unwrap_err();
        assert_eq!(refused.reason, Reason::too_many);
        assert_eq!(rate.take(&other), Ok(()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(rate.take(&node), Ok(()));
        assert!(rate.take(&node).is_err());
    }
}
