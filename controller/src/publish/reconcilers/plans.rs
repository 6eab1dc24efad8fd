//! Reconciles ProxyPlans: what each contains, and when it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_crds as crds;
use portolan_planner::OutsideRanges;
use tracing::debug;

use super::config::Config;
use super::context::{Context, Now, RETRY_DELAY};
use super::slices::Slices;
use crate::cluster_state::Shared;
use crate::publish::budget::MIN_COUNTS_INTERVAL;
use crate::publish::figures::Figures;
use crate::publish::plan::{PlanContent, proxy_plan_spec};
use crate::publish::queue::Class;
use crate::publish::slices::name;
use crate::publish::write::{Act, Kind, ListedPlan, Target};

/// Minimum interval between two counts of the whole cluster, in a small and in a large one.
const MIN_COUNT_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// A cluster with more Services than this counts as large.
const LARGE_CLUSTER_SERVICES: usize = 2000;

/// Maximum time for which plans wait until the generation of changed settings is known.
const GENERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The plans of all nodes.
#[derive(Debug, Default)]
pub(super) struct Plans {
    records: BTreeMap<Arc<str>, PlanRecord>,
    figures: Figures,
    /// Whether the counts are up to date.
    counted: bool,
    counted_at: Option<Duration>,
    /// When all plans were queued last because counts changed.
    swept: Duration,
}

/// The stored plan of a node, as far as it is known.
#[derive(Debug, Default)]
struct PlanRecord {
    written: Option<PlanContent>,
    /// The result of the call in progress, if it succeeds.
    pending: Option<PlanContent>,
    /// Whether a call in progress deletes it.
    leaving: bool,
    written_at: Option<Duration>,
}

impl PlanRecord {
    /// Whether the plan is stored, as far as is known.
    fn exists(&self) -> bool {
        self.written.is_some() && !self.leaving
    }

    fn is_busy(&self) -> bool {
        self.leaving || self.pending.is_some()
    }

    /// Takes the content from a list, unless a later call is more recent.
    fn listed(&mut self, content: Option<PlanContent>, since: Duration) {
        if !self.is_busy() && self.written_at.is_none_or(|at| at < since) {
            self.written = content;
        }
    }
}

impl Plans {
    /// Whether a node has a plan in the store, as far as is known.
    pub(super) fn exists(&self, node: &str) -> bool {
        self.records.get(node).is_some_and(PlanRecord::exists)
    }

    /// Whether there is a record of the plan of a node.
    pub(super) fn has(&self, node: &str) -> bool {
        self.records.contains_key(node)
    }

    /// When the plan of a node was written last.
    pub(super) fn written_at(&self, node: &str) -> Option<Duration> {
        self.records.get(node)?.written_at
    }

    /// Number of nodes that have a plan, or had one.
    pub(super) fn total(&self) -> usize {
        self.records.len()
    }

    /// Nodes that have a plan, or had one.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.records.keys()
    }

    pub(super) fn reconcile(
        &mut self,
        node: &Arc<str>,
        config: &Config,
        slices: &mut Slices,
        context: &mut Context,
        now: Now,
    ) {
        if !context.is_listed(Kind::Plan) {
            return;
        }
        let target = Target::Plan(node.clone());
        let busy = self.records.get(node).is_some_and(PlanRecord::is_busy);
        if busy || slices.are_busy(&target) {
            return context.look_after(target, Class::Plan, RETRY_DELAY, now);
        }
        let known = context.shared.read().planner.node(node).cloned();
        let Some(entry) = known else {
            return self.remove(node, slices, context);
        };
        let is_new = !self.records.entry(node.clone()).or_default().exists();
        let class = if is_new { Class::Urgent } else { Class::Plan };
        let known = context.shared.read();
        let is_numbered = known.planner.model().revision_of(node).is_some();
        drop(known);
        if !is_numbered && config.awaits_settings(&entry.settings, now, GENERATION_TIMEOUT) {
            return context.look_after(target, class, RETRY_DELAY, now);
        }
        if let Some(later) = self.count(&context.shared, now) {
            return context.queue.push(target, class, later);
        }
        let with_slices = slices.are_written() && context.is_listed(Kind::Slice);
        let known = context.shared.read();
        let objects = proxy_plan_spec(&known, &self.figures, config.revision(), with_slices, node);
        drop(known);
        let Some(objects) = objects else {
            return context.look(target, Class::Plan, now);
        };
        let overflow = overflow_of(objects.overflow);
        let slices_differ = slices.differ(&target, &overflow);
        let content = PlanContent::of(&objects.plan);
        match self.earliest(node, content, slices_differ, context) {
            None => {}
            Some(earliest) if now.elapsed < earliest => {
                context.queue.push(target, Class::Background, earliest);
            }
            Some(_) => {
                self.write(node, objects.plan, content, context, now);
                slices.write(&target, overflow, context);
            }
        }
    }

    /// When a plan may be written; `None` if the stored plan is up to date.
    fn earliest(
        &self,
        node: &Arc<str>,
        content: PlanContent,
        slices_differ: bool,
        context: &Context,
    ) -> Option<Duration> {
        let record = self.records.get(node)?;
        let Some(written) = record.written else {
            return Some(Duration::ZERO);
        };
        let last = record.written_at;
        let after = |interval| last.map_or(Duration::ZERO, |last| last + interval);
        let interval = context.plan_interval(self.records.len());
        if written.particular != content.particular || slices_differ {
            Some(after(interval))
        } else if written.whole != content.whole {
            Some(after(interval.max(MIN_COUNTS_INTERVAL)))
        } else {
            None
        }
    }

    fn write(
        &mut self,
        node: &Arc<str>,
        spec: crds::ProxyPlanSpec,
        content: PlanContent,
        context: &mut Context,
        now: Now,
    ) {
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        record.written_at = Some(now.elapsed);
        if record.written != Some(content) {
            record.pending = Some(content);
            let target = Target::Plan(node.clone());
            context.issue(target, Kind::Plan, node, Act::ApplyPlan(Box::new(spec)));
        }
    }

    pub(super) fn written(&mut self, node: &str, context: &mut Context, now: Now) {
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        let first = !record.exists();
        record.written = record.pending.take();
        record.written_at = Some(now.elapsed);
        if first {
            context.look(Target::Status(node.into()), Class::Urgent, now);
        }
    }

    pub(super) fn not_written(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.pending = None;
            // The next attempt is paced by its back-off.
            record.written_at = None;
        }
    }

    /// Records that the plan of a node is not stored any more.
    pub(super) fn vanished(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.written = None;
        }
    }

    fn remove(&mut self, node: &Arc<str>, slices: &mut Slices, context: &mut Context) {
        let target = Target::Plan(node.clone());
        slices.write(&target, Vec::new(), context);
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        if record.exists() {
            debug!(%node, "deleting the ProxyPlan of a deleted Node");
            record.leaving = true;
            context.issue(target, Kind::Plan, node, Act::Delete);
        } else {
            self.records.remove(node);
            context.pauses.forget(&target);
            context.pauses.forget(&Target::Status(node.clone()));
        }
    }

    pub(super) fn deleted(&mut self, node: &str, context: &mut Context, now: Now) {
        if let Some(record) = self.records.get_mut(node) {
            record.leaving = false;
            record.written = None;
        }
        // The Node may exist again; if not, the record is removed.
        context.look(Target::Plan(node.into()), Class::Plan, now);
    }

    pub(super) fn not_deleted(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.leaving = false;
        }
    }

    /// Processes a list of all plans.
    pub(super) fn listed(&mut self, plans: &[ListedPlan], since: Duration) {
        let mut present = BTreeSet::new();
        for plan in plans {
            let record = self.records.entry(plan.node.clone()).or_default();
            record.listed(Some(plan.content), since);
            present.insert(&plan.node);
        }
        for (node, record) in &mut self.records {
            if !present.contains(node) {
                record.listed(None, since);
            }
        }
    }

    /// Queues all plans that exist or should exist, and their statuses.
    pub(super) fn look_at_all(&self, class: Class, context: &mut Context, now: Now) {
        let nodes: Vec<Arc<str>> = context
            .shared
            .read()
            .planner
            .nodes()
            .keys()
            .cloned()
            .collect();
        for node in nodes {
            let class = if self.exists(&node) {
                class
            } else {
                Class::Urgent
            };
            context.look(Target::Plan(node), class, now);
        }
        for node in self.nodes() {
            context.look(Target::Plan(node.clone()), class, now);
            context.look(Target::Status(node.clone()), Class::Background, now);
        }
    }

    /// Records that counts of the cluster changed, which are in each plan.
    pub(super) fn figures_changed(&mut self, context: &mut Context, now: Now) {
        self.counted = false;
        let interval = context.plan_interval(self.records.len());
        let due = now.elapsed.max(self.swept + interval);
        context.queue.push(Target::Sweep, Class::Background, due);
    }

    /// Queues all plans, because counts changed that are in each.
    pub(super) fn sweep(&mut self, context: &mut Context, now: Now) {
        self.swept = now.elapsed;
        for node in self.nodes() {
            context.look(Target::Plan(node.clone()), Class::Background, now);
        }
    }

    /// Counts the cluster again if something changed. Returns when to ask again if that is too early.
    fn count(&mut self, shared: &Shared, now: Now) -> Option<Duration> {
        if self.counted {
            return None;
        }
        let services = shared.read().planner.services().len();
        let pause = MIN_COUNT_INTERVALS[usize::from(services > LARGE_CLUSTER_SERVICES)];
        if let Some(counted_at) = self.counted_at
            && now.elapsed < counted_at + pause
        {
            return Some(counted_at + pause);
        }
        self.figures = counted(shared);
        self.counted_at = Some(now.elapsed);
        self.counted = true;
        None
    }
}

/// Endpoints outside the ranges of their nodes. Planning waits only while the objects are copied.
pub(super) fn outside_ranges(shared: &Shared) -> OutsideRanges {
    let known = shared.read();
    let nodes = known.planner.nodes().clone();
    let slices: Vec<_> = known.planner.model().slices().cloned().collect();
    drop(known);
    OutsideRanges::among(&nodes, slices.iter())
}

/// Counts in chunks, so that planning waits only for moments.
fn counted(shared: &Shared) -> Figures {
    /// Number of Services that are copied under one lock.
    const SERVICES_PER_STEP: usize = 256;
    let mut figures = Figures::new(shared.read().planner.nodes().values());
    let mut last = None;
    loop {
        use std::ops::Bound::{Excluded, Unbounded};
        let known = shared.read();
        let start = last.as_ref().map_or(Unbounded, Excluded);
        let services = known.planner.services();
        let piece: Vec<_> = services
            .range((start, Unbounded))
            .take(SERVICES_PER_STEP)
            .map(|(_, planned)| planned.clone())
            .collect();
        drop(known);
        for planned in &piece {
            figures.add(planned);
        }
        match piece.last() {
            Some(planned) => last = Some(planned.id.clone()),
            None => break,
        }
    }
    figures.set_outside_ranges(outside_ranges(shared));
    figures
}

/// The own slices of a node, by name.
fn overflow_of(slices: Vec<crds::ProxyPlanSliceSpec>) -> Vec<(String, crds::ProxyPlanSliceSpec)> {
    let named = slices.into_iter();
    named
        .map(|slice| (name(&slice.scope, slice.bucket, slice.part), slice))
        .collect()
}
