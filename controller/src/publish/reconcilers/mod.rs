//! Decides what is written next. Four reconcilers process targets and issue calls: `plans`, `statuses`, `slices` and
//! `config`. They share one queue and one write budget, from which `next` takes. No I/O; time is an argument.
//!
//! Invariants: nothing is written before there is a complete plan and before the stored objects are known; an
//! unchanged object is not written again; at most one call per object is in progress; of written objects only hashes
//! are kept.

mod announced;
mod config;
mod context;
mod plans;
mod slices;
mod status_record;
mod statuses;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::budget::COMPARE_INTERVAL;
use super::queue::Class;
use super::updates::Updates;
use super::write::{
    Act, Call, Failure, FailureClass, Kind, ListedPlan, ListedSlice, Outcome, Target,
};
use crate::agent_registry::AgentRegistry;
use crate::cluster_state::Shared;
use crate::events::Events;
use config::Config;
use context::Context;
pub(super) use context::Now;
use plans::Plans;
use slices::Slices;
use statuses::Statuses;

/// Time after which no request of a former leader can take effect: API servers end a request after 60 s.
const LATE_WRITE_TIMEOUT: Duration = Duration::from_secs(65);

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Make this call, and report its outcome.
    Call(Box<Call>),
    /// A target was processed without a call. Call `next` again.
    Again,
    /// Nothing is due before this time since the start. Without a time, wait for the next input.
    Wait(Option<Duration>),
}

/// All reconcilers.
#[derive(Debug)]
pub(super) struct Reconcilers {
    context: Context,
    plans: Plans,
    statuses: Statuses,
    slices: Slices,
    config: Config,
    /// Whether there is a complete plan.
    started: bool,
    /// When this controller was elected; `None` if it does not lead, or always leads.
    elected_at: Option<Duration>,
}

impl Reconcilers {
    pub(super) fn new(shared: Shared, registry: Arc<AgentRegistry>) -> Self {
        Self {
            context: Context::new(shared, registry),
            plans: Plans::default(),
            statuses: Statuses::default(),
            slices: Slices::default(),
            config: Config::default(),
            started: false,
            elected_at: None,
        }
    }

    /// Records changes as events.
    pub(super) fn record_events(&mut self, events: Events) {
        self.context.events = events;
    }

    /// Whether this controller leads, as of the last call of [`Self::lead`].
    pub(super) fn leads(&self) -> bool {
        self.context.leads
    }

    /// Starts or stops leading. A new leader lists everything before it writes, because another controller wrote in
    /// between, and once more when no request of that one can take effect any more.
    pub(super) fn lead(&mut self, leads: bool, now: Now) {
        if std::mem::replace(&mut self.context.leads, leads) == leads {
            return;
        }
        self.elected_at = leads.then_some(now.elapsed);
        if leads && self.started {
            self.context.forget_lists();
            self.begin(now);
        }
        if !leads {
            let decided = std::mem::take(&mut self.context.outbox);
            for call in decided {
                if call.target.is_for_all() {
                    self.context.outbox.push_back(call);
                } else {
                    self.not_written(&call);
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
            self.context.look(target, Class::Urgent, now);
        }
    }

    /// Processes new planning results.
    pub(super) fn planned(&mut self, updates: Updates, now: Now) {
        if !self.started {
            self.started = true;
            self.begin(now);
        }
        let context = &mut self.context;
        let mut nodes = updates.nodes;
        self.statuses.entries_planned(updates.entries, context, now);
        if !nodes.is_empty() {
            self.config.settings_planned(context, now);
        }
        let figures = !(updates.services.is_empty() && nodes.is_empty());
        for (id, planned) in &updates.services {
            nodes.extend(self.slices.replace(id, planned.as_ref()));
        }
        nodes.extend(updates.read_again);
        for node in nodes {
            let class = if self.plans.exists(&node) {
                Class::Plan
            } else {
                Class::Urgent
            };
            context.look(Target::Plan(node), class, now);
        }
        // The ProxyConfig decides whether slices are wanted.
        if self.config.is_read() && self.slices.follow_size(context, now) {
            self.plans.sweep(context, now);
        }
        self.slices
            .look_at(updates.services.into_keys(), context, now);
        if figures {
            self.plans.figures_changed(context, now);
        }
    }

    /// Agents of these nodes sent a report.
    pub(super) fn reported(&mut self, nodes: BTreeSet<Arc<str>>, now: Now) {
        for node in nodes {
            self.statuses.reported(&node);
            self.statuses.announce(&node, &self.context, now);
            self.context.look(Target::Status(node), Class::Urgent, now);
        }
    }

    /// What to do next.
    pub(super) fn next(&mut self, now: Now) -> Step {
        let context = &mut self.context;
        if !context.outbox.is_empty() {
            if !context.pace.take(now.elapsed) {
                return Step::Wait(Some(context.pace.ready()));
            }
            if let Some(call) = context.outbox.pop_front() {
                return Step::Call(Box::new(call));
            }
        }
        let Some((target, class)) = context.queue.take(now.elapsed) else {
            return Step::Wait(context.queue.next_due());
        };
        if !context.leads && !target.is_for_all() {
            // Only the leader writes this target. A new leader lists everything first.
            return Step::Again;
        }
        let paused = context.pauses.until(target.kind());
        if now.elapsed < paused {
            context.queue.push(target, class, paused);
            return Step::Again;
        }
        self.reconcile(target, now);
        Step::Again
    }

    fn reconcile(&mut self, target: Target, now: Now) {
        let Self {
            context,
            plans,
            statuses,
            slices,
            config,
            ..
        } = self;
        match target {
            Target::Listing(kind) => context.list(kind, now),
            Target::Config => config.reconcile(context, now),
            Target::Plan(node) => {
                plans.reconcile(&node, config, slices, context, now);
                if plans.has(&node) {
                    statuses.add(&node, now);
                } else {
                    statuses.remove(&node);
                }
            }
            Target::Status(node) => statuses.reconcile(&node, plans, context, now),
            // The ProxyConfig decides whether slices are wanted.
            Target::Bucket(bucket) if config.is_read() => slices.reconcile(bucket, context, now),
            Target::Bucket(_) => {}
            Target::Sweep => plans.sweep(context, now),
        }
    }

    /// Processes the outcome of a call.
    pub(super) fn done(&mut self, call: &Call, outcome: Outcome, now: Now) {
        let Self {
            context,
            plans,
            statuses,
            slices,
            config,
            ..
        } = self;
        match outcome {
            Outcome::Failed(failure) => return self.failed(call, &failure, now),
            Outcome::Abandoned => {
                self.not_written(call);
                // If it leads again at once, it has to list everything: the write may have taken effect or not.
                return self.lead(false, now);
            }
            Outcome::Done => match &call.act {
                Act::ApplyPlan(_) => plans.written(&call.name, context, now),
                Act::ApplyStatus(_) => statuses.written(&call.name, context, now),
                Act::ApplySlice(_) => slices.written(&call.target, &call.name),
                Act::ApplyConfigStatus(_) => config.status_written(now),
                Act::Create => {
                    config.not_read();
                    context.look(Target::Config, Class::Urgent, now);
                }
                Act::Delete if call.kind == Kind::Slice => {
                    slices.deleted(&call.target, &call.name);
                }
                Act::Delete => plans.deleted(&call.name, context, now),
                Act::List | Act::Read => {}
            },
            Outcome::Config(found) => {
                config.answered(found.as_deref(), plans, slices, context, now);
            }
            Outcome::Heartbeat(heartbeat) => {
                statuses.heartbeat_read(&call.name, heartbeat, context, now);
            }
            Outcome::Plans(plans) => self.plans_listed(plans, now),
            Outcome::Slices(slices) => self.slices_listed(slices, now),
        }
        if self.context.pauses.succeeded(call.kind, &call.target) {
            info!(
                "the API server accepts reads and writes of {} again",
                call.kind
            );
        }
    }

    fn plans_listed(&mut self, listed: Vec<ListedPlan>, now: Now) {
        let context = &mut self.context;
        let since = context.listing_since(Kind::Plan);
        self.plans.listed(&listed, since);
        self.statuses.listed(listed, since, now);
        let class = if context.listed(Kind::Plan) {
            Class::Plan
        } else {
            Class::Background
        };
        self.plans.look_at_all(class, context, now);
        let known = context.shared.read();
        let exists = |node: &str| known.planner.node(node).is_some();
        context.registry.forget_except(exists);
        self.statuses.forget_gone(&known);
        drop(known);
        self.list_again(Kind::Plan, now);
    }

    fn slices_listed(&mut self, listed: Vec<ListedSlice>, now: Now) {
        let context = &mut self.context;
        self.slices.listed(listed, &self.plans, context, now);
        if context.listed(Kind::Slice) {
            self.plans.sweep(context, now);
        }
        self.list_again(Kind::Slice, now);
    }

    /// Lists all objects of a kind periodically, to repair changes that others made.
    fn list_again(&mut self, kind: Kind, now: Now) {
        let listing = Target::Listing(kind);
        // A list that began before the end of late writes may lack them, however long it took.
        let began = self.context.listing_since(kind);
        let is_new = |elected_at: Duration| began < elected_at + LATE_WRITE_TIMEOUT;
        let interval = if self.elected_at.is_some_and(is_new) {
            LATE_WRITE_TIMEOUT
        } else {
            COMPARE_INTERVAL
        };
        self.context
            .look_after(listing, Class::Background, interval, now);
    }

    fn failed(&mut self, call: &Call, failure: &Failure, now: Now) {
        let pauses = &mut self.context.pauses;
        let (again, is_new) = pauses.failed(call.kind, &call.target, failure.class, now.elapsed);
        if is_new {
            let next = failure.class.next_step();
            let next = next.map_or_else(String::new, |next| format!("; {next}"));
            warn!("{call}: {}{next}; retrying", failure.text);
        }
        self.not_written(call);
        match failure.class {
            FailureClass::NoSuchObject if call.kind == Kind::Plan => {
                self.plans.vanished(&call.name);
                let plan = Target::Plan(call.name.as_str().into());
                self.context.queue.push(plan, Class::Urgent, again);
            }
            // Deleting a CRD deletes all its objects, so list them again.
            FailureClass::NoSuchKind if call.kind != Kind::Config => {
                let listing = Target::Listing(call.kind);
                self.context.queue.push(listing, Class::Urgent, again);
            }
            _ => {}
        }
        // Pending calls of a paused kind would fail, too.
        let waiting = std::mem::take(&mut self.context.outbox);
        for other in waiting {
            if now.elapsed < self.context.pauses.until(other.kind) {
                self.not_written(&other);
                self.context.queue.push(other.target, Class::Plan, again);
            } else {
                self.context.outbox.push_back(other);
            }
        }
        let target = call.target.clone();
        self.context.queue.push(target, Class::Plan, again);
    }

    /// Discards the pending state of a call that did not succeed.
    fn not_written(&mut self, call: &Call) {
        match &call.act {
            Act::ApplyPlan(_) => self.plans.not_written(&call.name),
            Act::ApplyStatus(_) => self.statuses.not_written(&call.name),
            Act::ApplySlice(_) => self.slices.not_written(&call.target, &call.name),
            Act::ApplyConfigStatus(_) => self.config.status_not_written(),
            Act::Delete if call.kind == Kind::Slice => {
                self.slices.not_written(&call.target, &call.name);
            }
            Act::Delete => self.plans.not_deleted(&call.name),
            Act::List | Act::Read | Act::Create => match &call.target {
                Target::Config => self.config.not_read(),
                Target::Status(node) => self.statuses.reported(node),
                _ => {}
            },
        }
    }
}
