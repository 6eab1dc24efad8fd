//! The users of the admin pages: what the API server decided about them, and how often it is asked. `kubectl proxyplan
//! wait` asks several times a second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::authorize::{Denied, authorize};
use crate::auth::{Reviewer, Token, TokenHash};
use crate::bucket::{Bucket, Rate, Shares};

/// Lifetime of a decision, as in API servers.
const DECISION_TTL: Duration = Duration::from_secs(10);
/// Maximum number of kept decisions. Beyond it, those that permit something stay.
const MAX_DECISIONS: usize = 1024;
/// Requests from one address that need the API server: per second, and at once.
const REVIEWS_PER_ADDRESS: Rate = Rate::new(5, 20);
/// The same from all addresses.
const REVIEWS: (u32, u32) = (20, 60);

/// The users.
#[derive(Debug)]
pub struct Visitors {
    /// Reviews tokens; without it, every token is rejected.
    reviewer: Option<Arc<dyn Reviewer>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    decisions: HashMap<TokenHash, (Instant, Result<(), Denied>)>,
    of_address: Shares<IpAddr>,
    all: Bucket,
}

impl Visitors {
    /// Users whose tokens this reviewer reviews.
    pub fn new(reviewer: Option<Arc<dyn Reviewer>>) -> Self {
        let (a_second, burst) = REVIEWS;
        Self {
            reviewer,
            state: Mutex::new(State {
                decisions: HashMap::new(),
                of_address: Shares::new(REVIEWS_PER_ADDRESS, Duration::ZERO),
                all: Bucket::new(a_second, burst, Duration::ZERO),
            }),
        }
    }

    /// Checks whether the user of this `authorization` header may get a path, and waits for the right to compute an
    /// answer, which lasts as long as the result. Each path needs a [`Visitors`] of its own.
    ///
    /// # Errors
    /// [`Denied`] with 401 if there is no token or the API server does not accept it, 403 if no rule allows the path,
    /// 429 beyond the rate of requests that need the API server, and 503 if the API server is unavailable.
    pub async fn admit(
        &self,
        header: Option<&str>,
        path: &str,
        from: IpAddr,
    ) -> Result<(), Denied> {
        let Some(reviewer) = self.reviewer.as_deref() else {
            let words = "this controller has no API server that could review the token";
            return Err(Denied::new(401, words));
        };
        let Some(token) = header.and_then(Token::of_header) else {
            let words = "the request has no token (authorization: Bearer); create one with `kubectl create token`";
            return Err(Denied::new(401, words));
        };
        let hash = token.hash();
        let decided = self.state().decision(&hash, from, Instant::now())?;
        if let Some(decision) = decided {
            return decision;
        }
        let decision = authorize(reviewer, &token, path).await;
        self.state().keep(hash, &decision, Instant::now());
        decision
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The kept decision about a token. `None` if the API server has to be asked, for which this takes a part of the
    /// rates.
    fn decision(
        &mut self,
        token: &TokenHash,
        from: IpAddr,
        now: Instant,
    ) -> Result<Option<Result<(), Denied>>, Denied> {
        if let Some((until, decision)) = self.decisions.get(token)
            && now < *until
        {
            return Ok(Some(decision.clone()));
        }
        let now = now.into_std();
        // Its own rate first: a client beyond that takes nothing from the others.
        let own = self.of_address.take(&from, now);
        if own.and_then(|_| self.all.take(now)).is_some() {
            return Ok(None);
        }
        let words = "too many requests need the API server; retry in a second";
        Err(Denied::new(429, words))
    }

    fn keep(&mut self, token: TokenHash, decision: &Result<(), Denied>, now: Instant) {
        if decision.as_ref().is_err_and(Denied::is_passing) {
            return;
        }
        if self.decisions.len() >= MAX_DECISIONS {
            self.decisions.retain(|_, (until, _)| now < *until);
        }
        if self.decisions.len() >= MAX_DECISIONS {
            self.decisions.retain(|_, (_, decision)| decision.is_ok());
        }
        if self.decisions.len() < MAX_DECISIONS {
            let until = now + DECISION_TTL;
            self.decisions.insert(token, (until, decision.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::time::advance;

    use super::super::authorize::tests::Rules;
    use super::*;

    const PATH: &str = "/convergence";

    fn visitors() -> (Arc<Rules>, Visitors) {
        let rules: Arc<Rules> = Arc::default();
        let visitors = Visitors::new(Some(rules.clone()));
        (rules, visitors)
    }

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// The status of the answer to the user of this name.
    async fn ask(visitors: &Visitors, name: &str, from: u8) -> u16 {
        let header = format!("Bearer {name}");
        let admitted = visitors.admit(Some(&header), PATH, at(from)).await;
        admitted.map_or_else(|denied| denied.status, |_| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_needs_a_token_and_an_api_server() {
        let (rules, visitors) = visitors();
        for header in [None, Some("Basic ada")] {
            let denied = visitors.admit(header, PATH, at(1)).await.unwrap_err();
            assert_eq!(denied.status, 401);
            assert!(
                denied.message.contains("kubectl create token"),
                "{denied:?}"
            );
        }
        let without = Visitors::new(None);
        assert_eq!(ask(&without, "ada", 1).await, 401);
        assert_eq!(rules.reviews.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_lasts_ten_seconds_unless_the_api_server_was_away() {
        let (rules, visitors) = visitors();
        for (name, status, kept) in [("ada", 200, true), ("eve", 401, true), ("away", 503, false)] {
            let before = rules.reviews.load(Ordering::Relaxed);
            let reviews = || rules.reviews.load(Ordering::Relaxed) - before;
            for _ in 0..3 {
                assert_eq!(ask(&visitors, name, 1).await, status);
            }
            assert_eq!(reviews(), if kept { 1 } else { 3 }, "{name}");
            advance(DECISION_TTL).await;
            assert_eq!(ask(&visitors, name, 1).await, status);
            assert_eq!(reviews(), if kept { 2 } else { 4 }, "{name}");
        }
    }

    /// Invented tokens in mass.
    #[tokio::test(start_paused = true)]
    async fn one_address_takes_its_share_of_reviews_only() {
        let (rules, visitors) = visitors();
        assert_eq!(ask(&visitors, "ada", 2).await, 200);
        let mut limited = 0;
        for number in 0..1000 {
            limited += u32::from(ask(&visitors, &format!("eve-{number}"), 1).await == 429);
        }
        let burst = REVIEWS_PER_ADDRESS.burst;
        assert_eq!(limited, 1000 - burst);
        assert_eq!(ask(&visitors, "ada", 1).await, 200, "she was decided about");
        assert_eq!(ask(&visitors, "bob", 2).await, 403, "another address");
        let reviews = u32::try_from(rules.reviews.load(Ordering::Relaxed));
        assert_eq!(reviews, Ok(burst + 2));
    }

    #[tokio::test(start_paused = true)]
    async fn all_addresses_share_a_rate() {
        let (_, visitors) = visitors();
        let mut reviewed = 0;
        for number in 0..200 {
            let name = format!("eve-{number}");
            reviewed += u32::from(ask(&visitors, &name, number).await == 401);
        }
        let (a_second, burst) = REVIEWS;
        assert_eq!(reviewed, burst);
        advance(Duration::from_secs(1)).await;
        let mut later = 0;
        for number in 0..200 {
            let name = format!("eva-{number}");
            later += u32::from(ask(&visitors, &name, number).await == 401);
        }
        assert_eq!(later, a_second);
    }

    #[test]
    fn invented_tokens_do_not_fill_the_memory_nor_displace_users() {
        let (_, visitors) = visitors();
        let (mut state, now) = (visitors.state(), Instant::now());
        state.keep([255; 32], &Ok(()), now);
        let denied = Err(Denied::new(401, "no"));
        for number in 0..2 * MAX_DECISIONS {
            let mut token = [0; 32];
            token[..8].copy_from_slice(&number.to_le_bytes());
            state.keep(token, &denied, now);
        }
        assert!(state.decisions.len() <= MAX_DECISIONS);
        assert_eq!(state.decision(&[255; 32], at(1), now), Ok(Some(Ok(()))));
    }
}
