//! Plans of nodes: what is written of them, and when.

use std::sync::Arc;
use std::time::Duration;

use portolan_crds as crds;
use portolan_planner::Strays;
use tracing::debug;

use super::statuses::StatusRecord;
use super::{Desk, Now};
use crate::publish::budget::FIGURES;
use crate::publish::figures::Figures;
use crate::publish::plan::{PlanContent, proxy_plan_spec};
use crate::publish::queue::Class;
use crate::publish::slices::name;
use crate::publish::write::{Act, Call, Kind, Target};

/// The shortest time between two counts of the whole cluster, and from how many Services on it is
/// longer.
const COUNTING: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
const MANY_SERVICES: usize = 2000;

/// When to look again at something that cannot be decided now.
const SOON: Duration = Duration::from_secs(1);

/// How long plans wait for the generation of settings that changed.
const GENERATION: Duration = Duration::from_secs(10);

/// What is in the store of a node's plan.
#[derive(Debug)]
pub(super) struct PlanRecord {
    written: Option<PlanContent>,
    /// What a call under way leads to.
    pending: Option<PlanContent>,
    /// A call under way deletes it.
    leaving: bool,
    written_at: Option<Duration>,
    pub(super) status: StatusRecord,
}

impl PlanRecord {
    pub(super) fn new(now: Now) -> Self {
        Self {
            written: None,
            pending: None,
            leaving: false,
            written_at: None,
            status: StatusRecord::new(now.wall),
        }
    }

    /// Whether there is a plan in the store, as far as is known.
    pub(super) fn exists(&self) -> bool {
        self.written.is_some() && !self.leaving
    }

    pub(super) fn written_at(&self) -> Option<Duration> {
        self.written_at
    }

    pub(super) fn status_mut(&mut self) -> &mut StatusRecord {
        &mut self.status
    }

    fn is_busy(&self) -> bool {
        self.leaving || self.pending.is_some()
    }

    /// What a listing says; a call that was made meanwhile knows better.
    pub(super) fn listed(&mut self, content: Option<PlanContent>, since: Duration) {
        if !self.is_busy() && self.written_at.is_none_or(|at| at < since) {
            self.written = content;
        }
    }
}

impl Desk {
    pub(super) fn look_at_plan(&mut self, node: &Arc<str>, now: Now) {
        if !self.listed.contains(&Kind::Plan) {
            return;
        }
        let target = Target::Plan(node.clone());
        let busy = self.plans.get(node).is_some_and(PlanRecord::is_busy);
        if busy || self.slices_busy(&target) {
            return self.queue.push(target, Class::Plan, now.elapsed + SOON);
        }
        let known = self.shared.read().planner.node(node).cloned();
        let Some(entry) = known else {
            return self.remove_plan(node);
        };
        let record = self.plans.entry(node.clone());
        let record = record.or_insert_with(|| PlanRecord::new(now));
        let is_new = !record.exists();
        let class = if is_new { Class::Urgent } else { Class::Plan };
        let is_numbered = self
            .shared
            .read()
            .planner
            .model()
            .revision_of(node)
            .is_some();
        let waits = self
            .config
            .awaits_settings(&entry.settings, &self.revision, now, GENERATION);
        if waits && !is_numbered {
            return self.queue.push(target, class, now.elapsed + SOON);
        }
        if let Some(later) = self.count(now) {
            return self.queue.push(target, class, later);
        }
        let slices = self.writes_slices() && self.listed.contains(&Kind::Slice);
        let known = self.shared.read();
        let objects = proxy_plan_spec(&known, &self.figures, &self.revision, slices, node);
        drop(known);
        let Some(objects) = objects else {
            return self.look(target, Class::Plan, now);
        };
        let overflow = overflow_of(objects.overflow);
        let slices_differ = self.slices_differ(&target, &overflow);
        let content = PlanContent::of(&objects.plan);
        let earliest = self.earliest(node, content, slices_differ);
        match earliest {
            None => {}
            Some(earliest) if now.elapsed < earliest => {
                self.queue.push(target, Class::Background, earliest);
            }
            Some(_) => {
                self.write_plan(node, objects.plan, content, now);
                self.write_slices(&target, overflow);
            }
        }
    }

    /// When a plan may be written; `None` when it is in the store already.
    fn earliest(
        &self,
        node: &Arc<str>,
        content: PlanContent,
        slices_differ: bool,
    ) -> Option<Duration> {
        let record = self.plans.get(node)?;
        let Some(written) = record.written else {
            return Some(Duration::ZERO);
        };
        let last = record.written_at;
        let after = |interval| last.map_or(Duration::ZERO, |last| last + interval);
        if written.particular != content.particular || slices_differ {
            Some(after(self.plan_interval()))
        } else if written.whole != content.whole {
            Some(after(self.plan_interval().max(FIGURES)))
        } else {
            None
        }
    }

    fn write_plan(
        &mut self,
        node: &Arc<str>,
        spec: crds::ProxyPlanSpec,
        content: PlanContent,
        now: Now,
    ) {
        let Some(record) = self.plans.get_mut(node) else {
            return;
        };
        record.written_at = Some(now.elapsed);
        if record.written != Some(content) {
            record.pending = Some(content);
            let target = Target::Plan(node.clone());
            self.issue(target, Kind::Plan, node, Act::ApplyPlan(Box::new(spec)));
        }
    }

    pub(super) fn plan_written(&mut self, node: &str, now: Now) {
        let Some((name, record)) = self.plans.get_key_value(node) else {
            return;
        };
        let (name, first) = (name.clone(), !record.exists());
        if let Some(record) = self.plans.get_mut(node) {
            record.written = record.pending.take();
            record.written_at = Some(now.elapsed);
        }
        if first {
            self.look(Target::Status(name), Class::Urgent, now);
        }
    }

    pub(super) fn plan_not_written(&mut self, node: &str) {
        if let Some(record) = self.plans.get_mut(node) {
            record.pending = None;
            // The next attempt is paced by its back-off.
            record.written_at = None;
        }
    }

    /// The plan was there and is not any more.
    pub(super) fn plan_vanished(&mut self, node: &str) {
        if let Some(record) = self.plans.get_mut(node) {
            record.written = None;
        }
    }

    fn remove_plan(&mut self, node: &Arc<str>) {
        let target = Target::Plan(node.clone());
        self.write_slices(&target, Vec::new());
        let Some(record) = self.plans.get_mut(node) else {
            return;
        };
        if record.exists() {
            debug!(%node, "its Node is gone");
            record.leaving = true;
            self.issue(target, Kind::Plan, node, Act::Delete);
        } else {
            self.plans.remove(node);
            self.pauses.forget(&target);
            self.pauses.forget(&Target::Status(node.clone()));
        }
    }

    pub(super) fn deleted(&mut self, call: &Call, now: Now) {
        if call.kind == Kind::Slice {
            return self.slice_gone(&call.target, &call.name);
        }
        if let Some(record) = self.plans.get_mut(&*call.name) {
            record.leaving = false;
            record.written = None;
        }
        // The Node may have come back meanwhile; if not, nothing is remembered of it.
        self.look(call.target.clone(), Class::Plan, now);
    }

    pub(super) fn not_deleted(&mut self, call: &Call) {
        if call.kind == Kind::Slice {
            return self.slice_not_written(&call.target, &call.name);
        }
        if let Some(record) = self.plans.get_mut(&*call.name) {
            record.leaving = false;
        }
    }

    /// Looks at all plans, because figures changed that are in each.
    pub(super) fn sweep(&mut self, now: Now) {
        self.swept = now.elapsed;
        let nodes: Vec<_> = self.plans.keys().cloned().collect();
        for node in nodes {
            self.look(Target::Plan(node), Class::Background, now);
        }
    }

    /// Counts the cluster again if something changed; when to ask again if that is too early.
    fn count(&mut self, now: Now) -> Option<Duration> {
        if !self.figures_stale {
            return None;
        }
        let pause = COUNTING[usize::from(self.catalog.len() > MANY_SERVICES)];
        if let Some(counted) = self.figures_counted
            && now.elapsed < counted + pause
        {
            return Some(counted + pause);
        }
        self.figures = self.counted();
        self.figures_counted = Some(now.elapsed);
        self.figures_stale = false;
        None
    }

    /// Endpoints outside the ranges of their nodes; planning is held up while it is seen which there are.
    pub(super) fn strays(&self) -> Strays {
        let known = self.shared.read();
        let nodes = known.planner.nodes().clone();
        let slices: Vec<_> = known.planner.model().slices().cloned().collect();
        drop(known);
        Strays::among(&nodes, slices.iter())
    }

    /// In pieces, so that planning is held up for moments only.
    fn counted(&self) -> Figures {
        const PIECE: usize = 256;
        let mut figures = Figures::new(self.shared.read().planner.nodes().values());
        let mut last = None;
        loop {
            use std::ops::Bound::{Excluded, Unbounded};
            let known = self.shared.read();
            let start = last.as_ref().map_or(Unbounded, Excluded);
            let services = known.planner.services();
            let piece: Vec<_> = services
                .range((start, Unbounded))
                .take(PIECE)
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
        figures.set_strays(self.strays());
        figures
    }
}

/// The slices of a node's own by name.
fn overflow_of(slices: Vec<crds::ProxyPlanSliceSpec>) -> Vec<(String, crds::ProxyPlanSliceSpec)> {
    let named = slices.into_iter();
    named
        .map(|slice| (name(&slice.scope, slice.bucket, slice.part), slice))
        .collect()
}
