//! The API server as a source of objects.
//!
//! Nothing is planned before every kind was listed once: a plan from part of the objects would remove Services from
//! nodes that have them (S-183).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use portolan_planner::model::{ClusterModel, Event, Kind, Object, ObjectId, ProxyConfig};
use tokio::runtime::Handle;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tracing::{error, info};

use super::compact::compact;
use super::losses::Losses;
use super::{Engine, Journal, Names, Notification, moment};
use crate::cluster_state::ClusterState;
use crate::store::cause::ChangeTimes;
use crate::watch::{Answer, Collection as _, Mark, ObjectUpdate};

/// Maximum number of answers that are planned together. Under load, a batch contains what arrived while the last one
/// was planned.
const MAX_BATCH_ANSWERS: usize = 4096;

/// Interval between two checks whether a loss of endpoints has ended.
const LOSS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What [`ClusterSource::next`] waited for.
enum Next {
    /// An answer, or nothing but time to check the clock.
    Now(Option<Answer>),
    /// All watches have ended.
    End,
}

impl From<Option<Answer>> for Next {
    fn from(answer: Option<Answer>) -> Self {
        answer.map_or(Self::End, |answer| Self::Now(Some(answer)))
    }
}

/// Gives the answers of all watches to the engine.
#[derive(Debug)]
pub struct ClusterSource {
    engine: Engine,
    answers: Receiver<Answer>,
    /// Kinds that were not listed yet.
    missing: BTreeSet<Kind>,
    /// Answers that wait for these kinds.
    waiting: Vec<Answer>,
    /// How many they were after they were compacted last.
    compacted: usize,
    /// Whether the settings could be read, or do not exist.
    settings_known: bool,
    /// Logged problems of objects that were read.
    journal: Journal,
    /// How far each kind was read.
    marks: BTreeMap<Kind, Mark>,
    /// Losses of endpoints, for the guard.
    losses: Losses,
}

/// What answers mean for the planner.
#[derive(Default)]
struct Translation {
    events: Vec<Event>,
    /// The first few objects, for logs and traces.
    names: Names,
    /// When the objects behind the events arrived.
    times: ChangeTimes,
    /// Objects that could not be read before, or cannot be read now.
    readable: Vec<ObjectId>,
}

impl Translation {
    /// Adds an update, and notes objects that cannot be read.
    fn add(
        &mut self,
        kind: Kind,
        update: ObjectUpdate,
        known: &mut ClusterState,
        journal: &mut Journal,
    ) {
        match update {
            ObjectUpdate::All {
                objects,
                unreadable,
            } => {
                self.names
                    .add(|| format!("all {} of {}", objects.len(), kind.resource()));
                journal.note_all(kind, &objects, &unreadable);
                self.readable
                    .extend(unreadable.iter().map(|(id, _)| id.clone()));
                let were = known.left_out.keys();
                self.readable
                    .extend(were.filter(|id| id.kind() == kind).cloned());
                let kept = kept_forms(known.planner.model(), &self.events, &unreadable);
                self.events
                    .push(replace(known, kind, kept, objects, unreadable));
            }
            ObjectUpdate::Present(object) => {
                let id = object.id();
                self.names.add(|| id.to_string());
                journal.note_read(&id, &object);
                if known.left_out.remove(&id).is_some() {
                    self.readable.push(id);
                }
                self.events.push(object.into_event());
            }
            ObjectUpdate::Unreadable(id, problem) => {
                self.names.add(|| format!("{id} (unreadable)"));
                journal.note_unreadable(&id, &problem);
                known.left_out.insert(id.clone(), problem);
                self.readable.push(id);
            }
            ObjectUpdate::Deleted(id) => {
                self.names.add(|| format!("{id} (gone)"));
                journal.forget(&id);
                known.left_out.remove(&id);
                self.events.push(id.removed());
            }
        }
    }
}

impl ClusterSource {
    /// A source of what `answers` receives.
    pub fn new(engine: Engine, answers: Receiver<Answer>) -> Self {
        engine.known.write().planner.watch_endpoints();
        Self {
            engine,
            answers,
            missing: Kind::ALL.into_iter().collect(),
            waiting: Vec::new(),
            compacted: 0,
            settings_known: true,
            journal: Journal::default(),
            marks: BTreeMap::new(),
            losses: Losses::default(),
        }
    }

    /// Runs until all watches have ended.
    pub fn follow(mut self) {
        let freshness = self.engine.freshness();
        while let Next::Now(first) = self.next() {
            let _turn = freshness.turn();
            let start = Instant::now();
            let mut batch = Vec::from_iter(first);
            while batch.len() < MAX_BATCH_ANSWERS
                && let Ok(next) = self.answers.try_recv()
            {
                batch.push(next);
            }
            self.take_in(batch, start);
        }
    }

    /// The next answer, or `None` in it when it is time to check the clock: a loss ends without an answer.
    fn next(&mut self) -> Next {
        if !self.losses.needs_clock() {
            return self.answers.blocking_recv().into();
        }
        let received =
            Handle::current().block_on(timeout(LOSS_CHECK_INTERVAL, self.answers.recv()));
        received.map_or(Next::Now(None), Next::from)
    }

    /// How many answers wait for kinds that were not listed yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes in answers that are planned together.
    pub fn take_in(&mut self, batch: Vec<Answer>, start: Instant) {
        for answer in &batch {
            let Some(update) = &answer.update else {
                continue;
            };
            if let ObjectUpdate::All { objects, .. } = update
                && self.missing.remove(&answer.kind)
            {
                info!(kind = answer.kind.name(), objects = objects.len(), "listed");
            }
            self.check_settings(answer.kind, update);
            self.losses.observe(answer.kind, update);
        }
        self.waiting.extend(batch);
        if self.must_wait() {
            if self.waiting.len() > self.compacted * 2 + MAX_BATCH_ANSWERS {
                compact(&mut self.waiting);
                self.compacted = self.waiting.len();
            }
            return;
        }
        let batch = std::mem::take(&mut self.waiting);
        let Translation {
            events,
            names,
            times,
            ..
        } = self.translate(batch);
        let changed = names.in_words();
        // Before the plan: a controller that seems to have read too much costs a list, one that seems to have read too
        // little costs a plan that goes back.
        self.engine.store.note_marks(&self.marks);
        if !(events.is_empty() && self.engine.published) {
            self.engine.plan(events, &changed, start, times);
        } else if self.losses.needs_clock() {
            self.engine
                .plan(events, "the time", start, ChangeTimes::default());
        }
        self.engine.store.note_planned();
        self.losses.log(self.engine.known.read().planner.model());
    }

    /// Whether nothing may be planned yet.
    fn must_wait(&mut self) -> bool {
        let now = moment(SystemTime::now());
        let may_begin =
            self.engine.published || (self.settings_known && self.losses.may_begin(now));
        let waits = !self.engine.published && self.losses.waits();
        if self.engine.known.read().waits != waits {
            self.engine.known.write().waits = waits;
        }
        !self.missing.is_empty() || !may_begin
    }

    /// Turns answers into events.
    fn translate(&mut self, batch: Vec<Answer>) -> Translation {
        let mut translation = Translation::default();
        self.journal.begin();
        let mut known = self.engine.known.write();
        for answer in batch {
            self.marks.insert(answer.kind, answer.mark);
            let Some(update) = answer.update else {
                continue;
            };
            // The times of an object that cannot be planned belong to no event.
            if let Some(arrival) = answer.arrival
                && !matches!(update, ObjectUpdate::Unreadable(..))
            {
                translation.times.note(arrival.at, arrival.triggered);
            }
            translation.add(answer.kind, update, &mut known, &mut self.journal);
        }
        self.journal.end();
        drop(known);
        for id in &translation.readable {
            self.engine.notify(Notification::Readable(id));
        }
        translation
    }

    /// Waits for settings that cannot be read at the start: which ones the nodes have is not known.
    fn check_settings(&mut self, kind: Kind, update: &ObjectUpdate) {
        let is_settings = |id: &ObjectId| *id == ObjectId::ProxyConfig(ProxyConfig::DEFAULT.into());
        let problem = match update {
            ObjectUpdate::All { unreadable, .. } if kind == Kind::ProxyConfig => unreadable
                .iter()
                .find_map(|(id, problem)| is_settings(id).then_some(problem)),
            ObjectUpdate::Present(object) if is_settings(&object.id()) => None,
            ObjectUpdate::Deleted(id) if is_settings(id) => None,
            ObjectUpdate::Unreadable(id, problem) if is_settings(id) => Some(problem),
            _ => return,
        };
        if self.settings_known
            && !self.engine.published
            && let Some(problem) = problem
        {
            error!(
                "ProxyConfig default: {problem}; no plan is published until it can be read, nodes keep what \
                 they have"
            );
        }
        self.settings_known = problem.is_none();
    }
}

/// The event of a list. Objects that cannot be read keep the form that they had (S-183).
fn replace(
    known: &mut ClusterState,
    kind: Kind,
    kept: Vec<Object>,
    objects: Vec<Object>,
    unreadable: Vec<(ObjectId, String)>,
) -> Event {
    known.left_out.retain(|id, _| id.kind() != kind);
    known.left_out.extend(unreadable);
    // Of two forms of one object the later one counts: the one that could be read.
    Event::replace(kind, kept.into_iter().chain(objects).collect())
}

/// The last forms of objects that cannot be read: of this batch, else of the model.
fn kept_forms(
    model: &ClusterModel,
    events: &[Event],
    unreadable: &[(ObjectId, String)],
) -> Vec<Object> {
    let form = |(id, _): &(ObjectId, String)| {
        let in_batch = events.iter().rev().find_map(|event| event.object(id));
        in_batch.unwrap_or_else(|| model.object(id))
    };
    unreadable.iter().filter_map(form).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_plan::ServiceId;
    use tokio::sync::mpsc;

    use super::*;
    use crate::cluster_state::Shared;
    use crate::store::Store;
    use crate::watch::Arrival;

    #[test]
    fn times_belong_to_the_event_of_their_object_and_to_no_other() {
        let engine = Engine::new(Shared::default(), Arc::new(Store::default()), None);
        let (_sender, receiver) = mpsc::channel(1);
        let mut source = ClusterSource::new(engine, receiver);
        let answer = |second, update| Answer {
            kind: Kind::Service,
            update: Some(update),
            mark: Mark::default(),
            arrival: Some(Arrival {
                at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
                triggered: None,
            }),
        };
        let web = ObjectId::Service(ServiceId::new("shop", "web"));
        let broken = answer(1, ObjectUpdate::Unreadable(web.clone(), "broken".into()));
        let unplanned = source.translate(vec![broken.clone()]);
        assert!(unplanned.events.is_empty());
        assert_eq!(unplanned.times, ChangeTimes::default());
        let deleted = answer(2, ObjectUpdate::Deleted(web));
        let planned = source.translate(vec![broken, deleted]);
        assert_eq!(planned.events.len(), 1);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(2);
        assert_eq!(planned.times.seen, Some(at));
    }
}
