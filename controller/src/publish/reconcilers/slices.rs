//! Reconciles ProxyPlanSlices: those that nodes share, by bucket, and those of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_crds::{self as crds, SharedSlices};
use portolan_plan::ServiceId;
use portolan_planner::PlannedService;

use super::context::{Context, Now, RETRY_DELAY};
use super::plans::Plans;
use crate::publish::catalog::Catalog;
use crate::publish::content::ContentHash;
use crate::publish::queue::Class;
use crate::publish::slices::{bucket, bucket_slices};
use crate::publish::write::{Act, Kind, ListedSlice, Target};

/// Maximum number of Services for which `Auto` writes shared slices.
const AUTO_MAX_SERVICES: usize = 2000;
/// Maximum number of Services for which `Auto` resumes after it stopped. It is lower, so that a cluster near the
/// limit does not alternate.
const AUTO_RESUME_SERVICES: usize = 1800;

/// Slices of all buckets and nodes.
#[derive(Debug, Default)]
pub(super) struct Slices {
    catalog: Catalog,
    records: BTreeMap<Target, BTreeMap<String, SliceRecord>>,
    bucket_written: BTreeMap<u8, Duration>,
    sharing: SharedSlices,
    /// Whether shared slices are written; `None` before that is decided.
    on: Option<bool>,
}

/// The stored slice, as far as it is known.
#[derive(Debug, Default)]
struct SliceRecord {
    written: Option<ContentHash>,
    /// The result of the call in progress, if it succeeds.
    pending: Option<ContentHash>,
    /// Whether a call in progress deletes it.
    leaving: bool,
}

impl SliceRecord {
    /// Whether a call about it is in progress.
    fn is_busy(&self) -> bool {
        self.leaving || self.pending.is_some()
    }

    /// Takes the content from a list, unless a call is in progress.
    fn listed(&mut self, content: ContentHash) {
        if !self.is_busy() {
            self.written = Some(content);
        }
    }
}

/// Whether shared slices are written in a cluster of this size.
fn slices_on(sharing: SharedSlices, were_on: Option<bool>, services: usize) -> bool {
    match (sharing, were_on) {
        (SharedSlices::Always, _) => true,
        (SharedSlices::Never, _) => false,
        (SharedSlices::Auto, None | Some(true)) => services <= AUTO_MAX_SERVICES,
        (SharedSlices::Auto, Some(false)) => services <= AUTO_RESUME_SERVICES,
    }
}

impl Slices {
    /// Takes the new plan of a Service. Returns the nodes whose ProxyPlans show the difference.
    pub(super) fn replace(
        &mut self,
        id: &ServiceId,
        planned: Option<&Arc<PlannedService>>,
    ) -> BTreeSet<Arc<str>> {
        self.catalog.replace(id, planned)
    }

    /// Sets whether shared slices are wanted.
    pub(super) fn set_sharing(&mut self, sharing: SharedSlices) {
        self.sharing = sharing;
    }

    /// Starts or stops writing shared slices when the size of the cluster or the ProxyConfig changes. Returns whether
    /// it did.
    pub(super) fn follow_size(&mut self, context: &mut Context, now: Now) -> bool {
        let on = slices_on(self.sharing, self.on, self.catalog.len());
        let changed = self.on.replace(on) != Some(on);
        if changed {
            self.look_at_all_buckets(context, now);
        }
        changed
    }

    pub(super) fn are_written(&self) -> bool {
        self.on == Some(true)
    }

    /// Whether calls about slices of a bucket or a node are in progress.
    pub(super) fn are_busy(&self, target: &Target) -> bool {
        let held = self.records.get(target);
        held.is_some_and(|held| held.values().any(SliceRecord::is_busy))
    }

    /// Queues the buckets of these Services.
    pub(super) fn look_at(
        &self,
        services: impl Iterator<Item = ServiceId>,
        context: &mut Context,
        now: Now,
    ) {
        if self.are_written() {
            let buckets: BTreeSet<u8> = services.map(|id| bucket(&id)).collect();
            for bucket in buckets {
                context.look(Target::Bucket(bucket), Class::Shared, now);
            }
        }
    }

    fn look_at_all_buckets(&self, context: &mut Context, now: Now) {
        for bucket in 0..=u8::MAX {
            context.look(Target::Bucket(bucket), Class::Shared, now);
        }
    }

    /// Reconciles the slices of a bucket. Requires that the ProxyConfig was read.
    pub(super) fn reconcile(&mut self, bucket: u8, context: &mut Context, now: Now) {
        if !context.is_listed(Kind::Slice) {
            return;
        }
        let target = Target::Bucket(bucket);
        if self.are_busy(&target) {
            return context.look_after(target, Class::Shared, RETRY_DELAY, now);
        }
        let wanted = if self.are_written() {
            let services = self.catalog.bucket(bucket);
            bucket_slices(bucket, services).into_iter().collect()
        } else {
            Vec::new()
        };
        if !self.differ(&target, &wanted) {
            return;
        }
        if let Some(last) = self.bucket_written.get(&bucket) {
            let due = *last + context.plan_interval(0);
            if now.elapsed < due {
                return context.queue.push(target, Class::Shared, due);
            }
        }
        self.bucket_written.insert(bucket, now.elapsed);
        self.write(&target, wanted, context);
    }

    /// Whether any slice of a bucket or a node differs from the wanted one.
    pub(super) fn differ(
        &self,
        target: &Target,
        wanted: &[(String, crds::ProxyPlanSliceSpec)],
    ) -> bool {
        let held = self.records.get(target);
        let holds = |name: &String, slice: &crds::ProxyPlanSliceSpec| {
            let record = held.and_then(|held| held.get(name));
            record.is_some_and(|record| record.written == Some(ContentHash::of(slice)))
        };
        let count = held.map_or(0, BTreeMap::len);
        count != wanted.len() || !wanted.iter().all(|(name, slice)| holds(name, slice))
    }

    /// Writes slices that differ, and deletes unwanted ones. Requires that no call about them is in progress.
    pub(super) fn write(
        &mut self,
        target: &Target,
        wanted: Vec<(String, crds::ProxyPlanSliceSpec)>,
        context: &mut Context,
    ) {
        let held = self.records.entry(target.clone()).or_default();
        let mut calls = Vec::new();
        for (name, record) in held.iter_mut() {
            if !wanted.iter().any(|(wanted, _)| wanted == name) {
                record.leaving = true;
                calls.push((name.clone(), Act::Delete));
            }
        }
        for (name, slice) in wanted {
            let content = ContentHash::of(&slice);
            let record = held.entry(name.clone()).or_default();
            if record.written != Some(content) {
                record.pending = Some(content);
                calls.push((name, Act::ApplySlice(Box::new(slice))));
            }
        }
        if held.is_empty() {
            self.records.remove(target);
        }
        for (name, act) in calls {
            context.issue(target.clone(), Kind::Slice, &name, act);
        }
    }

    pub(super) fn written(&mut self, target: &Target, name: &str) {
        if let Some(record) = self.records.get_mut(target).and_then(|s| s.get_mut(name)) {
            record.written = record.pending.take();
        }
    }

    pub(super) fn not_written(&mut self, target: &Target, name: &str) {
        let Some(slices) = self.records.get_mut(target) else {
            return;
        };
        if let Some(record) = slices.get_mut(name) {
            record.pending = None;
            record.leaving = false;
            if record.written.is_none() {
                slices.remove(name);
            }
        }
        if let Target::Bucket(bucket) = target {
            // The next attempt is paced by its back-off.
            self.bucket_written.remove(bucket);
        }
    }

    pub(super) fn deleted(&mut self, target: &Target, name: &str) {
        if let Some(slices) = self.records.get_mut(target) {
            slices.remove(name);
            if slices.is_empty() {
                self.records.remove(target);
            }
        }
    }

    /// Processes a list of all slices. `plans` has the times at which the plans of nodes were written.
    pub(super) fn listed(
        &mut self,
        slices: Vec<ListedSlice>,
        plans: &Plans,
        context: &mut Context,
        now: Now,
    ) {
        let since = context.listing_since(Kind::Slice);
        let mut present = BTreeSet::new();
        for slice in slices {
            if self.is_newer(&slice.owner, plans, since) {
                continue;
            }
            let held = self.records.entry(slice.owner.clone()).or_default();
            let record = held.entry(slice.name.clone()).or_default();
            record.listed(slice.content);
            present.insert((slice.owner, slice.name));
        }
        let owners: Vec<Target> = self.records.keys().cloned().collect();
        for owner in owners {
            if self.is_newer(&owner, plans, since) {
                continue;
            }
            let Some(held) = self.records.get_mut(&owner) else {
                continue;
            };
            let stays = |name: &String, record: &mut SliceRecord| {
                record.is_busy() || present.contains(&(owner.clone(), name.clone()))
            };
            held.retain(stays);
            if let Target::Plan(_) = &owner {
                context.look(owner, Class::Background, now);
            }
        }
        self.records.retain(|_, held| !held.is_empty());
        self.look_at_all_buckets(context, now);
    }

    /// Whether slices were written after a list began.
    fn is_newer(&self, owner: &Target, plans: &Plans, since: Duration) -> bool {
        let written = match owner {
            Target::Bucket(bucket) => self.bucket_written.get(bucket).copied(),
            Target::Plan(node) => plans.written_at(node),
            _ => None,
        };
        written.is_some_and(|written| written >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_at_the_limit_does_not_swing_between_on_and_off() {
        let auto = |were_on, services| slices_on(SharedSlices::Auto, were_on, services);
        assert!(auto(None, 2000) && !auto(None, 2001));
        assert!(auto(Some(true), 2000) && !auto(Some(true), 2001));
        assert!(auto(Some(false), 1800) && !auto(Some(false), 1801));
        assert!(slices_on(SharedSlices::Always, Some(false), 100_000));
        assert!(!slices_on(SharedSlices::Never, Some(true), 1));
    }
}
