//! A watch of the simulated API server, as the body of a response.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hyper::body::Frame;
use portolan_controller::watch::Collection as _;
use portolan_planner::model::Kind;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::api::{ApiServer, StoreContent, event_line};
use crate::link::Passage;

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time after which the server ends a watch.
const WATCH_TIME: Duration = Duration::from_secs(290);

/// The sender of the events of one kind to one controller.
#[derive(Debug)]
pub(crate) struct WatchSender {
    api: Arc<ApiServer>,
    changes: watch::Receiver<u64>,
    slot: usize,
    run: u64,
    kind: Kind,
    /// The connection and the store, as they were when the watch began.
    generation: u64,
    restores: u64,
    /// Existing objects, and the bookmark after them.
    initial: VecDeque<Bytes>,
    /// The next event.
    next: usize,
    bookmark: Instant,
    end: Instant,
}

/// What a watch does next.
enum Turn {
    Send(Bytes),
    /// Sends the end of the existing objects.
    SendEnd(Bytes),
    /// Waits for a change, or for this time.
    Wait(Instant),
    End,
    Break,
}

impl WatchSender {
    /// A watch after a revision, or of all objects first.
    pub(crate) fn new(
        api: &Arc<ApiServer>,
        (slot, run): (usize, u64),
        kind: Kind,
        after: Option<u64>,
    ) -> Self {
        let content = api.content();
        let events = content.events(kind);
        let (initial, next) = match after {
            Some(revision) => {
                let next = events.partition_point(|event| event.revision <= revision);
                (VecDeque::new(), next)
            }
            None => (initial(&content, kind), events.len()),
        };
        let now = Instant::now();
        Self {
            api: api.clone(),
            changes: api.changes(),
            slot,
            run,
            kind,
            generation: content.links.get(slot).map_or(0, |link| link.generation),
            restores: content.restores,
            initial,
            next,
            bookmark: now + BOOKMARK_INTERVAL,
            end: now + WATCH_TIME,
        }
    }

    /// The body of the response.
    pub(crate) fn into_frames(self) -> impl Stream<Item = Result<Frame<Bytes>, io::Error>> {
        futures::stream::unfold(Some(self), |sender| async move {
            let mut sender = sender?;
            loop {
                sender.changes.mark_unchanged();
                match sender.turn() {
                    Turn::Send(line) => return Some((Ok(Frame::data(line)), Some(sender))),
                    Turn::SendEnd(line) => {
                        let mut content = sender.api.content();
                        content.listed(sender.run, sender.kind);
                        content.watches(sender.run, sender.kind);
                        drop(content);
                        return Some((Ok(Frame::data(line)), Some(sender)));
                    }
                    Turn::Wait(until) => {
                        // The time has passed, or something has changed.
                        drop(timeout_at(until, sender.changes.changed()).await);
                    }
                    Turn::End => return None,
                    Turn::Break => return Some((Err(io::ErrorKind::ConnectionReset.into()), None)),
                }
            }
        })
    }

    fn turn(&mut self) -> Turn {
        let api = self.api.clone();
        let mut content = api.content();
        let now = Instant::now();
        let Some(link) = content.links.get(self.slot).cloned() else {
            return Turn::Break;
        };
        if (link.generation, content.restores) != (self.generation, self.restores) {
            content.ended_watch(self.run, self.kind);
            return Turn::Break;
        }
        if link.passage != Passage::Up {
            return Turn::Wait(now + WATCH_TIME);
        }
        if let Some(line) = self.initial.pop_front() {
            return match self.initial.is_empty() {
                true => Turn::SendEnd(line),
                false => Turn::Send(line),
            };
        }
        content.watches(self.run, self.kind);
        let lag = link.lag.get(&self.kind).copied().unwrap_or_default();
        if let Some(event) = content.events(self.kind).get(self.next) {
            let due = event.at + lag;
            if due > now {
                return Turn::Wait(due);
            }
            self.next += 1;
            return Turn::Send(event.line.clone());
        }
        if self.end <= now {
            content.ended_watch(self.run, self.kind);
            return Turn::End;
        }
        if self.bookmark <= now {
            self.bookmark = now + BOOKMARK_INTERVAL;
            return Turn::Send(bookmark(content.revision, false));
        }
        Turn::Wait(self.bookmark.min(self.end))
    }
}

/// The lines of all objects, and the bookmark after them.
fn initial(content: &StoreContent, kind: Kind) -> VecDeque<Bytes> {
    let objects = content.objects(kind);
    let lines = objects.map(|object| event_line("ADDED", object));
    lines.chain([bookmark(content.revision, true)]).collect()
}

/// A bookmark of a revision, which ends the existing objects or not.
fn bookmark(revision: u64, ends: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if ends {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": metadata});
    event_line("BOOKMARK", &object)
}

/// The kind whose collection has this path.
pub(crate) fn kind_at(path: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.path() == path)
}
