//! A cache of verdicts by the hash of the token.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use super::token::TokenHash;
use super::verdict::Identity;
use crate::refusal::Refusal;

/// Lifetime of a cached identity, unless its token expires earlier.
const ACCEPTED_TTL: Duration = Duration::from_secs(60);
/// Lifetime of a cached refusal. It is short, because the cause may be fixed.
const REFUSED_TTL: Duration = Duration::from_secs(10);
/// Maximum number of cached verdicts. A large cluster has 5,000 agents.
const MAX_ENTRIES: usize = 16_384;

type Verdict = Result<Identity, Refusal>;

/// Recent verdicts.
#[derive(Debug, Default)]
pub(super) struct Cache {
    verdicts: HashMap<TokenHash, (Instant, Verdict)>,
}

impl Cache {
    pub(super) fn get(&self, token: &TokenHash, now: Instant) -> Option<Verdict> {
        let (until, verdict) = self.verdicts.get(token)?;
        (now < *until).then(|| verdict.clone())
    }

    /// Stores a verdict, unless it does not depend on the token.
    pub(super) fn put(
        &mut self,
        token: TokenHash,
        verdict: &Verdict,
        now: Instant,
        wall: SystemTime,
    ) {
        let lasts = match verdict {
            Ok(identity) => identity.expires.map_or(ACCEPTED_TTL, |end| {
                ACCEPTED_TTL.min(end.duration_since(wall).unwrap_or_default())
            }),
            Err(refusal) if refusal.reason.is_passing() => return,
            Err(_) => REFUSED_TTL,
        };
        if self.verdicts.len() >= MAX_ENTRIES {
            self.verdicts.retain(|_, (until, _)| now < *until);
        }
        // A client sends invented tokens faster than entries expire: agents' tokens are then reviewed again.
        if self.verdicts.len() >= MAX_ENTRIES {
            self.verdicts.retain(|_, (_, verdict)| verdict.is_ok());
        }
        if self.verdicts.len() < MAX_ENTRIES {
            self.verdicts.insert(token, (now + lasts, verdict.clone()));
        }
    }

    pub(super) fn forget(&mut self, token: &TokenHash) {
        self.verdicts.remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Reason;

    fn good(seconds: u64) -> Verdict {
        Ok(Identity {
            pod: None,
            node: "node-a".into(),
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
        })
    }

    #[test]
    fn a_verdict_lasts_a_minute_at_most_and_never_longer_than_its_token() {
        let start = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let refused = |reason| Err(Refusal::new(reason, "no"));
        let cases = [
            (good(5000), 60),
            (good(1030), 30),
            (good(990), 0),
            (refused(Reason::not_accepted), 10),
            (refused(Reason::busy), 0),
            (refused(Reason::api_server), 0),
        ];
        for (verdict, seconds) in cases {
            let mut cache = Cache::default();
            cache.put([1; 32], &verdict, start, wall);
            let at = |milliseconds| start + Duration::from_millis(milliseconds);
            let end = seconds * 1000;
            if seconds > 0 {
                let before = cache.get(&[1; 32], at(end - 1));
                assert_eq!(before.as_ref(), Some(&verdict));
            }
            assert_eq!(cache.get(&[1; 32], at(end)), None, "{verdict:?}");
            assert_eq!(cache.get(&[2; 32], start), None);
        }
    }

    #[test]
    fn made_up_tokens_do_not_fill_the_memory_nor_displace_agents() {
        let (start, wall) = (Instant::now(), SystemTime::UNIX_EPOCH);
        let mut cache = Cache::default();
        cache.put([255; 32], &good(5000), start, wall);
        let bad = Err(Refusal::new(Reason::not_accepted, "no"));
        for number in 0..2 * MAX_ENTRIES {
            let mut token = [0; 32];
            token[..8].copy_from_slice(&number.to_le_bytes());
            cache.put(token, &bad, start, wall);
        }
        assert!(cache.verdicts.len() <= MAX_ENTRIES);
        assert_eq!(cache.get(&[255; 32], start), Some(good(5000)));
    }
}
