//! What is in the store already: read at the start and compared from time to time, so that nothing is
//! written twice and what others change is put right.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::plans::PlanRecord;
use super::slices::SliceRecord;
use super::{Desk, Now};
use crate::publish::budget::COMPARE;
use crate::publish::queue::Class;
use crate::publish::write::{Kind, ListedPlan, ListedSlice, Target};

impl Desk {
    pub(super) fn plans_listed(&mut self, plans: Vec<ListedPlan>, now: Now) {
        let since = self.listing_since(Kind::Plan);
        let mut present = BTreeSet::new();
        for plan in plans {
            let record = self.plans.entry(plan.node.clone());
            let record = record.or_insert_with(|| PlanRecord::new(now));
            record.listed(Some(plan.content), since);
            record
                .status_mut()
                .listed(plan.previous, plan.heartbeat, since);
            present.insert(plan.node);
        }
        for (node, record) in &mut self.plans {
            if !present.contains(node) {
                record.listed(None, since);
            }
        }
        let first = self.listed.insert(Kind::Plan);
        let class = if first {
            Class::Plan
        } else {
            Class::Background
        };
        self.look_at_all_plans(class, now);
        let shared = self.shared.clone();
        let known = shared.read();
        self.board
            .forget_except(|node| known.planner.node(node).is_some());
        self.given
            .retain(|node, _| known.planner.node(node).is_some());
        self.list_again(Kind::Plan, now);
    }

    /// Looks at all plans that there are or should be, and at their statuses.
    pub(super) fn look_at_all_plans(&mut self, class: Class, now: Now) {
        let nodes: Vec<Arc<str>> = self.shared.read().planner.nodes().keys().cloned().collect();
        for node in nodes {
            let exists = self.plans.get(&node).is_some_and(PlanRecord::exists);
            let class = if exists { class } else { Class::Urgent };
            self.look(Target::Plan(node), class, now);
        }
        let written: Vec<Arc<str>> = self.plans.keys().cloned().collect();
        for node in written {
            self.look(Target::Plan(node.clone()), class, now);
            self.look(Target::Status(node), Class::Background, now);
        }
    }

    pub(super) fn slices_listed(&mut self, slices: Vec<ListedSlice>, now: Now) {
        let since = self.listing_since(Kind::Slice);
        let mut present = BTreeSet::new();
        for slice in slices {
            if self.is_newer(&slice.owner, since) {
                continue;
            }
            let held = self.slices.entry(slice.owner.clone()).or_default();
            let record = held.entry(slice.name.clone()).or_default();
            record.listed(slice.content);
            present.insert((slice.owner, slice.name));
        }
        let owners: Vec<Target> = self.slices.keys().cloned().collect();
        for owner in owners {
            if self.is_newer(&owner, since) {
                continue;
            }
            let Some(held) = self.slices.get_mut(&owner) else {
                continue;
            };
            let stays = |name: &String, record: &mut SliceRecord| {
                record.is_busy() || present.contains(&(owner.clone(), name.clone()))
            };
            held.retain(stays);
            if let Target::Plan(_) = &owner {
                self.look(owner, Class::Background, now);
            }
        }
        self.slices.retain(|_, held| !held.is_empty());
        if self.listed.insert(Kind::Slice) {
            self.sweep(now);
        }
        self.look_at_all_buckets(now);
        self.list_again(Kind::Slice, now);
    }

    /// Whether slices were written after a listing began.
    fn is_newer(&self, owner: &Target, since: Duration) -> bool {
        let written = match owner {
            Target::Bucket(bucket) => self.bucket_written.get(bucket).copied(),
            Target::Plan(node) => self.plans.get(node).and_then(PlanRecord::written_at),
            _ => None,
        };
        written.is_some_and(|written| written >= since)
    }

    fn list_again(&mut self, kind: Kind, now: Now) {
        let due = now.elapsed + COMPARE;
        self.queue
            .push(Target::Listing(kind), Class::Background, due);
    }

    fn listing_since(&self, kind: Kind) -> Duration {
        self.listing_since.get(&kind).copied().unwrap_or_default()
    }
}
