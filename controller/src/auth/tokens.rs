//! Reviews agents' tokens with the API server. Concurrent requests with the same token share a review, and a rate
//! limit protects the API server when all agents reconnect.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use super::cache::Cache;
use super::claims::Claims;
use super::reviewer::Reviewer;
use super::token::{Token, TokenHash};
use super::verdict::{self, Identity};
use crate::bucket::Bucket;
use crate::refusal::{Reason, Refusal};
use crate::telemetry::metrics::Counters;

/// Token reviews per second after the first burst: 5,000 agents pass in less than a minute.
const REVIEWS_PER_SECOND: u32 = 100;
/// Token reviews that may be requested at once.
const REVIEW_BURST: u32 = 200;
/// Maximum wait for a token review. An agent that would wait longer is asked to retry later.
const MAX_REVIEW_WAIT: Duration = Duration::from_secs(5);

/// An object by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not NAMESPACE/NAME");
        let is_part = |part: &str| {
            let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !part.is_empty() && part.len() <= 253 && part.chars().all(known)
        };
        let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
        if !is_part(namespace) || !is_part(name) {
            return Err(wrong());
        }
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
        })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Requirements for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOptions {
    /// The required audience.
    pub audience: String,
    /// The service account of agents.
    pub account: Named,
    /// Minimum time between two reviews of a stream's token.
    pub review_period: Duration,
}

impl TokenOptions {
    /// The username of the account in reviews.
    pub(super) fn username(&self) -> String {
        let Named { namespace, name } = &self.account;
        format!("system:serviceaccount:{namespace}:{name}")
    }
}

type Verdict = Result<Identity, Refusal>;
type Flight = watch::Receiver<Option<Verdict>>;

/// Reviews tokens and caches the verdicts.
#[derive(Debug)]
pub struct Tokens {
    pub(super) options: TokenOptions,
    reviewer: Arc<dyn Reviewer>,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cache: Cache,
    bucket: Bucket,
    /// Reviews in progress, each shared by all that wait for it.
    flights: HashMap<TokenHash, Flight>,
}

impl Tokens {
    /// Tokens that are reviewed by `reviewer`.
    pub fn new(
        options: TokenOptions,
        reviewer: Arc<dyn Reviewer>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            reviewer,
            counters,
            state: Mutex::new(State {
                cache: Cache::default(),
                bucket: Bucket::new(REVIEWS_PER_SECOND, REVIEW_BURST, MAX_REVIEW_WAIT),
                flights: HashMap::new(),
            }),
        })
    }

    /// The identity of a token; cached for up to a minute.
    ///
    /// # Errors
    /// [`Refusal`] states what is wrong with it, or that the API server is unavailable.
    pub async fn identity(self: &Arc<Self>, token: &Token) -> Verdict {
        let claims = Claims::read(token);
        verdict::claimed(claims.as_ref(), &self.options)?;
        let Some(claims) = claims else {
            return Err(interrupted());
        };
        let hash = token.hash();
        let mut flight = {
            let mut state = self.state();
            if let Some(verdict) = state.cache.get(&hash, Instant::now().into_std()) {
                return verdict;
            }
            match state.flights.get(&hash) {
                Some(flight) => flight.clone(),
                None => self.take_off(&mut state, hash, token, claims)?,
            }
        };
        let landed = flight.wait_for(Option::is_some).await;
        let verdict = landed.ok().and_then(|verdict| verdict.clone());
        verdict.unwrap_or_else(|| Err(interrupted()))
    }

    /// The same without the cache.
    pub(super) async fn identity_now(self: &Arc<Self>, token: &Token) -> Verdict {
        self.state().cache.forget(&token.hash());
        self.identity(token).await
    }

    /// Starts a review, which continues even if no caller waits any more.
    fn take_off(
        self: &Arc<Self>,
        state: &mut State,
        hash: TokenHash,
        token: &Token,
        claims: Claims,
    ) -> Result<Flight, Refusal> {
        let Some(wait) = state.bucket.take(Instant::now().into_std()) else {
            return Err(Refusal::new(
                Reason::busy,
                "too many agents connect at once; token reviews are rate-limited, retry \
                 in some seconds",
            ));
        };
        let (landing, flight) = watch::channel(None);
        state.flights.insert(hash, flight.clone());
        let (tokens, token) = (self.clone(), token.clone());
        drop(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let verdict = tokens.review(&token, &claims).await;
            let mut state = tokens.state();
            let now = Instant::now().into_std();
            state.cache.put(hash, &verdict, now, SystemTime::now());
            state.flights.remove(&hash);
            drop(state);
            landing.send_replace(Some(verdict));
        }));
        Ok(flight)
    }

    async fn review(&self, token: &Token, claims: &Claims) -> Verdict {
        let audience = Some(&*self.options.audience);
        let status = self.reviewer.review(token, audience).await;
        self.counters.reviewed(status.is_ok());
        let status = status.map_err(|why| {
            let message = format!(
                "the API server cannot review the token: {why}; nodes keep their programmed state"
            );
            Refusal::new(Reason::api_server, message)
        })?;
        verdict::reviewed(&status, claims, &self.options, SystemTime::now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupted() -> Refusal {
    Refusal::new(Reason::api_server, "this controller is ending")
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
