//! Reconciles statuses of ProxyPlans. When a status is due is decided for each node (`status_record`).
//!
//! The absence of an agent is written only if no other controller writes its status: with several controllers, each
//! has the streams of some agents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::announced::Announced;
use super::context::{Context, Now, RETRY_DELAY};
use super::plans::Plans;
use super::status_record::{Absence, Decision, Pending, StatusRecord, stream_of};
use crate::agent_registry::Delivery;
use crate::cluster_state::ClusterState;
use crate::publish::events;
use crate::publish::previous::Previous;
use crate::publish::queue::Class;
use crate::publish::status::{in_force_since, judge, status};
use crate::publish::updates::PlannedEntry;
use crate::publish::write::{Act, Kind, ListedPlan, Target};
use crate::troubled::ServiceTrouble;

/// Interval between two lists of plans while some are missing, on a controller that is not the leader.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// The statuses of all nodes that have a plan.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    records: BTreeMap<Arc<str>, StatusRecord>,
    /// Node entries and the time at which they were planned.
    entries: BTreeMap<Arc<str>, PlannedEntry>,
    /// What was said about Services.
    announced: Announced,
}

impl Statuses {
    /// Adds a node that has a plan, or gets one.
    pub(super) fn add(&mut self, node: &Arc<str>, now: Now) {
        let record = self.records.entry(node.clone());
        record.or_insert_with(|| StatusRecord::new(now.wall));
    }

    /// Removes a node that no longer has a plan.
    pub(super) fn remove(&mut self, node: &str) {
        self.records.remove(node);
    }

    /// Resets the absence of an agent that sent a report.
    pub(super) fn reported(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.absence = Absence::Unchecked;
        }
    }

    /// Records events about Services that are not on a node as their objects ask, if that is new.
    pub(super) fn announce(&mut self, node: &Arc<str>, context: &Context, now: Now) {
        let Some(delivery) = context.registry.get(node) else {
            return;
        };
        let is_known = |trouble: &ServiceTrouble| {
            let known = context.shared.read();
            known.planner.services().contains_key(&trouble.service)
        };
        let news = self.announced.news(node, &delivery, is_known, now.elapsed);
        for event in news {
            context.events.record(event);
        }
    }

    /// Records new node entries. Their agents may have acknowledged them already.
    pub(super) fn entries_planned(
        &mut self,
        entries: BTreeMap<Arc<str>, PlannedEntry>,
        context: &mut Context,
        now: Now,
    ) {
        for (node, entry) in entries {
            let delivery = context.registry.get(&node);
            if delivery.is_some_and(|delivery| delivery.connected) {
                context.look(Target::Status(node.clone()), Class::Urgent, now);
            }
            self.entries.insert(node, entry);
        }
    }

    /// Removes nodes that do not exist.
    pub(super) fn forget_gone(&mut self, known: &ClusterState) {
        let is_node = |node: &str| known.planner.node(node).is_some();
        self.entries.retain(|node, _| is_node(node));
        self.announced.forget_except(is_node);
    }

    /// Processes a list of all plans.
    pub(super) fn listed(&mut self, plans: Vec<ListedPlan>, since: Duration, now: Now) {
        for plan in plans {
            let record = self.records.entry(plan.node);
            let record = record.or_insert_with(|| StatusRecord::new(now.wall));
            record.listed(plan.previous, plan.heartbeat, since, now);
        }
    }

    pub(super) fn reconcile(
        &mut self,
        node: &Arc<str>,
        plans: &Plans,
        context: &mut Context,
        now: Now,
    ) {
        let target = Target::Status(node.clone());
        let delivery = context.registry.get(node);
        let revision = self.revision(node, delivery.as_ref(), context);
        let Some(record) = self.records.get_mut(node).filter(|_| plans.exists(node)) else {
            // The status is written once a plan exists, and the leader may create that plan.
            if !context.leads {
                context.look_after(
                    Target::Listing(Kind::Plan),
                    Class::Background,
                    LIST_INTERVAL,
                    now,
                );
            }
            return;
        };
        if record.pending.is_some() || record.absence == Absence::Checking {
            return context.look_after(target, Class::Urgent, RETRY_DELAY, now);
        }
        let patience = context.writing_time(plans.total());
        match record.decide(delivery.as_ref(), revision, patience, now) {
            Decision::Write => {
                // The written status becomes the previous one once the call succeeds.
                let mut previous = record.previous.clone();
                previous.revision = revision.or(previous.revision);
                let status = status(delivery.as_ref(), now.wall, &previous);
                let judged = judge(delivery.as_ref());
                for event in events::of_node(node, &previous, &judged, &status) {
                    context.events.record(event);
                }
                record.pending = Some(Pending {
                    previous: Previous::read(&status),
                    heartbeat: now.wall,
                    stream: stream_of(delivery.as_ref()),
                });
                record.absence = Absence::Unchecked;
                context.issue(target, Kind::Plan, node, Act::ApplyStatus(Box::new(status)));
            }
            Decision::Check => {
                record.absence = Absence::Checking;
                context.issue(target, Kind::Plan, node, Act::Read);
            }
            Decision::Later(due) => {
                let wait = due.duration_since(now.wall).unwrap_or_default();
                context.look_after(target, Class::Background, wait, now);
            }
        }
    }

    /// The revision of the settings in the kernel of a node, if it acknowledged those that it was sent last.
    fn revision(
        &self,
        node: &Arc<str>,
        delivery: Option<&Delivery>,
        context: &Context,
    ) -> Option<u64> {
        let known = context.shared.read();
        let planned = self.entries.get(node).filter(|planned| {
            // An entry that was planned but not sent yet has other settings.
            let entry = known.planner.node(node);
            entry.is_some_and(|entry| **entry == *planned.entry)
        })?;
        let since = in_force_since(delivery)?;
        let revision = known.planner.model().revision_of(node);
        revision.filter(|_| since >= planned.since)
    }

    /// Processes when the status of an absent agent was written last.
    pub(super) fn heartbeat_read(
        &mut self,
        node: &str,
        heartbeat: Option<SystemTime>,
        context: &mut Context,
        now: Now,
    ) {
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        let (absence, class) = if record.read(heartbeat, now) {
            (Absence::Unchecked, Class::Background)
        } else {
            (Absence::Confirmed, Class::Urgent)
        };
        record.absence = absence;
        context.look(Target::Status(node.into()), class, now);
    }

    pub(super) fn written(&mut self, node: &str, context: &mut Context, now: Now) {
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        record.written(now.elapsed);
        // Reports received during the call may make the next write due sooner.
        context.look(Target::Status(node.into()), Class::Background, now);
    }

    pub(super) fn not_written(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.pending = None;
        }
    }
}
