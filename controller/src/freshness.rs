//! How current the objects are from which this controller plans: when the API server last sent anything about each
//! kind, and how long the engine's present turn has taken.
//!
//! Accesses the monotonic clock. All values are atomic, so probes and streams read them without a lock, also while the
//! engine holds the lock of the plans.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portolan_planner::model::Kind;
use portolan_proto::STALE_AFTER;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{error, info};

/// Duration of one turn of the engine after which only a restart helps. The longest turn is the first plan of a large
/// cluster, which takes seconds.
pub const HUNG_AFTER: Duration = Duration::from_secs(120);
/// Interval between two checks, for the log and for the agents.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// When the API server last sent anything, and since when the engine works.
#[derive(Debug)]
pub struct Freshness {
    start: Instant,
    /// When anything was last received about each kind, in milliseconds since `start`. Empty without an API server.
    received: BTreeMap<Kind, AtomicU64>,
    /// When the engine's present turn began, in milliseconds since `start` plus 1; 0 between turns.
    turn: AtomicU64,
}

impl Default for Freshness {
    /// For plans that are not made from an API server.
    fn default() -> Self {
        Self::watching([], Instant::now())
    }
}

/// A turn of the engine. It ends when this is dropped.
#[must_use = "the turn ends when this is dropped"]
#[derive(Debug)]
pub struct Turn<'a>(&'a AtomicU64);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Why the plans of this controller are outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Nothing was received from the API server.
    ApiServer {
        /// The kind about which nothing was received for the longest time.
        kind: Kind,
        /// The time since then.
        age: Duration,
    },
    /// The engine does not end its turn.
    Engine {
        /// The duration of the turn so far.
        age: Duration,
    },
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer { kind, age } => write!(
                f,
                "stale: nothing about {}s was received from the API server for {} s",
                kind.name(),
                age.as_secs()
            ),
            Self::Engine { age } => {
                write!(f, "stale: planning has not ended for {} s", age.as_secs())
            }
        }
    }
}

impl Freshness {
    /// For plans from an API server whose objects of these kinds are watched from `start` on.
    pub fn watching(kinds: impl IntoIterator<Item = Kind>, start: Instant) -> Self {
        let received = kinds.into_iter().map(|kind| (kind, AtomicU64::new(0)));
        Self {
            start,
            received: received.collect(),
            turn: AtomicU64::new(0),
        }
    }

    /// Records that the API server sent something about a kind, or accepted a watch of it.
    pub fn received(&self, kind: Kind) {
        if let Some(at) = self.received.get(&kind) {
            at.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Begins a turn of the engine.
    pub fn turn(&self) -> Turn<'_> {
        let now = self.now().saturating_add(1);
        self.turn.store(now, Ordering::Relaxed);
        Turn(&self.turn)
    }

    /// The time since anything was received, for each kind.
    pub fn ages(&self) -> impl Iterator<Item = (Kind, Duration)> {
        let now = self.now();
        self.received.iter().map(move |(kind, at)| {
            let age = now.saturating_sub(at.load(Ordering::Relaxed));
            (*kind, Duration::from_millis(age))
        })
    }

    /// The duration of the engine's present turn; 0 between turns.
    pub fn turn_age(&self) -> Duration {
        match self.turn.load(Ordering::Relaxed).checked_sub(1) {
            Some(begun) => Duration::from_millis(self.now().saturating_sub(begun)),
            None => Duration::ZERO,
        }
    }

    /// The age of the plans: that of the kind with the greatest age, or of the engine's turn if that is greater.
    pub fn age(&self) -> Duration {
        let greatest = self.ages().map(|(_, age)| age).max();
        greatest.unwrap_or_default().max(self.turn_age())
    }

    /// Why the plans are outdated; `None` if they are current.
    pub fn stale(&self) -> Option<Stale> {
        // It comes first: while the engine hangs, its queue fills, and watches cannot receive anything either.
        let turn = self.turn_age();
        if turn >= STALE_AFTER {
            return Some(Stale::Engine { age: turn });
        }
        let (kind, age) = self.ages().max_by_key(|(_, age)| *age)?;
        (age >= STALE_AFTER).then_some(Stale::ApiServer { kind, age })
    }

    /// Whether only a restart helps. A lost API server is no reason: a restart would lose the plans.
    pub fn is_hung(&self) -> bool {
        self.turn_age() >= HUNG_AFTER
    }

    /// Notifies of each change that agents have to know: the plans become outdated, their age decreases while they
    /// are, or they are current again. Logs the first and the last. Never ends.
    pub async fn follow(&self, changes: &watch::Sender<()>) -> Infallible {
        let (mut was_stale, mut last) = (false, Duration::ZERO);
        loop {
            let (problem, age) = (self.stale(), self.age());
            let is_stale = problem.is_some();
            if is_stale != was_stale || (is_stale && age < last) {
                changes.send_replace(());
            }
            match problem {
                Some(problem) if !was_stale => error!(
                    "{problem}; agents move to another controller if that is fresher, otherwise they keep their plans; \
                     check the path from this controller to the API server, and the log lines above"
                ),
                None if was_stale => info!("plans are made from current objects again"),
                _ => {}
            }
            (was_stale, last) = (is_stale, age);
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watching(kinds: impl IntoIterator<Item = Kind>) -> Freshness {
        Freshness::watching(kinds, Instant::now())
    }

    /// S-231.
    #[tokio::test(start_paused = true)]
    async fn one_silent_kind_or_a_turn_that_does_not_end_makes_plans_outdated() {
        let freshness = watching([Kind::Node, Kind::Service]);
        advance(Duration::from_secs(89)).await;
        freshness.received(Kind::Node);
        assert_eq!(freshness.stale(), None);
        advance(SECOND).await;
        let (kind, age) = (Kind::Service, Duration::from_secs(90));
        assert_eq!(freshness.stale(), Some(Stale::ApiServer { kind, age }));
        let message = freshness.stale().unwrap().to_string();
        assert_eq!(
            message,
            "stale: nothing about Services was received from the API server for 90 s"
        );
        freshness.received(Kind::Service);
        assert_eq!((freshness.stale(), freshness.age()), (None, SECOND));
        let turn = freshness.turn();
        advance(Duration::from_secs(119)).await;
        freshness.received(Kind::Node);
        freshness.received(Kind::Service);
        let age = Duration::from_secs(119);
        assert_eq!(freshness.stale(), Some(Stale::Engine { age }));
        assert!(!freshness.is_hung());
        advance(SECOND).await;
        assert!(freshness.is_hung());
        drop(turn);
        assert_eq!((freshness.stale(), freshness.is_hung()), (None, false));
        assert_eq!(freshness.age(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_api_server_only_the_engine_counts() {
        let freshness = Freshness::default();
        advance(SECOND * 10_000).await;
        assert_eq!((freshness.stale(), freshness.age()), (None, Duration::ZERO));
    }

    async fn has_news(reports: &mut watch::Receiver<()>) -> bool {
        sleep(SECOND * 2).await;
        let is_news = reports.has_changed().unwrap();
        reports.mark_unchanged();
        is_news
    }

    /// Agents compute the age of an outdated controller themselves, so they have to know when it decreases.
    #[tokio::test(start_paused = true)]
    async fn every_change_that_agents_have_to_know_is_reported() {
        let freshness = Arc::new(watching([Kind::Node, Kind::Service]));
        let changes = watch::Sender::new(());
        let mut reports = changes.subscribe();
        let followed = freshness.clone();
        drop(tokio::spawn(async move { followed.follow(&changes).await }));
        assert!(!has_news(&mut reports).await, "it is current");
        sleep(SECOND * 100).await;
        assert!(has_news(&mut reports).await, "it is outdated");
        freshness.received(Kind::Node);
        assert!(!has_news(&mut reports).await, "nothing about Services");
        sleep(SECOND * 100).await;
        assert!(!has_news(&mut reports).await, "its age only grows");
        freshness.received(Kind::Service);
        assert!(has_news(&mut reports).await, "its age is that of Nodes");
        assert!(freshness.stale().is_some());
        freshness.received(Kind::Node);
        assert!(has_news(&mut reports).await, "it is current again");
        assert_eq!(freshness.stale(), None);
    }
}
