//! State of the connection to the controller.

use std::sync::Arc;
use std::time::Duration;

use portolan_proto::STALE_AFTER;
use tokio::sync::watch;
use tokio::time::Instant;

/// The state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Streams that were opened since the start.
    pub streams: u64,
    /// Why there is no stream; `None` while there is one, and before the first attempt.
    pub trouble: Option<Arc<str>>,
    /// The connected controller is outdated.
    pub outdated: Option<Outdated>,
}

impl Link {
    /// Whether a controller with current objects is connected.
    pub fn is_current(&self) -> bool {
        self.streams > 0 && self.trouble.is_none() && self.outdated.is_none()
    }
}

/// A controller whose objects are outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated {
    /// The age of its objects when it reported it.
    reported: Duration,
    at: Instant,
}

impl Outdated {
    /// A controller that has just reported this age; `None` if its objects are current.
    #[must_use]
    pub fn of(age: Duration) -> Option<Self> {
        (age >= STALE_AFTER).then(|| Self {
            reported: age,
            at: Instant::now(),
        })
    }

    /// The age of its objects now: it would have reported a lower one.
    #[must_use]
    pub fn age(self) -> Duration {
        self.reported.saturating_add(self.at.elapsed())
    }
}

/// Publishes the state.
pub type LinkSender = watch::Sender<Link>;

pub(super) fn up(link: &LinkSender) {
    link.send_modify(|link| {
        link.streams += 1;
        link.trouble = None;
        link.outdated = None;
    });
}

pub(super) fn down(link: &LinkSender, why: &str) {
    link.send_modify(|link| {
        link.trouble = Some(why.into());
        link.outdated = None;
    });
}

/// Records a report of the connected controller.
pub(super) fn reported(link: &LinkSender, outdated: Option<Outdated>) {
    link.send_modify(|link| link.outdated = outdated);
}
