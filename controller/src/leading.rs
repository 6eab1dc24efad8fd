//! Until when this controller leads, and work that only the leader does.
//!
//! Leadership is a deadline, not a flag: a leader that cannot renew its Lease stops at that time, even if the task of
//! the election is late. A successor begins 5 s later at the earliest (`operator::lease::Terms`).

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Until when this controller leads.
#[derive(Debug, Clone, Default)]
pub struct Leading(Option<watch::Receiver<Option<Instant>>>);

impl Leading {
    /// The only controller, which always leads.
    pub fn alone() -> Self {
        Self(None)
    }

    /// A candidate, which leads until the time in the receiver.
    pub fn elected(until: watch::Receiver<Option<Instant>>) -> Self {
        Self(Some(until))
    }

    /// Whether this controller leads now.
    pub fn now(&self) -> bool {
        self.0.as_ref().is_none_or(|until| lasts(*until.borrow()))
    }

    /// Waits until this controller leads. Returns false if it never will, because the election has ended.
    pub async fn begins(&mut self) -> bool {
        match &mut self.0 {
            Some(until) => until.wait_for(|until| lasts(*until)).await.is_ok(),
            None => true,
        }
    }

    /// Waits until this controller does not lead any more.
    pub async fn ends(&mut self) {
        let Some(until) = &mut self.0 else {
            return std::future::pending().await;
        };
        loop {
            let end = *until.borrow_and_update();
            let Some(end) = end.filter(|end| lasts(Some(*end))) else {
                return;
            };
            tokio::select! {
                () = sleep_until(end) => {}
                changed = until.changed() => if changed.is_err() {
                    // The election has ended, and cannot renew it.
                    return sleep_until(end).await;
                },
            }
        }
    }
}

fn lasts(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

/// Does work while this controller leads: drops it when its time is over, and begins it again afterwards.
macro_rules! while_leading {
    ($leading:expr, $work:expr) => {{
        let mut leading: $crate::leading::Leading = $leading;
        while leading.begins().await {
            tokio::select! {
                () = $work => break,
                () = leading.ends() => {}
            }
        }
    }};
}
pub(crate) use while_leading;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn later(after: u64) -> Option<Instant> {
        Some(Instant::now() + seconds(after))
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_at_its_time_without_any_message_and_a_renewal_extends_it() {
        let (election, until) = watch::channel(None);
        let mut leading = Leading::elected(until);
        assert!(!leading.now());
        leading.ends().await;
        election.send_replace(later(10));
        assert!(leading.begins().await && leading.now());
        tokio::time::advance(seconds(8)).await;
        election.send_replace(later(10));
        let renewed = Instant::now();
        leading.ends().await;
        assert_eq!(renewed.elapsed().as_secs(), 10);
        assert!(!leading.now());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_election_the_last_term_ends_and_no_other_one_begins() {
        let (election, until) = watch::channel(later(10));
        let mut leading = Leading::elected(until);
        drop(election);
        let ended = Instant::now();
        assert!(leading.begins().await);
        leading.ends().await;
        assert_eq!(ended.elapsed().as_secs(), 10);
        assert!(!leading.begins().await);
        let mut alone = Leading::alone();
        assert!(alone.now() && alone.begins().await);
        let ends = tokio::time::timeout(seconds(86_400), alone.ends()).await;
        assert!(ends.is_err(), "the only controller always leads");
    }

    async fn work(begun: &AtomicU32) {
        begun.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_when_the_term_ends_and_begins_again() {
        let (election, until) = watch::channel(None);
        let begun = AtomicU32::new(0);
        let works = async {
            while_leading!(Leading::elected(until), work(&begun));
        };
        let elections = async {
            for (term, wait, expected) in [
                (None, 1, 0),
                (later(10), 1, 1),
                // The end of a term and a new one after it, with and without a message in between.
                (None, 1, 1),
                (later(10), 11, 2),
                (later(20), 1, 3),
                (later(30), 15, 3),
            ] {
                election.send_replace(term);
                tokio::time::sleep(seconds(wait)).await;
                assert_eq!(begun.load(Ordering::Relaxed), expected, "{term:?}");
            }
            drop(election);
        };
        tokio::join!(works, elections);
    }

    /// A change of the election: after this pause, a term of these seconds, or its end.
    fn change() -> impl Strategy<Value = (u64, Option<u64>)> {
        (1..20_u64, prop::option::weighted(0.8, 1..15_u64))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Work runs exactly in the seconds in which the last announced term lasts, whatever the election announces
        /// and when.
        #[test]
        fn work_runs_in_the_terms_and_at_no_other_time(changes in prop::collection::vec(change(), 1..20)) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let (expected, worked) = runtime.block_on(worked(&changes));
            prop_assert_eq!(expected, worked);
        }
    }

    /// Work that records the seconds in which it runs, each in its middle, where no term begins or ends.
    async fn count(start: Instant, worked: &Mutex<Vec<u64>>) {
        loop {
            let since = start.elapsed();
            let second = since.as_secs() + u64::from(since.subsec_millis() >= 500);
            sleep_until(start + seconds(second) + Duration::from_millis(500)).await;
            worked.lock().unwrap().push(second);
        }
    }

    /// The seconds of the terms, and the seconds in which work ran.
    async fn worked(changes: &[(u64, Option<u64>)]) -> (Vec<u64>, Vec<u64>) {
        let start = Instant::now();
        let (election, until) = watch::channel(None);
        let worked = Mutex::new(Vec::new());
        let works = async {
            while_leading!(Leading::elected(until), count(start, &worked));
        };
        let (mut terms, mut last) = (Vec::new(), 0);
        let elections = async {
            let mut now = 0;
            for (pause, term) in changes {
                now += pause;
                terms.retain(|second| *second < now);
                sleep_until(start + seconds(now)).await;
                last = now + term.unwrap_or(0);
                terms.extend(now..last);
                election.send_replace(term.map(|_| start + seconds(last)));
            }
            sleep_until(start + seconds(last + 1)).await;
            drop(election);
        };
        tokio::join!(works, elections);
        (terms, worked.into_inner().unwrap())
    }
}
