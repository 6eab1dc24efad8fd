//! When the status of a node is written: at once when a condition, the agent or its stream changes, and periodically as
//! a heartbeat. Pure; the time is an argument.
//!
//! An agent moves between controllers, which know of each other only by the stored status. The one that wrote it last
//! is responsible for it. Another one reports an agent as absent only if that one does not write any more.

use std::time::{Duration, SystemTime};

use super::context::Now;
use crate::agent_registry::{Delivery, StreamId};
use crate::publish::budget::{HEARTBEAT_INTERVAL, MIN_STATUS_INTERVAL};
use crate::publish::previous::Previous;
use crate::publish::status::{agent_pod, agent_version, judge};

/// Maximum time until the first ack of a connected agent, before its status reports the missing ack.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time until a disconnected agent is back, here or at another controller, before its status reports it as
/// absent.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time until an agent counts as absent that never connected to this controller, or whose status another controller
/// wrote last. Longer than the interval between two heartbeats of that one.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(360);

/// The stored status of a node, as far as it is known.
#[derive(Debug)]
pub(super) struct StatusRecord {
    pub(super) previous: Previous,
    heartbeat: Option<SystemTime>,
    /// When this controller noticed that another one wrote the status after it. By the clock of this controller: the
    /// clocks of machines differ.
    noticed_at: Option<SystemTime>,
    written_at: Option<Duration>,
    /// The stream about which this controller wrote last.
    written_for: Option<StreamId>,
    /// The result of the call in progress, if it succeeds.
    pub(super) pending: Option<Pending>,
    /// When this controller first knew the node.
    first_seen: SystemTime,
    pub(super) absence: Absence,
}

/// A status that is being written.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) previous: Previous,
    pub(super) heartbeat: SystemTime,
    /// The agent's stream here; `None` if it has none.
    pub(super) stream: Option<StreamId>,
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
            noticed_at: None,
            written_at: None,
            written_for: None,
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
        now: Now,
    ) {
        if self.pending.is_none() && self.written_at.is_none_or(|at| at < since) {
            self.previous = previous;
            self.read(heartbeat, now);
            self.heartbeat = heartbeat;
        }
    }

    /// Takes the stored heartbeat. Returns whether another controller wrote it since this one wrote or read it.
    pub(super) fn read(&mut self, heartbeat: Option<SystemTime>, now: Now) -> bool {
        let is_new = heartbeat.is_some() && microseconds(heartbeat) != microseconds(self.heartbeat);
        if is_new {
            self.heartbeat = heartbeat;
            self.noticed_at = Some(now.wall);
        }
        is_new
    }

    /// The call in progress succeeded `at` this time since the start.
    pub(super) fn written(&mut self, at: Duration) {
        if let Some(pending) = self.pending.take() {
            self.previous = pending.previous;
            self.heartbeat = Some(pending.heartbeat);
            self.noticed_at = None;
            self.written_at = Some(at);
            self.written_for = pending.stream;
        }
    }

    /// From when on an agent counts as absent, unless another controller has its stream; `None` if it is connected.
    /// `patience` is the time that another controller needs to write the statuses of all agents that moved to it.
    fn absent_from(&self, delivery: Option<&Delivery>, patience: Duration) -> Option<SystemTime> {
        let here = match delivery {
            None => self.first_seen + FIRST_CONNECT_TIMEOUT,
            Some(delivery) if !delivery.connected => delivery.since + RECONNECT_TIMEOUT,
            Some(_) => return None,
        };
        let elsewhere = self.noticed_at.map(|at| at + FIRST_CONNECT_TIMEOUT);
        Some(here.max(elsewhere.unwrap_or(here)) + patience)
    }

    /// Decides for an agent whose kernel has the settings of this revision, if it is known.
    pub(super) fn decide(
        &self,
        delivery: Option<&Delivery>,
        revision: Option<u64>,
        patience: Duration,
        now: Now,
    ) -> Decision {
        if let Some(absent_from) = self.absent_from(delivery, patience) {
            if now.wall < absent_from {
                return Decision::Later(absent_from);
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
        let other = self.is_new(stream_of(delivery))
            || (revision.is_some() && revision != self.previous.revision)
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

    /// Whether this controller has to write about a stream for the first time. It does so even if no condition changes:
    /// the controller that had the agent before waits for it.
    fn is_new(&self, stream: Option<StreamId>) -> bool {
        stream.is_some() && stream != self.written_for
    }
}

/// The open stream of an agent here.
pub(super) fn stream_of(delivery: Option<&Delivery>) -> Option<StreamId> {
    let delivery = delivery.filter(|delivery| delivery.connected);
    delivery.map(|delivery| delivery.stream)
}

/// A time as it is stored. Two controllers do not write at the same microsecond.
fn microseconds(time: Option<SystemTime>) -> Option<u128> {
    let since = time?.duration_since(SystemTime::UNIX_EPOCH);
    Some(since.unwrap_or_default().as_micros())
}

#[cfg(test)]
#[path = "status_record_tests.rs"]
mod tests;
