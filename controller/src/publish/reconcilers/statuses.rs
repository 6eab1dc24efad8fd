//! Reconciles statuses of ProxyPlans. A status is written when a condition or the agent changes, and periodically as
//! a heartbeat.
//!
//! The absence of an agent is written only if no other controller writes its status: with several controllers, each
//! has the streams of some agents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::context::{Context, Now, SOON};
use super::plans::Plans;
use crate::board::Delivery;
use crate::known::Known;
use crate::publish::budget::{COMPARE, HEARTBEAT, STATUS};
use crate::publish::news;
use crate::publish::notes::Given;
use crate::publish::previous::Previous;
use crate::publish::queue::Class;
use crate::publish::status::{agent_pod, agent_version, in_force_since, judge, status};
use crate::publish::write::{Act, Kind, ListedPlan, Target};

/// How long an agent may take for its first answer, and to reconnect.
const ANSWER: Duration = Duration::from_secs(30);
const RETURN: Duration = Duration::from_secs(60);
/// How long until an agent that never connected here counts as absent. Longer than the interval between two
/// heartbeats that another controller may write.
const NEVER: Duration = Duration::from_secs(360);
/// How often a controller that is not the leader lists plans while some are missing.
const LIST: Duration = Duration::from_secs(10);

/// The statuses of all nodes that have a plan.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    records: BTreeMap<Arc<str>, StatusRecord>,
    /// Node entries and the time at which they were planned.
    given: BTreeMap<Arc<str>, Given>,
}

/// The stored status of a node, as far as it is known.
#[derive(Debug)]
struct StatusRecord {
    previous: Previous,
    heartbeat: Option<SystemTime>,
    written_at: Option<Duration>,
    /// The result of the call in progress, if it succeeds.
    pending: Option<(Previous, SystemTime)>,
    /// When this controller first knew the node.
    first_seen: SystemTime,
    absence: Absence,
}

/// Whether another controller may have a stream of an agent that is absent here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    Unchecked,
    Checking,
    Confirmed,
}

/// What to do about a status.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Write,
    /// First read whether another controller writes it.
    Check,
    /// Not before this time.
    Later(SystemTime),
}

impl StatusRecord {
    fn new(first_seen: SystemTime) -> Self {
        Self {
            previous: Previous::default(),
            heartbeat: None,
            written_at: None,
            pending: None,
            first_seen,
            absence: Absence::Unchecked,
        }
    }

    /// Takes the status from a list, unless a later call is more recent.
    fn listed(&mut self, previous: Previous, heartbeat: Option<SystemTime>, since: Duration) {
        if self.pending.is_none() && self.written_at.is_none_or(|at| at < since) {
            self.previous = previous;
            self.heartbeat = heartbeat;
        }
    }

    /// Since when an agent has been absent here, and how long absence is tolerated; `None` if it is connected.
    fn absent(&self, delivery: Option<&Delivery>) -> Option<(SystemTime, Duration)> {
        match delivery {
            None => Some((self.first_seen, NEVER)),
            Some(delivery) if !delivery.connected => Some((delivery.since, RETURN)),
            Some(_) => None,
        }
    }

    fn decide(&self, delivery: Option<&Delivery>, revision: Option<u64>, now: Now) -> Decision {
        if let Some((since, grace)) = self.absent(delivery) {
            if now.wall < since + grace {
                return Decision::Later(since + grace);
            }
            if self.absence != Absence::Confirmed && self.due(delivery, revision, now).is_none() {
                return Decision::Check;
            }
        } else if let Some(delivery) = delivery
            && delivery.acked.is_none()
            && now.wall < delivery.since + ANSWER
        {
            return Decision::Later(delivery.since + ANSWER);
        }
        self.due(delivery, revision, now)
            .map_or(Decision::Write, Decision::Later)
    }

    /// When the status is to be written; `None` means now.
    fn due(
        &self,
        delivery: Option<&Delivery>,
        revision: Option<u64>,
        now: Now,
    ) -> Option<SystemTime> {
        let heartbeat = self.heartbeat?;
        let version = delivery.map(agent_version);
        let pod = delivery.and_then(agent_pod);
        let other = (revision.is_some() && revision != self.previous.revision)
            || (version.is_some() && version.as_deref() != self.previous.agent_version.as_deref())
            || (pod.is_some() && pod.as_deref() != self.previous.agent_pod.as_deref());
        let due = if other || self.previous.differs_from(&judge(delivery)) {
            let last = self.written_at?;
            now.wall + (last + STATUS).saturating_sub(now.elapsed)
        } else {
            heartbeat + HEARTBEAT
        };
        (now.wall < due).then_some(due)
    }
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

    /// Records new node entries. Their agents may have acknowledged them already.
    pub(super) fn give(
        &mut self,
        given: BTreeMap<Arc<str>, Given>,
        context: &mut Context,
        now: Now,
    ) {
        for (node, given) in given {
            let delivery = context.board.get(&node);
            if delivery.is_some_and(|delivery| delivery.connected) {
                context.look(Target::Status(node.clone()), Class::Urgent, now);
            }
            self.given.insert(node, given);
        }
    }

    /// Removes nodes that do not exist.
    pub(super) fn forget_gone(&mut self, known: &Known) {
        self.given
            .retain(|node, _| known.planner.node(node).is_some());
    }

    /// Processes a list of all plans.
    pub(super) fn listed(&mut self, plans: Vec<ListedPlan>, since: Duration, now: Now) {
        for plan in plans {
            let record = self.records.entry(plan.node);
            let record = record.or_insert_with(|| StatusRecord::new(now.wall));
            record.listed(plan.previous, plan.heartbeat, since);
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
        let delivery = context.board.get(node);
        let revision = self.revision(node, delivery.as_ref(), context);
        let Some(record) = self.records.get_mut(node).filter(|_| plans.exists(node)) else {
            // The status is written once a plan exists, and the leader may create that plan.
            if !context.leads {
                context.look_after(Target::Listing(Kind::Plan), Class::Background, LIST, now);
            }
            return;
        };
        if record.pending.is_some() || record.absence == Absence::Checking {
            return context.look_after(target, Class::Urgent, SOON, now);
        }
        match record.decide(delivery.as_ref(), revision, now) {
            Decision::Write => {
                // The written status becomes the previous one once the call succeeds.
                let mut previous = record.previous.clone();
                previous.revision = revision.or(previous.revision);
                let status = status(delivery.as_ref(), now.wall, &previous);
                let judged = judge(delivery.as_ref());
                for event in news::of_node(node, &previous, &judged, &status) {
                    context.events.tell(event);
                }
                record.pending = Some((Previous::read(&status), now.wall));
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
        let given = self.given.get(node).filter(|given| {
            // An entry that was planned but not sent yet has other settings.
            let entry = known.planner.node(node);
            entry.is_some_and(|entry| **entry == *given.entry)
        })?;
        let since = in_force_since(delivery)?;
        let revision = known.planner.model().revision_of(node);
        revision.filter(|_| since >= given.since)
    }

    /// Processes when another controller wrote the status of an absent agent.
    pub(super) fn heartbeat_read(
        &mut self,
        node: &str,
        heartbeat: Option<SystemTime>,
        context: &mut Context,
        now: Now,
    ) {
        let delivery = context.board.get(node);
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        let since = record.absent(delivery.as_ref()).map(|(since, _)| since);
        let elsewhere = heartbeat > record.heartbeat && heartbeat > since;
        let (absence, class, pause) = if elsewhere {
            (Absence::Unchecked, Class::Background, COMPARE)
        } else {
            (Absence::Confirmed, Class::Urgent, Duration::ZERO)
        };
        record.absence = absence;
        context.look_after(Target::Status(node.into()), class, pause, now);
    }

    pub(super) fn written(&mut self, node: &str, context: &mut Context, now: Now) {
        let Some(record) = self.records.get_mut(node) else {
            return;
        };
        if let Some((previous, heartbeat)) = record.pending.take() {
            record.previous = previous;
            record.heartbeat = Some(heartbeat);
            record.written_at = Some(now.elapsed);
        }
        // Reports received during the call may make the next write due sooner.
        context.look(Target::Status(node.into()), Class::Background, now);
    }

    pub(super) fn not_written(&mut self, node: &str) {
        if let Some(record) = self.records.get_mut(node) {
            record.pending = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_plan::PlanHash;

    use super::*;
    use crate::board::{Acked, InForce};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn now(seconds: u64) -> Now {
        Now {
            elapsed: Duration::from_secs(seconds),
            wall: at(seconds),
        }
    }

    fn applied(connected: bool, since: u64) -> Delivery {
        let acked = Acked {
            applied: Some(PlanHash(1)),
            received: PlanHash(1),
            ..Acked::default()
        };
        Delivery {
            agent_version: "0.1.0".into(),
            agent_pod: Some("agent-1".into()),
            connected,
            since: at(since),
            acked: Some((at(since), Arc::new(acked))),
            overdue: None,
            drifted: Some(Arc::default()),
            closed_ports: Arc::default(),
            unwritten_settings: Arc::default(),
            in_force: InForce::default(),
        }
    }

    fn written(delivery: &Delivery, seconds: u64) -> StatusRecord {
        let status = status(Some(delivery), at(seconds), &Previous::default());
        StatusRecord {
            previous: Previous::read(&status),
            heartbeat: Some(at(seconds)),
            written_at: Some(Duration::from_secs(seconds)),
            ..StatusRecord::new(at(0))
        }
    }

    #[test]
    fn a_first_answer_is_written_at_once() {
        let record = StatusRecord::new(at(0));
        assert_eq!(
            record.decide(Some(&applied(true, 1)), None, now(1)),
            Decision::Write
        );
        let silent = Delivery {
            acked: None,
            ..applied(true, 1)
        };
        assert_eq!(
            record.decide(Some(&silent), None, now(1)),
            Decision::Later(at(31))
        );
        assert_eq!(record.decide(Some(&silent), None, now(31)), Decision::Write);
    }

    #[test]
    fn what_does_not_change_is_written_every_five_minutes() {
        let delivery = applied(true, 0);
        let record = written(&delivery, 10);
        let decide = |seconds| record.decide(Some(&delivery), None, now(seconds));
        assert_eq!(decide(11), Decision::Later(at(310)));
        assert_eq!(decide(310), Decision::Write);
    }

    #[test]
    fn a_condition_that_changes_is_written_at_once_but_not_ever_so_often() {
        let record = written(&applied(true, 0), 10);
        let failing = Acked {
            failed_operations: 1,
            ..Acked::default()
        };
        let delivery = Delivery {
            acked: Some((at(11), Arc::new(failing))),
            ..applied(true, 0)
        };
        let decide = |seconds| record.decide(Some(&delivery), None, now(seconds));
        assert_eq!(decide(11), Decision::Later(at(15)));
        assert_eq!(decide(15), Decision::Write);
    }

    #[test]
    fn another_agent_is_written_at_once() {
        let record = written(&applied(true, 0), 10);
        let version = Delivery {
            agent_version: "0.2.0".into(),
            ..applied(true, 20)
        };
        let pod = Delivery {
            agent_pod: Some("agent-2".into()),
            ..applied(true, 20)
        };
        for delivery in [version, pod] {
            let decide = |seconds| record.decide(Some(&delivery), None, now(seconds));
            assert_eq!(decide(12), Decision::Later(at(15)));
            assert_eq!(decide(21), Decision::Write);
        }
    }

    #[test]
    fn an_agent_that_comes_back_within_a_minute_was_not_away() {
        let record = written(&applied(true, 0), 10);
        let gone = applied(false, 20);
        let decide = |seconds| record.decide(Some(&gone), None, now(seconds));
        assert_eq!(decide(21), Decision::Later(at(80)));
        assert_eq!(
            decide(80),
            Decision::Check,
            "somebody else may have its stream"
        );
        let confirmed = StatusRecord {
            absence: Absence::Confirmed,
            ..written(&applied(true, 0), 10)
        };
        assert_eq!(
            confirmed.decide(Some(&gone), None, now(80)),
            Decision::Write
        );
    }

    #[test]
    fn an_agent_that_never_came_is_called_absent_after_another_controllers_heartbeat_is_due() {
        let record = StatusRecord::new(at(0));
        assert_eq!(record.decide(None, None, now(1)), Decision::Later(at(360)));
        assert_eq!(record.decide(None, None, now(360)), Decision::Check);
    }
}
