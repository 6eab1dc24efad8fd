//! Many new connections at a steady rate, each judged for itself: one slow or failed attempt does
//! not lower the rate of the others.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::Protocol;
use super::client::{self, Outcome};
use crate::namespace::Namespace;
use crate::waits;

/// Target and rate of a load.
#[derive(Debug, Clone)]
pub struct Rate {
    /// Over which protocol.
    pub protocol: Protocol,
    /// Targets, used in turn.
    pub targets: Vec<SocketAddr>,
    /// New connections a second, at least 1.
    pub per_second: u32,
    /// Duration.
    pub lasts: Duration,
    /// When an attempt counts as failed.
    pub deadline: Duration,
}

impl Rate {
    /// Number of attempts of this load.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        let seconds = u32::try_from(self.lasts.as_secs()).unwrap_or(u32::MAX);
        self.per_second.saturating_mul(seconds)
    }
}

/// Its results.
#[derive(Debug, Default)]
pub struct Tally {
    /// Attempts that were made.
    pub made: u32,
    /// Those that failed: how long after the start, where to, and how.
    pub failures: Vec<(Duration, SocketAddr, Outcome)>,
    /// The longest time to an answer.
    pub slowest: Duration,
    /// When the last attempt that was answered began, after the start.
    pub last_answered: Option<Duration>,
}

/// A load that runs.
#[derive(Debug)]
pub struct Load {
    workers: Vec<JoinHandle<Result<Tally>>>,
}

/// Maximum number of attempts of one load under way at once.
const WORKERS: u32 = 3;

impl Load {
    /// Starts sending from a namespace; `start` is the common beginning of several loads.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(namespace: &Namespace, rate: &Rate, start: Instant) -> Result<Self> {
        let worker = |first| {
            let rate = rate.clone();
            namespace.start("load", move || send(&rate, start, first))
        };
        Ok(Self {
            workers: (0..WORKERS).map(worker).collect::<Result<_>>()?,
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If a worker failed, or this process was asked to end.
    pub fn finish(self) -> Result<Tally> {
        let mut total = Tally::default();
        for worker in self.workers {
            let part = worker
                .join()
                .map_err(|_| anyhow!("a thread that sends load panicked"))??;
            total.made += part.made;
            total.failures.extend(part.failures);
            total.slowest = total.slowest.max(part.slowest);
            total.last_answered = total.last_answered.max(part.last_answered);
        }
        total.failures.sort();
        Ok(total)
    }
}

/// Every third tick, beginning with `first`, each at its own moment or at once when late.
fn send(rate: &Rate, start: Instant, first: u32) -> Result<Tally> {
    let mut tally = Tally::default();
    let every = Duration::from_secs(1) / rate.per_second.max(1);
    for tick in (first..rate.wanted()).step_by(WORKERS as usize) {
        waits::sleep_until(start + every * tick)?;
        let began = start.elapsed();
        if began >= rate.lasts + every {
            // Attempts that could not be made in time are missing in the count, as intended.
            break;
        }
        let target = rate.targets[tick as usize % rate.targets.len()];
        let attempt = client::attempt(rate.protocol, target, rate.deadline);
        tally.made += 1;
        match attempt.outcome {
            Outcome::Answered { .. } => {
                tally.slowest = tally.slowest.max(attempt.took);
                tally.last_answered = Some(began);
            }
            outcome => tally.failures.push((began, target, outcome)),
        }
    }
    Ok(tally)
}
