//! Decides what is written next. No I/O; what time it is, is an argument.
//!
//! Invariants: nothing is written before there is a complete plan and before it is known what is in
//! the store; what is in the store already is not written again; of each object at most one call is
//! under way; of what was written only hashes are kept.

mod config;
mod listing;
mod plans;
mod slices;
mod statuses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_crds::SharedSlices;
use tracing::{info, warn};

use super::budget::{Pace, plan_interval};
use super::catalog::Catalog;
use super::figures::Figures;
use super::notes::{Given, Told};
use super::pauses::Pauses;
use super::plan::SettingsRevision;
use super::queue::{Class, Queue};
use super::write::{Act, Call, Failure, FailureClass, Kind, Outcome, Target};
use crate::board::Board;
use crate::events::Events;
use crate::known::Shared;
use config::ConfigRecord;
use plans::PlanRecord;
use slices::SliceRecord;

/// Writes a second unless the ProxyConfig says otherwise.
const WRITES_PER_SECOND: u32 = 50;

/// The present.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since the start; budgets count with it.
    pub(super) elapsed: Duration,
    /// What people call it.
    pub(super) wall: SystemTime,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Make this call, and tell what came of it.
    Call(Box<Call>),
    /// Something was looked at and is as it should be. Ask again.
    Again,
    /// Nothing before this time since the start, unless something happens.
    Wait(Option<Duration>),
}

/// Everything that the decision needs.
#[derive(Debug)]
pub(super) struct Desk {
    shared: Shared,
    board: Arc<Board>,
    /// Where is told what changes.
    pub(super) events: Events,
    catalog: Catalog,
    queue: Queue<Target>,
    /// Calls that were decided on; they wait for the pace only.
    outbox: VecDeque<Call>,
    pace: Pace,
    /// What the ProxyConfig says about publishing.
    per_second: u32,
    sharing: SharedSlices,
    /// Whether shared slices are written at present; `None` before that is decided.
    slices_on: Option<bool>,
    pauses: Pauses,
    /// The kinds of which it is known what is in the store.
    listed: BTreeSet<Kind>,
    /// When the last listing of a kind began.
    listing_since: BTreeMap<Kind, Duration>,
    plans: BTreeMap<Arc<str>, PlanRecord>,
    slices: BTreeMap<Target, BTreeMap<String, SliceRecord>>,
    bucket_written: BTreeMap<u8, Duration>,
    config: ConfigRecord,
    revision: SettingsRevision,
    /// What nodes are told about themselves, and since when.
    given: BTreeMap<Arc<str>, Given>,
    figures: Figures,
    /// Whether something changed since they were counted.
    figures_stale: bool,
    figures_counted: Option<Duration>,
    /// When all plans were looked at last because of them.
    swept: Duration,
    /// Whether there is a complete plan.
    started: bool,
    /// Whether this controller writes what only one of several writes: all but statuses.
    leads: bool,
}

impl Desk {
    pub(super) fn new(shared: Shared, board: Arc<Board>) -> Self {
        Self {
            shared,
            board,
            events: Events::default(),
            catalog: Catalog::default(),
            queue: Queue::default(),
            outbox: VecDeque::new(),
            pace: Pace::new(WRITES_PER_SECOND),
            per_second: WRITES_PER_SECOND,
            sharing: SharedSlices::Auto,
            slices_on: None,
            pauses: Pauses::default(),
            listed: BTreeSet::new(),
            listing_since: BTreeMap::new(),
            plans: BTreeMap::new(),
            slices: BTreeMap::new(),
            bucket_written: BTreeMap::new(),
            config: ConfigRecord::default(),
            revision: SettingsRevision::default(),
            given: BTreeMap::new(),
            figures: Figures::default(),
            figures_stale: true,
            figures_counted: None,
            swept: Duration::ZERO,
            started: false,
            leads: true,
        }
    }

    /// Leads from now on, or no more. What others wrote meanwhile is read before anything is written
    /// again.
    pub(super) fn lead(&mut self, leads: bool, now: Now) {
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        if leads && self.started {
            self.listed.clear();
            self.begin(now);
        }
        if !leads {
            let decided = std::mem::take(&mut self.outbox);
            for call in decided {
                if call.target.is_for_all() {
                    self.outbox.push_back(call);
                } else {
                    self.unwritten(&call);
                }
            }
        }
    }

    fn begin(&mut self, now: Now) {
        for target in [
            Target::Config,
            Target::Listing(Kind::Plan),
            Target::Listing(Kind::Slice),
        ] {
            self.queue.push(target, Class::Urgent, now.elapsed);
        }
    }

    /// Something was planned.
    pub(super) fn told(&mut self, told: Told, now: Now) {
        if !self.started {
            self.started = true;
            self.begin(now);
        }
        let mut nodes = told.nodes;
        self.give(told.given, now);
        self.settings_may_differ(&nodes, now);
        let figures = !(told.services.is_empty() && nodes.is_empty());
        let mut buckets = BTreeSet::new();
        for (id, planned) in told.services {
            buckets.insert(super::slices::bucket(&id));
            nodes.extend(self.catalog.replace(&id, planned.as_ref()));
        }
        nodes.extend(told.read_again);
        for node in nodes {
            let class = match self.plans.get(&node) {
                Some(record) if record.exists() => Class::Plan,
                _ => Class::Urgent,
            };
            self.look(Target::Plan(node), class, now);
        }
        self.follow_size(now);
        let buckets = if self.writes_slices() {
            buckets
        } else {
            BTreeSet::new()
        };
        for bucket in buckets {
            self.look(Target::Bucket(bucket), Class::Shared, now);
        }
        if figures {
            self.figures_stale = true;
            let due = now.elapsed.max(self.swept + self.plan_interval());
            self.queue.push(Target::Sweep, Class::Background, due);
        }
    }

    /// Agents said something.
    pub(super) fn heard(&mut self, nodes: BTreeSet<Arc<str>>, now: Now) {
        for node in nodes {
            self.heard_of(&node);
            self.look(Target::Status(node), Class::Urgent, now);
        }
    }

    /// What to do next.
    pub(super) fn next(&mut self, now: Now) -> Step {
        if !self.outbox.is_empty() {
            if !self.pace.take(now.elapsed) {
                return Step::Wait(Some(self.pace.ready()));
            }
            if let Some(call) = self.outbox.pop_front() {
                return Step::Call(Box::new(call));
            }
        }
        let Some((target, class)) = self.queue.take(now.elapsed) else {
            return Step::Wait(self.queue.next_due());
        };
        if !self.leads && !target.is_for_all() {
            // Looked at again by whoever leads, who lists everything first.
            return Step::Again;
        }
        let paused = self.pauses.until(target.kind());
        if now.elapsed < paused {
            self.queue.push(target, class, paused);
            return Step::Again;
        }
        match target {
            Target::Listing(kind) => {
                self.listing_since.insert(kind, now.elapsed);
                self.issue(Target::Listing(kind), kind, "", Act::List);
            }
            Target::Config => self.look_at_config(now),
            Target::Plan(node) => self.look_at_plan(&node, now),
            Target::Status(node) => self.look_at_status(&node, now),
            Target::Bucket(bucket) => self.look_at_bucket(bucket, now),
            Target::Sweep => self.sweep(now),
        }
        Step::Again
    }

    /// What came of a call.
    pub(super) fn done(&mut self, call: &Call, outcome: Outcome, now: Now) {
        match outcome {
            Outcome::Failed(failure) => return self.failed(call, &failure, now),
            Outcome::Done => match &call.act {
                Act::ApplyPlan(_) => self.plan_written(&call.name, now),
                Act::ApplyStatus(_) => self.status_written(&call.name, now),
                Act::ApplySlice(_) => self.slice_written(&call.target, &call.name),
                Act::ApplyConfigStatus(_) => self.config_status_written(now),
                Act::Create => {
                    self.config.not_read();
                    self.look(Target::Config, Class::Urgent, now);
                }
                Act::Delete => self.deleted(call, now),
                Act::List | Act::Read => {}
            },
            Outcome::Config(config) => self.config_read(config.as_deref(), now),
            Outcome::Heartbeat(heartbeat) => self.heartbeat_read(&call.name, heartbeat, now),
            Outcome::Plans(plans) => self.plans_listed(plans, now),
            Outcome::Slices(slices) => self.slices_listed(slices, now),
        }
        if self.pauses.succeeded(call.kind, &call.target) {
            info!(kind = %call.kind, "calls that failed succeed again");
        }
    }

    fn failed(&mut self, call: &Call, failure: &Failure, now: Now) {
        let (again, news) = self
            .pauses
            .failed(call.kind, &call.target, failure.class, now.elapsed);
        if news {
            warn!(
                "{call}: {}; {}; it is tried again by itself",
                failure.text,
                failure.class.next_step()
            );
        }
        self.unwritten(call);
        match failure.class {
            FailureClass::NoSuchObject if call.kind == Kind::Plan => {
                self.plan_vanished(&call.name);
                let plan = Target::Plan(call.name.as_str().into());
                self.queue.push(plan, Class::Urgent, again);
            }
            // A definition that goes takes all objects with it.
            FailureClass::NoSuchKind if call.kind != Kind::Config => {
                let listing = Target::Listing(call.kind);
                self.queue.push(listing, Class::Urgent, again);
            }
            _ => {}
        }
        // What was decided on for a kind that waits would only fail too.
        let waiting = std::mem::take(&mut self.outbox);
        for other in waiting {
            if now.elapsed < self.pauses.until(other.kind) {
                self.unwritten(&other);
                self.queue.push(other.target, Class::Plan, again);
            } else {
                self.outbox.push_back(other);
            }
        }
        self.queue.push(call.target.clone(), Class::Plan, again);
    }

    /// Forgets what a call was to lead to.
    fn unwritten(&mut self, call: &Call) {
        match &call.act {
            Act::ApplyPlan(_) => self.plan_not_written(&call.name),
            Act::ApplyStatus(_) => self.status_not_written(&call.name),
            Act::ApplySlice(_) => self.slice_not_written(&call.target, &call.name),
            Act::ApplyConfigStatus(_) => self.config.status_not_written(),
            Act::Delete => self.not_deleted(call),
            Act::List | Act::Read | Act::Create => self.not_read(call),
        }
    }

    fn not_read(&mut self, call: &Call) {
        match &call.target {
            Target::Config => self.config.not_read(),
            Target::Status(node) => self.heartbeat_not_read(node),
            _ => {}
        }
    }

    fn look(&mut self, target: Target, class: Class, now: Now) {
        self.queue.push(target, class, now.elapsed);
    }

    fn issue(&mut self, target: Target, kind: Kind, name: &str, act: Act) {
        self.outbox.push_back(Call {
            target,
            kind,
            name: name.to_owned(),
            act,
        });
    }

    fn plan_interval(&self) -> Duration {
        plan_interval(self.plans.len(), self.per_second)
    }
}
