//! The limit of open files (`RLIMIT_NOFILE`). Each connection of an agent takes one file, and containers often begin
//! with a limit of 1,024.
//!
//! Touches: the limit of this process.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{info, warn};

use crate::telemetry::load::ListenerName;
use crate::telemetry::metrics::Counters;

/// Files that are left to the API server, the admin pages, certificates and the runtime.
const RESERVED_FILES: u64 = 256;
/// Maximum number of connections of agents, whatever the system allows.
const MAX_CONNECTIONS: u64 = 1 << 20;
/// Number of connections below which the start logs a warning. With fewer nodes the limit is still sufficient.
const FEW_CONNECTIONS: u64 = 2000;
/// Pause after a failed accept that concerns the whole process.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between log lines about failed accepts of one listener.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The right of one connection to an open file. Dropping it frees the place.
pub(crate) type Place = OwnedSemaphorePermit;

/// The places for connections of agents. Without a place a connection is closed, so agents cannot take the files that
/// this process needs for the API server.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    count: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self::within(None)
    }
}

impl Places {
    /// Raises the limit of open files as far as the system allows. Returns the places within it, and logs their number.
    pub fn of_this_process() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let all = Rlimit {
            current: maximum,
            maximum,
        };
        let raised = setrlimit(Resource::Nofile, all).is_ok();
        let places = Self::within(if raised { maximum } else { current });
        places.log();
        places
    }

    /// The places within a limit of open files; `None` is no limit. A low limit is divided in halves.
    pub fn within(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        let count = limit.saturating_sub(RESERVED_FILES).max(limit / 2);
        let count = count.min(MAX_CONNECTIONS);
        let permits = usize::try_from(count).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            count,
        }
    }

    /// The number of places, free or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A free place.
    pub(crate) fn take(&self) -> Option<Place> {
        self.free.clone().try_acquire_owned().ok()
    }

    fn log(&self) {
        let connections = self.count;
        if connections < FEW_CONNECTIONS {
            warn!(
                connections,
                "the limit of open files allows few connections of agents; raise LimitNOFILE of the container \
                 runtime if the cluster has more nodes per controller"
            );
        } else {
            info!(connections, "limit of connections of agents");
        }
    }
}

/// The failed accepts of one listener.
#[derive(Debug)]
pub(crate) struct AcceptErrors {
    listener: ListenerName,
    counters: Arc<Counters>,
    logged: Option<Instant>,
}

impl AcceptErrors {
    pub(crate) fn new(listener: ListenerName, counters: Arc<Counters>) -> Self {
        Self {
            listener,
            counters,
            logged: None,
        }
    }

    /// Counts and logs an error. Returns the pause before the next attempt: none after an error of one client.
    pub(crate) fn note(&mut self, error: &io::Error) -> Duration {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionReset | Interrupted
        ) {
            return Duration::ZERO;
        }
        self.counters.load().accept_failed(self.listener);
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            warn!(
                listener = ?self.listener,
                %error,
                "cannot accept connections; check the limit of open files (LimitNOFILE of the container runtime) \
                 and the free memory"
            );
        }
        ACCEPT_PAUSE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_limit_is_divided_between_agents_and_the_rest_of_the_controller() {
        for (limit, count) in [
            (Some(1024), 768),
            (Some(300), 150),
            (Some(1), 0),
            (None, MAX_CONNECTIONS),
        ] {
            assert_eq!(Places::within(limit).count(), count, "{limit:?}");
        }
    }

    proptest! {
        /// Whatever agents do, files are left for the API server and the admin pages.
        #[test]
        fn agents_leave_the_reserve_or_half_of_the_files(limit in prop_oneof![0_u64..2000, any::<u64>()]) {
            let left = limit - Places::within(Some(limit)).count();
            prop_assert!(left >= RESERVED_FILES.min(limit / 2), "{left} of {limit}");
        }
    }

    #[test]
    fn a_place_is_free_again_after_its_connection() {
        let places = Places::within(Some(4));
        let taken: Vec<_> = (0..3).map(|_| places.take()).collect();
        assert_eq!(taken.iter().flatten().count(), 2);
        drop(taken);
        assert!(places.take().is_some());
    }

    #[test]
    fn errors_of_the_process_are_counted_and_followed_by_a_pause() {
        let counters: Arc<Counters> = Arc::default();
        let mut errors = AcceptErrors::new(ListenerName::agents, counters.clone());
        let aborted = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(errors.note(&aborted), Duration::ZERO);
        assert_eq!(counters.load().accept_errors(ListenerName::agents), 0);
        let too_many = io::Error::from(rustix::io::Errno::MFILE);
        assert_eq!(errors.note(&too_many), ACCEPT_PAUSE);
        assert_eq!(counters.load().accept_errors(ListenerName::agents), 1);
    }
}
