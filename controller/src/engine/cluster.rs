//! The API server as a source.
//!
//! Nothing is planned before every kind was listed once: a plan made of half the objects would take
//! Services away from nodes that have them (S-183).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use portolan_planner::model::{ClusterModel, Event, Object as _, ObjectChange, ProxyConfig};
use tokio::runtime::Handle;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tracing::{error, info};

use super::compact::compact;
use super::losses::Losses;
use super::{Engine, Journal, Names, News, moment};
use crate::changes::Came;
use crate::known::Known;
use crate::object::{Found, ObjectId};
use crate::watch::{Answer, Kind, Mark, Seen};

/// What is planned at once. Under load this gathers what came while the last batch was planned.
const BATCH: usize = 4096;

/// How often the clock is looked at while a loss is in force.
const CLOCK: Duration = Duration::from_secs(1);

/// What [`ClusterSource::next`] waited for.
enum Next {
    /// Something was seen, or it is later than it was.
    Now(Option<Answer>),
    /// Nobody watches any more.
    End,
}

impl From<Option<Answer>> for Next {
    fn from(seen: Option<Answer>) -> Self {
        seen.map_or(Self::End, |seen| Self::Now(Some(seen)))
    }
}

/// Follows what watches see.
#[derive(Debug)]
pub struct ClusterSource {
    engine: Engine,
    seen: Receiver<Answer>,
    /// The kinds that were not listed yet.
    missing: BTreeSet<Kind>,
    /// What was seen meanwhile.
    waiting: Vec<Seen>,
    /// How much of it is of different objects.
    compacted: usize,
    /// Whether the settings could be read, or there are none.
    settings_known: bool,
    /// What was said about reading objects.
    journal: Journal,
    /// How far each kind was read.
    marks: BTreeMap<Kind, Mark>,
    /// Endpoints that vanish in mass.
    losses: Losses,
    /// When what is planned next came; the object may be a moment behind its times.
    came: Came,
}

impl ClusterSource {
    /// What comes out of `seen` goes to the engine.
    pub fn new(engine: Engine, seen: Receiver<Answer>) -> Self {
        engine.known.write().planner.watch_endpoints();
        Self {
            engine,
            seen,
            missing: Kind::ALL.into_iter().collect(),
            waiting: Vec::new(),
            compacted: 0,
            settings_known: true,
            journal: Journal::default(),
            marks: BTreeMap::new(),
            losses: Losses::default(),
            came: Came::default(),
        }
    }

    /// Follows until all watches have ended.
    pub fn follow(mut self) {
        while let Next::Now(first) = self.next() {
            let start = Instant::now();
            let mut batch = first.unwrap_or_default();
            while batch.len() < BATCH
                && let Ok(next) = self.seen.try_recv()
            {
                batch.extend(next);
            }
            self.take_in(batch, start);
        }
    }

    /// What is seen next, or that it is time to look at the clock: a loss ends by itself.
    fn next(&mut self) -> Next {
        if !self.losses.needs_clock() {
            return self.seen.blocking_recv().into();
        }
        let received = Handle::current().block_on(timeout(CLOCK, self.seen.recv()));
        received.map_or(Next::Now(None), Next::from)
    }

    /// How much was seen and waits for kinds that were not listed yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes in what was seen together.
    pub fn take_in(&mut self, batch: Vec<Seen>, start: Instant) {
        for seen in &batch {
            if let Seen::All { kind, objects, .. } = seen
                && self.missing.remove(kind)
            {
                info!(kind = kind.name(), objects = objects.len(), "listed");
            }
            self.look_at_settings(seen);
            self.losses.look_at(seen);
        }
        self.waiting.extend(batch);
        let now = moment(SystemTime::now());
        let may_begin =
            self.engine.published || (self.settings_known && self.losses.may_begin(now));
        let waits = !self.engine.published && self.losses.waits();
        if self.engine.known.read().waits != waits {
            self.engine.known.write().waits = waits;
        }
        if !self.missing.is_empty() || !may_begin {
            if self.waiting.len() > self.compacted * 2 + BATCH {
                compact(&mut self.waiting);
                self.compacted = self.waiting.len();
            }
            return;
        }
        let batch = std::mem::take(&mut self.waiting);
        let (events, changed) = self.translate(batch);
        // Before what was planned: to be thought ahead costs a list, to be thought behind a plan that
        // goes back.
        self.engine.store.note_marks(&self.marks);
        if !(events.is_empty() && self.engine.published) {
            let came = std::mem::take(&mut self.came);
            self.engine.plan(events, &changed, start, came);
        } else {
            if !changed.is_empty() {
                // What came cannot be planned, and is not what another change began with.
                self.came = Came::default();
            }
            if self.losses.needs_clock() {
                self.engine.plan(events, "the time", start, Came::default());
            }
        }
        self.engine.store.note_planned();
        self.losses.tell(self.engine.known.read().planner.model());
    }

    /// Turns what was seen into events, and notes what is wrong with it.
    fn translate(&mut self, batch: Vec<Seen>) -> (Vec<Event>, String) {
        let mut events = Vec::with_capacity(batch.len());
        let mut names = Names::default();
        let mut readable = Vec::new();
        self.journal.begin();
        let mut known = self.engine.known.write();
        for seen in batch {
            match seen {
                Seen::All {
                    kind,
                    objects,
                    unreadable,
                } => {
                    names.add(|| format!("all {} of {}", objects.len(), kind.resource()));
                    self.journal.note_all(kind, &objects, &unreadable);
                    readable.extend(unreadable.iter().map(|(id, _)| id.clone()));
                    let were = known.left_out.keys();
                    readable.extend(were.filter(|id| Kind::of(id) == kind).cloned());
                    let kept = kept_forms(known.planner.model(), &events, &unreadable);
                    events.push(replace(&mut known, kind, kept, objects, unreadable));
                }
                Seen::Present(found) => {
                    let id = found.id();
                    names.add(|| id.to_string());
                    self.journal.note_read(&id, &found);
                    if known.left_out.remove(&id).is_some() {
                        readable.push(id);
                    }
                    events.push(found.into_event());
                }
                Seen::Unreadable(id, problem) => {
                    names.add(|| format!("{id} (unreadable)"));
                    self.journal.note_unreadable(&id, &problem);
                    known.left_out.insert(id.clone(), problem);
                    readable.push(id);
                }
                Seen::Read(kind, mark) => drop(self.marks.insert(kind, mark)),
                Seen::Came { at, triggered } => self.came.note(at, triggered),
                Seen::Gone(id) => {
                    names.add(|| format!("{id} (gone)"));
                    self.journal.forget(&id);
                    known.left_out.remove(&id);
                    events.push(id.removed());
                }
            }
        }
        self.journal.end();
        drop(known);
        for id in &readable {
            self.engine.tell(News::Readable(id));
        }
        (events, names.in_words())
    }

    /// Settings that cannot be read at the start are waited for: nobody knows what nodes have.
    fn look_at_settings(&mut self, seen: &Seen) {
        let is_settings = |id: &ObjectId| *id == ObjectId::ProxyConfig(ProxyConfig::DEFAULT.into());
        let known = match seen {
            Seen::All {
                kind: Kind::ProxyConfig,
                unreadable,
                ..
            } => !unreadable.iter().any(|(id, _)| is_settings(id)),
            Seen::Present(found) if is_settings(&found.id()) => true,
            Seen::Gone(id) if is_settings(id) => true,
            Seen::Unreadable(id, _) if is_settings(id) => false,
            _ => return,
        };
        if self.settings_known && !known && !self.engine.published {
            let problem = match seen {
                Seen::Unreadable(_, problem) => problem.as_str(),
                Seen::All { unreadable, .. } => unreadable.first().map_or("", |(_, p)| p.as_str()),
                _ => "",
            };
            error!(
                "ProxyConfig default: {problem}; no plan is published before it can be read once, \
                 nodes keep what they have"
            );
        }
        self.settings_known = known;
    }
}

/// Everything of a kind in place of what was known. What is there and cannot be read keeps the
/// form it had (S-183).
fn replace(
    known: &mut Known,
    kind: Kind,
    kept: Vec<Found>,
    objects: Vec<Found>,
    unreadable: Vec<(ObjectId, String)>,
) -> Event {
    // Of two forms of one object the later one counts: what could be read.
    let objects: Vec<Found> = kept.into_iter().chain(objects).collect();
    known.left_out.retain(|id, _| Kind::of(id) != kind);
    known.left_out.extend(unreadable);
    /// All objects of one kind, as an event.
    macro_rules! all {
        ($kind:ident) => {{
            let of_kind = objects.into_iter().filter_map(|found| match found {
                Found::$kind(object) => Some(object),
                _ => None,
            });
            Event::$kind(ObjectChange::Replace(of_kind.collect()))
        }};
    }
    match kind {
        Kind::Node => all!(Node),
        Kind::Service => all!(Service),
        Kind::EndpointSlice => all!(EndpointSlice),
        Kind::ServiceCidr => all!(ServiceCidr),
        Kind::ProxyConfig => all!(ProxyConfig),
    }
}

/// The last forms of objects that cannot be read: of this batch, else of the model.
fn kept_forms(
    model: &ClusterModel,
    events: &[Event],
    unreadable: &[(ObjectId, String)],
) -> Vec<Found> {
    let form = |(id, _): &(ObjectId, String)| {
        let in_batch = events.iter().rev().find_map(|event| form_in(event, id));
        in_batch.unwrap_or_else(|| kept(model, id))
    };
    unreadable.iter().filter_map(form).collect()
}

/// What an event says about the form of an object: `None` nothing, `Some(None)` that it is gone.
fn form_in(event: &Event, id: &ObjectId) -> Option<Option<Found>> {
    /// The same for each kind.
    macro_rules! form {
        ($kind:ident, $change:expr, $id:expr) => {
            match $change {
                ObjectChange::Upsert(object) if object.id() == *$id => {
                    Some(Some(Found::$kind(object.clone())))
                }
                ObjectChange::Remove(gone) if gone == $id => Some(None),
                ObjectChange::Replace(objects) => {
                    let object = objects.iter().find(|object| object.id() == *$id);
                    Some(object.cloned().map(Found::$kind))
                }
                ObjectChange::Upsert(_) | ObjectChange::Remove(_) => None,
            }
        };
    }
    match (event, id) {
        (Event::Node(change), ObjectId::Node(id)) => form!(Node, change, id),
        (Event::Service(change), ObjectId::Service(id)) => form!(Service, change, id),
        (Event::EndpointSlice(change), ObjectId::EndpointSlice(id)) => {
            form!(EndpointSlice, change, id)
        }
        (Event::ServiceCidr(change), ObjectId::ServiceCidr(id)) => form!(ServiceCidr, change, id),
        (Event::ProxyConfig(change), ObjectId::ProxyConfig(id)) => form!(ProxyConfig, change, id),
        _ => None,
    }
}

/// The last form of an object that the model has.
fn kept(model: &ClusterModel, id: &ObjectId) -> Option<Found> {
    Some(match id {
        ObjectId::Node(name) => Found::Node((**model.node(name)?).clone()),
        ObjectId::Service(id) => Found::Service((**model.service(id)?).clone()),
        ObjectId::EndpointSlice(id) => Found::EndpointSlice((**model.slice(id)?).clone()),
        ObjectId::ServiceCidr(name) => Found::ServiceCidr((**model.service_cidr(name)?).clone()),
        ObjectId::ProxyConfig(name) => Found::ProxyConfig((**model.proxy_config(name)?).clone()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_plan::ServiceId;
    use tokio::sync::mpsc;

    use super::*;
    use crate::known::Shared;
    use crate::store::Store;

    #[test]
    fn times_wait_for_their_object_and_are_given_to_no_other() {
        let engine = Engine::new(Shared::default(), Arc::new(Store::default()), None);
        let (_seen, receiver) = mpsc::channel(1);
        let mut source = ClusterSource::new(engine, receiver);
        let all = Kind::ALL.map(|kind| Seen::All {
            kind,
            objects: Vec::new(),
            unreadable: Vec::new(),
        });
        source.take_in(all.into(), Instant::now());
        let at = SystemTime::UNIX_EPOCH;
        let came = || Seen::Came {
            at,
            triggered: None,
        };
        source.take_in(vec![came()], Instant::now());
        assert_eq!(source.came.seen, Some(at), "its object is still to come");
        let web = || ObjectId::Service(ServiceId::new("shop", "web"));
        let broken = Seen::Unreadable(web(), "broken".into());
        source.take_in(vec![broken], Instant::now());
        assert_eq!(source.came, Came::default(), "nothing is planned of it");
        source.take_in(vec![came()], Instant::now());
        source.take_in(vec![Seen::Gone(web())], Instant::now());
        assert_eq!(source.came, Came::default(), "it was planned with it");
    }
}
