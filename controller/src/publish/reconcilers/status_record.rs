//! When the status of a node is written: at once when a condition or the agent changes, and periodically as a heartbeat.
//! Pure; the time is an argument.

use std::time::{Duration, SystemTime};

use super::context::Now;
use crate::agent_registry::Delivery;
use crate::publish::budget::{HEARTBEAT_INTERVAL, MIN_STATUS_INTERVAL};
use crate::publish::previous::Previous;
use crate::publish::status::{agent_pod, agent_version, judge};

/// Maximum time until the first ack of a connected agent, before its status reports the missing ack.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time until a disconnected agent is back, before its status reports it as absent.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time until an agent that never connected to this controller counts as absent. Longer than the interval between two
/// heartbeats that another controller may write.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(360);

/// The stored status of a node, as far as it is known.
#[derive(Debug)]
pub(super) struct StatusRecord {
    pub(super) previous: Previous,
    pub(super) heartbeat: Option<SystemTime>,
    written_at: Option<Duration>,
    /// The result of the call in progress, if it succeeds.
    pub(super) pending: Option<(Previous, SystemTime)>,
    /// When this controller first knew the node.
    first_seen: SystemTime,
    pub(super) absence: Absence,
}

/// Whether another controller may have a stream of an agent that is absent here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    Unchecked,
    Checking,
    Confirmed,
}

/// What to do about a status.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Write,
    /// First read whether another controller writes it.
    Check,
    /// Not before this time.
    Later(SystemTime),
}

impl StatusRecord {
    pub(super) fn new(first_seen: SystemTime) -> Self {
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
    pub(super) fn listed(
        &mut self,
        previous: Previous,
        heartbeat: Option<SystemTime>,
        since: Duration,
    ) {
        if self.pending.is_none() && self.written_at.is_none_or(|at| at < since) {
            self.previous = previous;
            self.heartbeat = heartbeat;
        }
    }

    /// The call in progress succeeded `at` this time since the start.
    pub(super) fn written(&mut self, at: Duration) {
        if let Some((previous, heartbeat)) = self.pending.take() {
            self.previous = previous;
            self.heartbeat = Some(heartbeat);
            self.written_at = Some(at);
        }
    }

    /// Since when an agent has been absent here, and how long absence is tolerated; `None` if it is connected.
    pub(super) fn absent(&self, delivery: Option<&Delivery>) -> Option<(SystemTime, Duration)> {
        match delivery {
            None => Some((self.first_seen, FIRST_CONNECT_TIMEOUT)),
            Some(delivery) if !delivery.connected => Some((delivery.since, RECONNECT_TIMEOUT)),
            Some(_) => None,
        }
    }

    /// Decides for an agent whose kernel has the settings of this revision, if it is known.
    pub(super) fn decide(
        &self,
        delivery: Option<&Delivery>,
        revision: Option<u64>,
        now: Now,
    ) -> Decision {
        if let Some((since, grace)) = self.absent(delivery) {
            if now.wall < since + grace {
                return Decision::Later(since + grace);
            }
            if self.absence != Absence::Confirmed && self.due(delivery, revision, now).is_none() {
                return Decision::Check;
            }
        } else if let Some(delivery) = delivery
            && delivery.acked.is_none()
            && now.wall < delivery.since + FIRST_ACK_TIMEOUT
        {
            return Decision::Later(delivery.since + FIRST_ACK_TIMEOUT);
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
            now.wall + (last + MIN_STATUS_INTERVAL).saturating_sub(now.elapsed)
        } else {
            heartbeat + HEARTBEAT_INTERVAL
        };
        (now.wall < due).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_plan::PlanHash;

    use super::*;
    use crate::agent_registry::{Acked, InForce};
    use crate::publish::status::status;

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
            schedulers: Arc::default(),
            troubled: None,
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
    fn an_unchanged_status_is_written_every_five_minutes() {
        let delivery = applied(true, 0);
        let record = written(&delivery, 10);
        let decide = |seconds| record.decide(Some(&delivery), None, now(seconds));
        assert_eq!(decide(11), Decision::Later(at(310)));
        assert_eq!(decide(310), Decision::Write);
    }

    #[test]
    fn a_changed_condition_is_written_at_once_within_the_rate() {
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
    fn an_agent_that_reconnects_within_a_minute_is_not_absent() {
        let record = written(&applied(true, 0), 10);
        let gone = applied(false, 20);
        let decide = |seconds| record.decide(Some(&gone), None, now(seconds));
        assert_eq!(decide(21), Decision::Later(at(80)));
        assert_eq!(
            decide(80),
            Decision::Check,
            "another controller may have its stream"
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
    fn an_agent_that_never_connected_counts_as_absent_after_another_controllers_heartbeat_is_due() {
        let record = StatusRecord::new(at(0));
        assert_eq!(record.decide(None, None, now(1)), Decision::Later(at(360)));
        assert_eq!(record.decide(None, None, now(360)), Decision::Check);
    }
}
