//! Leader election: decides which controller holds the lease. Pure; times are arguments.
//!
//! Invariant: two candidates whose clocks run at the same speed never lead at once. A leader stops [`Terms::trust`]
//! after its last renewal; a follower takes over if it saw no renewal for [`Terms::lasts`], which is longer. The
//! times in the Lease are only informative, since the clocks of machines differ.

use std::time::Duration;

/// Durations of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Duration for which a lease without renewal keeps other candidates away.
    pub lasts: Duration,
    /// Duration for which the holder relies on the lease after the last renewal.
    pub trust: Duration,
    /// Interval of reading and renewing the lease.
    pub every: Duration,
}

impl Default for Terms {
    /// The durations of Kubernetes' own controllers.
    fn default() -> Self {
        Self {
            lasts: Duration::from_secs(15),
            trust: Duration::from_secs(10),
            every: Duration::from_secs(2),
        }
    }
}

/// A lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The holder; empty if the lease is free.
    pub holder: String,
    /// The object's resource version: a new one shows that the holder is alive.
    pub version: String,
}

/// The action on the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write this candidate's name into it.
    Take,
    /// Renew it.
    Renew,
    /// Leave it to its holder.
    Follow,
}

/// A candidate for leadership.
#[derive(Debug)]
pub struct Candidate {
    name: String,
    terms: Terms,
    /// The last lease read, and when the first answer with this version arrived.
    seen: Option<(Seen, Duration)>,
    /// Start time of the last successful write.
    renewed: Option<Duration>,
}

impl Candidate {
    /// A candidate with this unique name.
    pub fn new(name: String, terms: Terms) -> Self {
        Self {
            name,
            terms,
            seen: None,
            renewed: None,
        }
    }

    /// The action on a lease that was just read, by a request at `asked` with an answer at `answered`; `None` if there is
    /// no lease. The server may have read it at any time in between, so neither time alone would do: a request can hang
    /// for as long as its timeout.
    pub fn decide(&mut self, lease: Option<Seen>, asked: Duration, answered: Duration) -> Decision {
        let Some(lease) = lease else {
            self.seen = None;
            return Decision::Take;
        };
        if lease.holder == self.name {
            // A lease from before a restart under the same name counts only once it is renewed.
            return Decision::Renew;
        }
        self.renewed = None;
        let since = match &self.seen {
            Some((seen, since)) if *seen == lease => *since,
            _ => answered,
        };
        let free = lease.holder.is_empty();
        self.seen = Some((lease, since));
        if free || asked.saturating_sub(since) >= self.terms.lasts {
            Decision::Take
        } else {
            Decision::Follow
        }
    }

    /// Records that a write which started at `begun` succeeded.
    pub fn wrote(&mut self, begun: Duration) {
        self.renewed = Some(begun);
        self.seen = None;
    }

    /// Whether this candidate leads.
    pub fn leads(&self, now: Duration) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// The time at which it stops leading without a renewal; `None` if it does not lead.
    pub fn until(&self) -> Option<Duration> {
        self.renewed.map(|renewed| renewed + self.terms.trust)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(holder: &str, version: &str) -> Option<Seen> {
        Some(Seen {
            holder: holder.into(),
            version: version.into(),
        })
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_for_its_time() {
        let mut candidate = Candidate::new("b".into(), Terms::default());
        let decide = |candidate: &mut Candidate, lease, now| candidate.decide(lease, now, now);
        let (take, renew, follow) = (Decision::Take, Decision::Renew, Decision::Follow);
        assert_eq!(decide(&mut candidate, None, s(0)), take);
        assert_eq!(decide(&mut candidate, lease("", "1"), s(1)), take);
        assert_eq!(decide(&mut candidate, lease("a", "2"), s(2)), follow);
        assert_eq!(decide(&mut candidate, lease("a", "3"), s(10)), follow);
        assert_eq!(decide(&mut candidate, lease("a", "3"), s(24)), follow);
        assert_eq!(decide(&mut candidate, lease("a", "3"), s(25)), take);
        assert!(!candidate.leads(s(25)), "it was not written yet");
        candidate.wrote(s(25));
        assert!(candidate.leads(s(34)) && !candidate.leads(s(35)));
        assert_eq!(decide(&mut candidate, lease("b", "4"), s(27)), renew);
        assert_eq!(decide(&mut candidate, lease("c", "5"), s(29)), follow);
        assert!(!candidate.leads(s(29)), "another candidate holds it");
    }

    #[test]
    fn a_request_that_hangs_shortens_no_wait() {
        let mut candidate = Candidate::new("b".into(), Terms::default());
        let mut decide = |asked, answered| candidate.decide(lease("a", "1"), s(asked), s(answered));
        assert_eq!(decide(0, 9), Decision::Follow);
        assert_eq!(
            decide(16, 16),
            Decision::Follow,
            "it was renewed at 8 s, or later"
        );
        assert_eq!(
            decide(23, 30),
            Decision::Follow,
            "the answer may be of 23 s"
        );
        assert_eq!(decide(24, 24), Decision::Take);
    }

    /// A lease at a server with optimistic concurrency.
    #[derive(Default)]
    struct Server {
        holder: String,
        version: u64,
    }

    proptest! {
        /// Holds for any order of writes, any pauses and any lost answers. The lease is never released here, so a new
        /// leader also leaves the time for requests that the server still holds.
        #[test]
        fn two_never_lead_at_once_and_a_new_leader_waits_for_requests_of_the_former_one(
            turns in prop::collection::vec(
                (0usize..3, 0u64..9, 0u64..12, 0u64..4, any::<bool>()),
                1..200,
            ),
        ) {
            let mut server = Server::default();
            let mut candidates: Vec<_> = ["a", "b", "c"]
                .map(|name| Candidate::new(name.into(), Terms::default()))
                .into();
            let mut now = s(0);
            let mut ends: [Option<Duration>; 3] = [None; 3];
            // A candidate sends one request at a time.
            let mut idle = [s(0); 3];
            for (who, pause, hangs, takes, lost) in turns {
                now += s(pause);
                // The request was sent before other candidates wrote, and reaches the server now.
                let begun = idle[who].max(now.saturating_sub(s(hangs)));
                let read = lease(&server.holder, &server.version.to_string());
                let version = server.version;
                let candidate = &mut candidates[who];
                let decision = candidate.decide(read, begun, now);
                now += s(takes);
                idle[who] = now;
                if decision != Decision::Follow && server.version == version {
                    server.holder.clone_from(&candidate.name);
                    server.version += 1;
                    if !lost {
                        candidate.wrote(begun);
                        ends[who] = candidate.until();
                        let mut others = (0..3).filter(|other| *other != who).filter_map(|other| ends[other]);
                        prop_assert!(others.all(|end| now >= end + s(5)));
                    }
                }
                let leading = candidates.iter().filter(|candidate| candidate.leads(now)).count();
                prop_assert!(leading <= 1);
            }
        }
    }
}
