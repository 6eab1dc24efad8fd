//! Who of several controllers writes what only one may write. Pure; times are arguments.
//!
//! Invariant: of two candidates whose clocks run at the same speed never both lead. Who leads stops
//! after [`Terms::trust`] without a renewal, who waits takes over after [`Terms::lasts`] in which it saw
//! none, and the first is shorter. Times in the lease itself are for people: clocks of machines differ.

use std::time::Duration;

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease that is not renewed keeps others away.
    pub lasts: Duration,
    /// How long its holder trusts it after the last renewal.
    pub trust: Duration,
    /// How often it is looked at and renewed.
    pub every: Duration,
}

impl Default for Terms {
    /// As Kubernetes' own controllers.
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
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// The object's version: another one is a sign of life.
    pub version: String,
}

/// What to do about the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Write our name into it.
    Take,
    /// Say that we are still there.
    Renew,
    /// Leave it to its holder.
    Follow,
}

/// One of those who may lead.
#[derive(Debug)]
pub struct Candidate {
    name: String,
    terms: Terms,
    /// What was seen last, and when it was seen first.
    seen: Option<(Seen, Duration)>,
    /// When the last write that succeeded was begun.
    renewed: Option<Duration>,
}

impl Candidate {
    /// A candidate of this name, which nobody else has.
    pub fn new(name: String, terms: Terms) -> Self {
        Self {
            name,
            terms,
            seen: None,
            renewed: None,
        }
    }

    /// What to do about a lease that was read just now; `None` for one that is not there.
    pub fn decide(&mut self, lease: Option<Seen>, now: Duration) -> Decision {
        let Some(lease) = lease else {
            self.seen = None;
            return Decision::Take;
        };
        if lease.holder == self.name {
            // Ours from before a restart under the same name is not ours before it is renewed.
            return Decision::Renew;
        }
        self.renewed = None;
        let since = match &self.seen {
            Some((seen, since)) if *seen == lease => *since,
            _ => now,
        };
        let free = lease.holder.is_empty();
        self.seen = Some((lease, since));
        if free || now.saturating_sub(since) >= self.terms.lasts {
            Decision::Take
        } else {
            Decision::Follow
        }
    }

    /// A write that was begun at this time succeeded.
    pub fn wrote(&mut self, begun: Duration) {
        self.renewed = Some(begun);
        self.seen = None;
    }

    /// Whether this candidate leads.
    pub fn leads(&self, now: Duration) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// When it stops leading unless it renews; `None` when it does not lead.
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
        assert_eq!(candidate.decide(None, s(0)), Decision::Take);
        assert_eq!(candidate.decide(lease("", "1"), s(1)), Decision::Take);
        assert_eq!(candidate.decide(lease("a", "2"), s(2)), Decision::Follow);
        assert_eq!(candidate.decide(lease("a", "3"), s(10)), Decision::Follow);
        assert_eq!(candidate.decide(lease("a", "3"), s(24)), Decision::Follow);
        assert_eq!(candidate.decide(lease("a", "3"), s(25)), Decision::Take);
        assert!(!candidate.leads(s(25)), "it was not written yet");
        candidate.wrote(s(25));
        assert!(candidate.leads(s(34)) && !candidate.leads(s(35)));
        assert_eq!(candidate.decide(lease("b", "4"), s(27)), Decision::Renew);
        assert_eq!(candidate.decide(lease("c", "5"), s(29)), Decision::Follow);
        assert!(!candidate.leads(s(29)), "somebody else has it");
    }

    /// A lease at a server that takes a write only of the version that was read.
    #[derive(Default)]
    struct Server {
        holder: String,
        version: u64,
    }

    proptest! {
        /// Whatever order they come in, however long each is away, and whatever answers are lost.
        #[test]
        fn two_never_lead_at_once(
            turns in prop::collection::vec((0usize..3, 0u64..9, 0u64..4, any::<bool>()), 1..200),
        ) {
            let mut server = Server::default();
            let mut candidates: Vec<_> = ["a", "b", "c"]
                .map(|name| Candidate::new(name.into(), Terms::default()))
                .into();
            let mut now = s(0);
            for (who, pause, takes, lost) in turns {
                now += s(pause);
                let read = lease(&server.holder, &server.version.to_string());
                let version = server.version;
                let candidate = &mut candidates[who];
                let decision = candidate.decide(read, now);
                let begun = now;
                now += s(takes);
                if decision != Decision::Follow && server.version == version {
                    server.holder.clone_from(&candidate.name);
                    server.version += 1;
                    if !lost {
                        candidate.wrote(begun);
                    }
                }
                let leading = candidates.iter().filter(|candidate| candidate.leads(now)).count();
                prop_assert!(leading <= 1);
            }
        }
    }
}
