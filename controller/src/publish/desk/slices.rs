//! Slices: those that nodes share, by bucket, and those of one node.

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_crds::{self as crds, SharedSlices};

use super::{Desk, Now};
use crate::publish::budget::plan_interval;
use crate::publish::content::ContentHash;
use crate::publish::queue::Class;
use crate::publish::slices::bucket_slices;
use crate::publish::write::{Act, Kind, Target};

/// Up to how many Services Auto writes shared slices, and down to how many it begins to again.
const AUTO: usize = 2000;
const AUTO_AGAIN: usize = 1800;

/// When to look again at something that cannot be decided now.
const SOON: Duration = Duration::from_secs(1);

/// What is in the store of a slice.
#[derive(Debug, Default)]
pub(super) struct SliceRecord {
    written: Option<ContentHash>,
    /// What a call under way leads to.
    pending: Option<ContentHash>,
    /// A call under way deletes it.
    leaving: bool,
}

impl SliceRecord {
    /// Whether a call about it is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.leaving || self.pending.is_some()
    }

    /// What a listing says; a call under way knows better.
    pub(super) fn listed(&mut self, content: ContentHash) {
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
        (SharedSlices::Auto, None | Some(true)) => services <= AUTO,
        (SharedSlices::Auto, Some(false)) => services <= AUTO_AGAIN,
    }
}

impl Desk {
    /// Begins or ends to write shared slices when the cluster grows or the ProxyConfig changes.
    pub(super) fn follow_size(&mut self, now: Now) {
        if !self.config.is_read() {
            // Nobody knows whether they are wanted.
            return;
        }
        let on = slices_on(self.sharing, self.slices_on, self.catalog.len());
        if self.slices_on.replace(on) != Some(on) {
            self.look_at_all_buckets(now);
            self.sweep(now);
        }
    }

    pub(super) fn writes_slices(&self) -> bool {
        self.slices_on == Some(true)
    }

    /// Whether calls about slices of a bucket or a node are under way.
    pub(super) fn slices_busy(&self, target: &Target) -> bool {
        let held = self.slices.get(target);
        held.is_some_and(|held| held.values().any(SliceRecord::is_busy))
    }

    pub(super) fn look_at_all_buckets(&mut self, now: Now) {
        for bucket in 0..=u8::MAX {
            self.look(Target::Bucket(bucket), Class::Shared, now);
        }
    }

    pub(super) fn look_at_bucket(&mut self, bucket: u8, now: Now) {
        if !self.listed.contains(&Kind::Slice) || !self.config.is_read() {
            return;
        }
        let target = Target::Bucket(bucket);
        if self.slices_busy(&target) {
            return self.queue.push(target, Class::Shared, now.elapsed + SOON);
        }
        let wanted = if self.writes_slices() {
            let services = self.catalog.bucket(bucket);
            bucket_slices(bucket, services).into_iter().collect()
        } else {
            Vec::new()
        };
        if !self.slices_differ(&target, &wanted) {
            return;
        }
        let interval = plan_interval(0, self.per_second);
        if let Some(last) = self.bucket_written.get(&bucket)
            && now.elapsed < *last + interval
        {
            let due = *last + interval;
            return self.queue.push(target, Class::Shared, due);
        }
        self.bucket_written.insert(bucket, now.elapsed);
        self.write_slices(&target, wanted);
    }

    /// Whether the slices of a bucket or a node are not all as wanted.
    pub(super) fn slices_differ(
        &self,
        target: &Target,
        wanted: &[(String, crds::ProxyPlanSliceSpec)],
    ) -> bool {
        let held = self.slices.get(target);
        let holds = |name: &String, slice: &crds::ProxyPlanSliceSpec| {
            let record = held.and_then(|held| held.get(name));
            record.is_some_and(|record| record.written == Some(ContentHash::of(slice)))
        };
        let count = held.map_or(0, BTreeMap::len);
        count != wanted.len() || !wanted.iter().all(|(name, slice)| holds(name, slice))
    }

    /// Writes those that differ, and deletes what is not wanted. No call about them is under way.
    pub(super) fn write_slices(
        &mut self,
        target: &Target,
        wanted: Vec<(String, crds::ProxyPlanSliceSpec)>,
    ) {
        let held = self.slices.entry(target.clone()).or_default();
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
            self.slices.remove(target);
        }
        for (name, act) in calls {
            self.issue(target.clone(), Kind::Slice, &name, act);
        }
    }

    pub(super) fn slice_written(&mut self, target: &Target, name: &str) {
        if let Some(record) = self.slices.get_mut(target).and_then(|s| s.get_mut(name)) {
            record.written = record.pending.take();
        }
    }

    pub(super) fn slice_not_written(&mut self, target: &Target, name: &str) {
        let Some(slices) = self.slices.get_mut(target) else {
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

    pub(super) fn slice_gone(&mut self, target: &Target, name: &str) {
        if let Some(slices) = self.slices.get_mut(target) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(target);
            }
        }
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
