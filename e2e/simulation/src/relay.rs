//! Carries the frames of one direction of a stream, with the delays and interruptions of its connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;
use portolan_proto::wire::{self, plan_message::Message};
use prost::Message as _;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tonic::body::Body;

use crate::link::{LinkState, Passage};

/// A connection that was opened over a link.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    link: watch::Receiver<LinkState>,
    generation: u64,
}

impl Way {
    /// A connection over a link as it is now.
    pub(crate) fn new(link: watch::Receiver<LinkState>) -> Self {
        let generation = link.borrow().generation;
        Self { link, generation }
    }

    /// The delay of a message.
    pub(crate) fn latency(&self) -> Duration {
        self.link.borrow().latency
    }

    /// Waits until the connection carries data. Returns false if it is broken.
    pub(crate) async fn passes(&mut self) -> bool {
        let generation = self.generation;
        let waits =
            |link: &LinkState| link.generation == generation && link.passage == Passage::Held;
        let found = self.link.wait_for(|link| !waits(link)).await;
        found.is_ok_and(|link| link.generation == generation && link.passage == Passage::Up)
    }

    /// Waits until the connection is broken.
    async fn broken(&mut self) {
        let generation = self.generation;
        let is_broken = |link: &LinkState| link.generation != generation;
        drop(self.link.wait_for(is_broken).await);
    }

    /// The number of batches whose announced hash will be changed.
    fn wrong_hashes(&self) -> Arc<AtomicU32> {
        self.link.borrow().wrong_hashes.clone()
    }
}

/// The frames of one direction in transit.
struct Transit {
    frames: BodyStream<Body>,
    way: Way,
    /// The receiver of messages from a controller.
    arrived: Option<Arc<Notify>>,
}

/// A body whose frames arrive over a connection. `arrived` is notified of each.
pub(crate) fn relay(body: Body, way: Way, arrived: Option<Arc<Notify>>) -> Body {
    let transit = Transit {
        frames: BodyStream::new(body),
        way,
        arrived,
    };
    let arriving = futures::stream::unfold(Some(transit), |transit| async move {
        let mut transit = transit?;
        match transit.next().await {
            Some(Ok(frame)) => Some((Ok(frame), Some(transit))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    });
    Body::new(StreamBody::new(arriving))
}

/// The error of a frame.
pub(crate) type RelayError = Box<dyn std::error::Error + Send + Sync>;

impl Transit {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, RelayError>> {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let sent = tokio::select! {
            biased;
            () = self.way.broken() => return Some(Err(reset().into())),
            sent = self.frames.next() => sent?,
        };
        sleep(self.way.latency()).await;
        if !self.way.passes().await {
            return Some(Err(reset().into()));
        }
        let frame = match (sent, &self.arrived) {
            (Ok(frame), Some(arrived)) => {
                // The receiver processes the frame first.
                arrived.notify_one();
                self.maybe_damaged(frame)
            }
            (Ok(frame), None) => frame,
            (Err(status), _) => return Some(Err(status.into())),
        };
        Some(Ok(frame))
    }

    fn maybe_damaged(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let left = self.way.wrong_hashes();
        if left.load(Ordering::Relaxed) == 0 {
            return frame;
        }
        match frame.into_data() {
            Ok(data) => match with_wrong_hash(&data) {
                Some(damaged) => {
                    left.fetch_sub(1, Ordering::Relaxed);
                    Frame::data(damaged)
                }
                None => Frame::data(data),
            },
            Err(other) => other,
        }
    }
}

/// The gRPC messages of a frame with another hash in the first commit; `None` if there is none, or if a message is not
/// complete.
fn with_wrong_hash(data: &Bytes) -> Option<Bytes> {
    let (mut rest, mut written, mut changed) = (data.clone(), BytesMut::new(), false);
    while rest.has_remaining() {
        let compressed = rest.try_get_u8().ok()?;
        let length = usize::try_from(rest.try_get_u32().ok()?).ok()?;
        if rest.remaining() < length {
            return None;
        }
        let mut message = wire::PlanMessage::decode(rest.split_to(length)).ok()?;
        let commit = match &mut message.message {
            Some(Message::Commit(commit)) => Some(commit),
            Some(Message::Batch(batch)) => batch.commit.as_mut(),
            _ => None,
        };
        let hash = commit.and_then(|commit| commit.plan_hash.first_mut());
        if let Some(byte) = hash.filter(|_| !changed) {
            *byte ^= 1;
            changed = true;
        }
        written.put_u8(compressed);
        written.put_u32(u32::try_from(message.encoded_len()).ok()?);
        message.encode(&mut written).ok()?;
    }
    changed.then(|| written.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &wire::PlanMessage) -> Bytes {
        let mut framed = BytesMut::new();
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.encoded_len()).unwrap());
        message.encode(&mut framed).unwrap();
        framed.freeze()
    }

    #[test]
    fn the_hash_of_a_commit_is_changed_and_nothing_else() {
        let commit = |plan_hash| wire::PlanMessage {
            message: Some(Message::Commit(wire::Commit {
                batch: 3,
                plan_hash,
            })),
        };
        let changed = with_wrong_hash(&framed(&commit(vec![4, 5])));
        assert_eq!(changed, Some(framed(&commit(vec![5, 5]))));
        let items = wire::PlanMessage {
            message: Some(Message::Items(wire::Items::default())),
        };
        assert_eq!(with_wrong_hash(&framed(&items)), None);
        assert_eq!(with_wrong_hash(&Bytes::from_static(b"\0\0")), None);
    }
}
