//! The state of the simulated API server: objects, their history, events, leases, and its connections to the
//! controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portolan_planner::model::Kind;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::contents::ObjectState;
use crate::link::Passage;
use crate::objects::{self, Name};

/// Minimum time between the end of a list and the beginning of one that agents requested, as limits.md has it.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(5);

/// By how much a restored store raises its revision.
const BUMP: u64 = 1_000_000;

/// The API server, with one store and no cache.
#[derive(Debug)]
pub(crate) struct ApiServer {
    content: Mutex<StoreContent>,
    /// Changes with each change of anything.
    changes: watch::Sender<u64>,
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub(crate) struct StoredEvent {
    /// The revision of the change.
    pub(crate) revision: u64,
    /// When it happened.
    pub(crate) at: Instant,
    /// Its text, with the line feed.
    pub(crate) line: Bytes,
}

/// The connection of a controller to the API server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApiLink {
    /// Whether it carries data.
    pub(crate) passage: Passage,
    /// Incremented when all open connections break.
    pub(crate) generation: u64,
    /// The delay of the events of a kind, and of the answers to lists and watches of it.
    pub(crate) lag: BTreeMap<Kind, Duration>,
}

/// An object in the store.
#[derive(Debug, Clone)]
struct Stored {
    number: u16,
    text: Value,
}

/// A copy of the store.
#[derive(Debug, Clone)]
struct Backup {
    objects: BTreeMap<Name, Stored>,
}

/// A Lease: its revision and its content.
type Lease = (u64, Value);

/// All of the state.
#[derive(Debug, Default)]
pub(crate) struct StoreContent {
    pub(crate) revision: u64,
    /// No watch begins before this revision.
    pub(crate) compacted: u64,
    /// The number of restores.
    pub(crate) restores: u64,
    pub(crate) links: Vec<ApiLink>,
    pub(crate) leases: BTreeMap<String, Lease>,
    objects: BTreeMap<Name, Stored>,
    events: BTreeMap<Kind, Vec<StoredEvent>>,
    /// The states of each object in order. At first it does not exist.
    history: BTreeMap<Name, Vec<ObjectState>>,
    /// The number of the last state.
    number: u16,
    backup: Option<Backup>,
    /// Complete lists, by the run of a controller and kind.
    lists: BTreeMap<(u64, Kind), u64>,
    /// When the last of them ended.
    listed_at: BTreeMap<(u64, Kind), Instant>,
    /// The watches that this server has neither broken nor ended. If such a controller lists again, then on request.
    open_watches: BTreeSet<(u64, Kind)>,
    /// The first list that was requested too early.
    early_list: Option<String>,
}

/// An event as a line of a watch. The type comes first, as from a real server.
pub(crate) fn event_line(what: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n").into()
}

impl StoreContent {
    /// The events of a kind in order.
    pub(crate) fn events(&self, kind: Kind) -> &[StoredEvent] {
        self.events.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All objects of a kind.
    pub(crate) fn objects(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let of_kind = self
            .objects
            .iter()
            .filter(move |(name, _)| name.kind() == kind);
        of_kind.map(|(_, stored)| &stored.text)
    }

    /// The delay of a kind for the controller of a slot.
    pub(crate) fn lag(&self, slot: usize, kind: Kind) -> Duration {
        let link = self.links.get(slot);
        let lag = link.and_then(|link| link.lag.get(&kind));
        lag.copied().unwrap_or_default()
    }

    /// A run of a controller begins to list a kind. After a failure it may do so at any time.
    pub(crate) fn begins_list(&mut self, run: u64, kind: Kind) {
        let is_requested = self.open_watches.remove(&(run, kind));
        let last = self.listed_at.get(&(run, kind));
        let since = last.map(Instant::elapsed);
        let is_early = |since: &Duration| is_requested && *since < MIN_LIST_INTERVAL;
        if let Some(since) = since.filter(is_early) {
            let kind = kind.name();
            self.early_list.get_or_insert_with(|| {
                format!("run {run} of a controller lists {kind} again {since:?} after a list")
            });
        }
    }

    /// Counts a list that a run of a controller received completely.
    pub(crate) fn listed(&mut self, run: u64, kind: Kind) {
        *self.lists.entry((run, kind)).or_default() += 1;
        self.listed_at.insert((run, kind), Instant::now());
    }

    /// A watch of a run of a controller sends events.
    pub(crate) fn watches(&mut self, run: u64, kind: Kind) {
        self.open_watches.insert((run, kind));
    }

    /// This server has ended or broken the watch.
    pub(crate) fn ended_watch(&mut self, run: u64, kind: Kind) {
        self.open_watches.remove(&(run, kind));
    }

    fn record(&mut self, name: Name, state: ObjectState) {
        let states = self.history.entry(name);
        states.or_insert_with(|| vec![None]).push(state);
    }

    fn event(&mut self, what: &str, name: Name, object: &Value) {
        let event = StoredEvent {
            revision: self.revision,
            at: Instant::now(),
            line: event_line(what, object),
        };
        self.events.entry(name.kind()).or_default().push(event);
    }
}

impl ApiServer {
    /// An empty one for this number of controllers.
    pub(crate) fn new(controllers: usize) -> Self {
        Self {
            content: Mutex::new(StoreContent {
                revision: 1,
                links: vec![ApiLink::default(); controllers],
                ..StoreContent::default()
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// Reads the state, or changes leases and counts.
    pub(crate) fn content(&self) -> MutexGuard<'_, StoreContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change<T>(&self, change: impl FnOnce(&mut StoreContent) -> T) -> T {
        let changed = change(&mut self.content());
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }

    /// Creates an object, or gives it a new state.
    pub(crate) fn put(&self, name: Name) {
        self.change(|content| {
            content.revision += 1;
            content.number += 1;
            let (number, revision) = (content.number, content.revision);
            let text = objects::object(name, number, revision);
            let existed = content.objects.contains_key(&name);
            content.event(if existed { "MODIFIED" } else { "ADDED" }, name, &text);
            content.objects.insert(name, Stored { number, text });
            content.record(name, Some(number));
        });
    }

    /// Deletes an object if it exists.
    pub(crate) fn delete(&self, name: Name) {
        self.change(|content| {
            let Some(mut stored) = content.objects.remove(&name) else {
                return;
            };
            content.revision += 1;
            stored.text["metadata"]["resourceVersion"] = json!(content.revision.to_string());
            content.event("DELETED", name, &stored.text);
            content.record(name, None);
        });
    }

    /// Forgets old events: watches that resume have to list.
    pub(crate) fn compact(&self) {
        self.change(|content| content.compacted = content.revision);
    }

    /// Copies the store.
    pub(crate) fn back_up(&self) {
        let mut content = self.content();
        let backup = Backup {
            objects: content.objects.clone(),
        };
        content.backup = Some(backup);
    }

    /// Replaces the store by its last copy and breaks all connections. Returns false if there is no copy. The revision
    /// is raised (`etcdutl snapshot restore --bump-revision --mark-compacted`): otherwise revisions occur twice, and a
    /// watch that resumes misses events. Leases stay: with an older Lease, two controllers could lead, whatever they do.
    pub(crate) fn restore(&self) -> bool {
        self.change(|content| {
            let Some(Backup { objects }) = content.backup.clone() else {
                return false;
            };
            content.revision += BUMP;
            content.compacted = content.revision;
            content.restores += 1;
            content.events.clear();
            content.objects = objects;
            for name in Name::all() {
                let state = content.objects.get(&name).map(|stored| stored.number);
                content.record(name, state);
            }
            true
        })
    }

    /// Changes the connection of a controller. If it is cut, all open connections break.
    pub(crate) fn set_passage(&self, slot: usize, passage: Passage) {
        self.change(|content| {
            if let Some(link) = content.links.get_mut(slot) {
                link.passage = passage;
                if passage == Passage::Cut {
                    link.generation += 1;
                }
            }
        });
    }

    /// Breaks the open connections of a controller.
    pub(crate) fn disconnect(&self, slot: usize) {
        self.change(|content| {
            if let Some(link) = content.links.get_mut(slot) {
                link.generation += 1;
            }
        });
    }

    /// Delays the events of a kind for a controller.
    pub(crate) fn set_lag(&self, slot: usize, kind: Kind, lag: Duration) {
        self.change(|content| {
            if let Some(link) = content.links.get_mut(slot) {
                link.lag.insert(kind, lag);
            }
        });
    }

    /// The states of an object in order, including the present one.
    pub(crate) fn history(&self, name: Name) -> Vec<ObjectState> {
        let content = self.content();
        let states = content.history.get(&name);
        states.cloned().unwrap_or_else(|| vec![None])
    }

    /// Whether a run of a controller has received a complete list of every kind.
    pub(crate) fn has_listed_all(&self, run: u64) -> bool {
        let content = self.content();
        let has = |kind: &Kind| content.lists.contains_key(&(run, *kind));
        Kind::ALL.iter().all(has)
    }

    /// The first list that was requested too early.
    pub(crate) fn early_list(&self) -> Option<String> {
        self.content().early_list.clone()
    }

    /// The number of complete lists, by the run of a controller and kind.
    pub(crate) fn lists(&self) -> BTreeMap<(u64, Kind), u64> {
        self.content().lists.clone()
    }

    /// The texts of all objects of a kind.
    pub(crate) fn texts(&self, kind: Kind) -> Vec<String> {
        let content = self.content();
        content.objects(kind).map(ToString::to_string).collect()
    }
}
