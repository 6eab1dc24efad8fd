//! The limit of open files (`RLIMIT_NOFILE`). Each connection takes one, and each health check port two.
//!
//! Touches: the limit of this process.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Pause after a failed accept that concerns the whole process.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Raises the limit as far as the system allows; some systems begin with a thousand files.
pub(crate) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, most) {
        Ok(()) => info!(files = maximum, "limit of open files"),
        Err(error) => info!(%error, "could not raise the limit of open files"),
    }
}

/// Failed accepts of all listeners.
#[derive(Debug, Default)]
pub(crate) struct AcceptErrors {
    count: Counter,
    logged: Mutex<Option<Instant>>,
}

impl AcceptErrors {
    /// Their number.
    pub(crate) fn count(&self) -> Counter {
        self.count.clone()
    }

    /// Counts and logs an error. Returns the pause before the next attempt: none after an error of one client.
    pub(crate) fn note(&self, listener: &str, error: &io::Error) -> Duration {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(
            error.kind(),
            ConnectionAborted | ConnectionReset | Interrupted
        ) {
            return Duration::ZERO;
        }
        self.count.inc();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            drop(logged);
            warn!(
                listener,
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
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn errors_of_the_process_are_counted_and_followed_by_a_pause() {
        let errors = AcceptErrors::default();
        let aborted = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(errors.note("metrics", &aborted), Duration::ZERO);
        assert_eq!(errors.count().get(), 0);
        for _ in 0..2 {
            let too_many = io::Error::from(Errno::MFILE);
            assert_eq!(errors.note("metrics", &too_many), ACCEPT_PAUSE);
        }
        assert_eq!(errors.count().get(), 2);
    }

    #[test]
    fn the_limit_is_raised_to_the_maximum() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
