//! Lists and watches one kind until the receiver is dropped.
//!
//! A list is always a consistent read, never from the cache of an API server, so the model does not go back in time.
//! A single client can afford a new list after every failure; that also survives a store that was restored from a
//! backup.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use portolan_planner::model::Kind;
use portolan_proto::STALE_AFTER;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::all::All;
use super::end::End;
use super::mark::Ledger;
use super::object::{Text, identity, read};
use super::once;
use super::problem::Problem;
use super::relists::{Asked, Relists};
use super::triggers::Triggers;
use super::{Answer, Arrival, Collection as _, ObjectUpdate};
use crate::freshness::Freshness;

/// Objects in one page of a list.
pub(super) const PAGE_SIZE: u32 = 500;
/// Timeout of the answer to a request, and of each event while existing objects are streamed.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without an event in a watch. Servers send a bookmark every minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
const _: () = assert!(
    IDLE_TIMEOUT.as_secs() + 10 < STALE_AFTER.as_secs(),
    "a silent watch is opened again before it makes plans outdated"
);
/// Seconds after which the server ends a watch. The next one resumes.
const WATCH_SECONDS: u32 = 290;
/// First delay before a new list after a failure. It doubles with each further failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
/// Maximum delay before a new list. A watch that lasts longer resets the delay.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Interval between two requests for a kind that the server does not serve.
const UNKNOWN_RETRY_DELAY: Duration = Duration::from_secs(60);

type Events = BoxStream<'static, Result<WatchEvent<Text>, kube::Error>>;

/// Watches a kind until the receiver is dropped.
pub(super) async fn run(
    client: Client,
    kind: Kind,
    answers: mpsc::Sender<Answer>,
    asked: Asked,
    freshness: Arc<Freshness>,
) {
    let follower = Follower {
        client,
        kind,
        answers,
        freshness,
        streams: true,
        said_pages: false,
        known: false,
        troubled: None,
        pause: INITIAL_BACKOFF,
        ledger: Ledger::default(),
        triggers: Triggers::new(SystemTime::now()),
        relists: Relists::new(asked),
    };
    follower.run().await;
}

struct Follower {
    client: Client,
    kind: Kind,
    answers: mpsc::Sender<Answer>,
    /// When the server last sent anything.
    freshness: Arc<Freshness>,
    /// Whether existing objects are requested as a stream. If that fails, the next list is read in pages, and the one
    /// after it is requested as a stream again: the server may have been replaced.
    streams: bool,
    /// Whether the log has reported that lists are read in pages.
    said_pages: bool,
    /// Whether the server has served the kind once.
    known: bool,
    /// The failure that the log reported last.
    troubled: Option<String>,
    /// The next pause after a failure.
    pause: Duration,
    /// How far this kind was read.
    ledger: Ledger,
    /// Which trigger times of EndpointSlices count.
    triggers: Triggers,
    /// When lists that agents requested may begin.
    relists: Relists,
}

impl Follower {
    async fn run(mut self) {
        let mut version = None;
        loop {
            let start = Instant::now();
            let Err(end) = self.follow(version.take()).await;
            // A list that succeeds before a watch that fails at once is not a recovery.
            if start.elapsed() > MAX_BACKOFF {
                self.pause = INITIAL_BACKOFF;
            }
            match end {
                End::Closed => return,
                End::Resume(last) => {
                    version = Some(last);
                    if start.elapsed() < INITIAL_BACKOFF {
                        sleep(INITIAL_BACKOFF).await;
                    }
                }
                End::Asked => debug!(kind = self.kind.name(), "listing again on request"),
                End::Unknown => drop(timeout(UNKNOWN_RETRY_DELAY, self.relists.next()).await),
                End::NoStreams => {
                    self.streams = false;
                    if !std::mem::replace(&mut self.said_pages, true) {
                        info!(
                            kind = self.kind.name(),
                            "the server does not stream lists; listing in pages"
                        );
                    }
                }
                End::Relist(problem) => {
                    self.complain(&problem);
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    /// Lists if there is no version to resume from, then watches.
    async fn follow(&mut self, version: Option<String>) -> Result<std::convert::Infallible, End> {
        if version.is_none() {
            self.relists.begin();
        }
        let (events, version) = match version {
            Some(version) => (self.open(&version, false).await?, version),
            None if self.streams => self.stream_all().await?,
            None => {
                let version = self.list_all().await?;
                (self.open(&version, false).await?, version)
            }
        };
        self.watch(events, version).await
    }

    /// Reads all objects as a stream, which then continues with changes.
    async fn stream_all(&mut self) -> Result<(Events, String), End> {
        // Without a resourceVersion the server sends the current state instead of the state of its cache.
        let mut events = match self.open("", true).await {
            Err(problem) if self.is_unknown(&problem) => return Err(self.nothing().await),
            Err(problem) if problem.refuses_streams() => return Err(End::NoStreams),
            events => events?,
        };
        let mut all = All::default();
        loop {
            let event = match timeout(REQUEST_TIMEOUT, events.next()).await {
                Ok(event) => event,
                Err(_) => {
                    // Servers that do not know `sendInitialEvents` never mark the end of the list.
                    return Err(End::NoStreams);
                }
            };
            if matches!(&event, Some(Ok(event)) if !is_error(event)) {
                self.freshness.received(self.kind);
            }
            match event.transpose().map_err(Problem::Api)? {
                Some(WatchEvent::Added(text) | WatchEvent::Modified(text)) => {
                    all.add(self.kind, &text);
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    if mark
                        .metadata
                        .annotations
                        .contains_key("k8s.io/initial-events-end")
                    {
                        let version = mark.metadata.resource_version;
                        self.send_all(all, &version).await?;
                        self.recovered();
                        return Ok((events, version));
                    }
                }
                // Servers should not send this before the end of the list, but some do.
                Some(WatchEvent::Deleted(text)) => all.remove(self.kind, &text),
                Some(WatchEvent::Error(status)) => {
                    // Some servers refuse the request within the stream that they opened.
                    let problem = Problem::Api(kube::Error::Api(status));
                    let refused = problem.refuses_streams();
                    return Err(if refused {
                        End::NoStreams
                    } else {
                        problem.into()
                    });
                }
                None => {
                    self.streams = false;
                    return Err(Problem::CutShort.into());
                }
            }
        }
    }

    /// Reads all objects page by page.
    async fn list_all(&mut self) -> Result<String, End> {
        let mut all = All::default();
        let mut next = None;
        loop {
            let page = match once::page(&self.client, self.kind, next).await {
                Err(problem) if self.is_unknown(&problem) => return Err(self.nothing().await),
                page => page?,
            };
            self.freshness.received(self.kind);
            for text in &page.items {
                all.add(self.kind, text);
            }
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                let version = page
                    .metadata
                    .resource_version
                    .filter(|text| !text.is_empty());
                let version = version.ok_or(Problem::NoVersion)?;
                self.send_all(all, &version).await?;
                self.recovered();
                self.streams = true;
                return Ok(version);
            }
        }
    }

    /// Opens a watch from this version. `existing` requests the existing objects, too.
    async fn open(&self, version: &str, existing: bool) -> Result<Events, Problem> {
        let params = WatchParams {
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: existing,
            field_selector: self.kind.field_selector(),
            label_selector: self.kind.label_selector(),
        };
        let request = Request::new(self.kind.path()).watch(&params, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let events = timeout(REQUEST_TIMEOUT, self.client.request_events::<Text>(request)).await;
        let events = events.map_err(|_| Problem::Silent(REQUEST_TIMEOUT))??;
        if !existing {
            // The server accepted it, and may have nothing to send. Existing objects count when they arrive.
            self.freshness.received(self.kind);
        }
        Ok(events.boxed())
    }

    /// Sends changes until the watch ends.
    async fn watch(
        &mut self,
        mut events: Events,
        mut version: String,
    ) -> Result<std::convert::Infallible, End> {
        let mut progress = false;
        loop {
            let event = tokio::select! {
                event = timeout(IDLE_TIMEOUT, events.next()) => event,
                () = self.relists.next() => return Err(End::Asked),
            };
            let event = match event {
                Ok(Some(Ok(event))) => event,
                Ok(None) => return Err(End::Resume(version)),
                Ok(Some(Err(error))) if progress => {
                    debug!(kind = self.kind.name(), %error, "watch broken");
                    return Err(End::Resume(version));
                }
                // Resuming from this version would fail again, and always if this event is the cause.
                Ok(Some(Err(error))) => return Err(Problem::Api(error).into()),
                Err(_) => {
                    info!(
                        kind = self.kind.name(),
                        seconds = IDLE_TIMEOUT.as_secs(),
                        "the watch was silent; opening it again"
                    );
                    return Err(End::Resume(version));
                }
            };
            if let WatchEvent::Error(status) = event {
                return Err(End::of_error(status));
            }
            // An event shows that the server answers again.
            self.recovered();
            self.freshness.received(self.kind);
            progress = true;
            let (text, deleted) = match event {
                WatchEvent::Added(text) | WatchEvent::Modified(text) => (text, false),
                WatchEvent::Deleted(text) => (text, true),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    self.ledger.passed(&version);
                    self.send(None, None).await?;
                    continue;
                }
                WatchEvent::Error(_) => continue,
            };
            if let Some(passed) = self.changed(&text, deleted).await? {
                version = passed;
            }
        }
    }

    /// Sends one object that changed, and returns its version.
    async fn changed(&mut self, text: &Text, deleted: bool) -> Result<Option<String>, End> {
        let at = SystemTime::now();
        let (update, triggered, version) = if deleted {
            let Some(object) = identity(self.kind, text) else {
                return Ok(self.skipped());
            };
            self.ledger.gone(&object);
            (ObjectUpdate::Deleted(object.id), None, object.version)
        } else {
            let Some(received) = read(self.kind, text) else {
                return Ok(self.skipped());
            };
            self.ledger.present(&received.identity);
            let triggered = self.triggers.count(received.triggered);
            let version = received.identity.version.clone();
            (ObjectUpdate::from(received), triggered, version)
        };
        self.send(Some(update), Some(Arrival { at, triggered }))
            .await?;
        Ok(Some(version))
    }

    fn skipped<T>(&self) -> Option<T> {
        warn!(kind = self.kind.name(), "skipped an object without a name");
        None
    }

    /// Sends a list, as of this version.
    async fn send_all(&mut self, all: All, version: &str) -> Result<(), End> {
        let (update, identities) = all.finish();
        let began = self.relists.end();
        self.ledger.all(identities.into_iter(), version, began);
        self.send(Some(update), None).await
    }

    async fn send(
        &self,
        update: Option<ObjectUpdate>,
        arrival: Option<Arrival>,
    ) -> Result<(), End> {
        let answer = Answer {
            kind: self.kind,
            update,
            mark: self.ledger.mark(),
            arrival,
        };
        self.answers.send(answer).await.map_err(|_| End::Closed)
    }

    fn is_unknown(&self, problem: &Problem) -> bool {
        // After the kind was served once, a 404 has another origin, such as a proxy or a wrong path.
        self.kind.optional() && !self.known && problem.status() == Some(404)
    }

    /// Sends an empty list for a kind that the server does not serve.
    async fn nothing(&mut self) -> End {
        self.freshness.received(self.kind);
        match self.send_all(All::default(), "").await {
            Ok(()) => End::Unknown,
            Err(end) => end,
        }
    }

    fn complain(&mut self, problem: &Problem) {
        let words = problem.words(self.kind);
        if self.troubled.as_ref() != Some(&words) {
            warn!(
                kind = self.kind.name(),
                "cannot watch: {words}; retrying, nodes keep their last plans"
            );
            self.troubled = Some(words);
        }
    }

    fn recovered(&mut self) {
        self.known = true;
        if self.troubled.take().is_some() {
            info!(kind = self.kind.name(), "watching again");
        }
    }
}

fn is_error(event: &WatchEvent<Text>) -> bool {
    matches!(event, WatchEvent::Error(_))
}
