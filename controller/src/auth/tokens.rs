//! Reviews agents' tokens with the API server. Concurrent requests with the same token share a review. Rate limits
//! protect the API server when all agents reconnect, and agents from clients that send other tokens.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use super::cache::Cache;
use super::claims::Claims;
use super::issuer::Issuer;
use super::lanes::{Lane, Lanes, Source};
use super::reviewer::Reviewer;
use super::signature::Signature;
use super::token::{Token, TokenHash};
use super::verdict::{self, Identity};
use crate::refusal::{Reason, Refusal};
use crate::telemetry::metrics::Counters;

/// A token that expired longer ago, by the clock of the API server, is refused without a review. The clocks of several
/// API servers differ by less.
const EXPIRY_LEEWAY: Duration = Duration::from_secs(60);

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

/// What follows if a token has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    /// It is refused without a review.
    Refuses,
    /// The API server decides.
    IsReviewed,
}

/// Reviews tokens and caches the verdicts.
#[derive(Debug)]
pub struct Tokens {
    pub(super) options: TokenOptions,
    reviewer: Arc<dyn Reviewer>,
    issuer: Arc<Issuer>,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cache: Cache,
    lanes: Lanes,
    /// Reviews in progress, each shared by all that wait for it.
    flights: HashMap<TokenHash, Flight>,
}

impl Tokens {
    /// Tokens of this issuer that are reviewed by `reviewer`.
    pub fn new(
        options: TokenOptions,
        reviewer: Arc<dyn Reviewer>,
        issuer: Arc<Issuer>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            reviewer,
            issuer,
            counters,
            state: Mutex::default(),
        })
    }

    /// The identity of a token that a client at `source` sent; cached for up to a minute.
    ///
    /// # Errors
    /// [`Refusal`] states what is wrong with it, or that the API server is unavailable.
    pub async fn identity(self: &Arc<Self>, token: &Token, source: Source) -> Verdict {
        self.identity_by(token, source, Expiry::Refuses).await
    }

    async fn identity_by(
        self: &Arc<Self>,
        token: &Token,
        source: Source,
        expiry: Expiry,
    ) -> Verdict {
        let claims = Claims::read(token);
        verdict::claimed(claims.as_ref(), &self.options)?;
        let Some(claims) = claims else {
            return Err(interrupted());
        };
        let hash = token.hash();
        if let Some(verdict) = self.cached(&hash) {
            return verdict;
        }
        // Before everything that others need. A forgery is not cached: it would take the place of another verdict, and
        // finding it costs as much as finding it again.
        let lane = self.lane(token, &claims, source, expiry).await?;
        let mut flight = {
            let mut state = self.state();
            match state.flights.get(&hash) {
                Some(flight) => flight.clone(),
                None => self.take_off(&mut state, hash, token, claims, &lane)?,
            }
        };
        let landed = flight.wait_for(Option::is_some).await;
        let verdict = landed.ok().and_then(|verdict| verdict.clone());
        verdict.unwrap_or_else(|| Err(interrupted()))
    }

    /// The same without the cache, for the token of an open stream. Only the API server ends the stream, also after the
    /// token has expired: while it does not answer, no newer token can be accepted.
    pub(super) async fn identity_now(self: &Arc<Self>, token: &Token, source: Source) -> Verdict {
        self.state().cache.forget(&token.hash());
        self.identity_by(token, source, Expiry::IsReviewed).await
    }

    fn cached(&self, hash: &TokenHash) -> Option<Verdict> {
        self.state().cache.get(hash, Instant::now().into_std())
    }

    /// The lane of a token, or why it needs no review. Only what is certain is refused: an API server knows keys and
    /// issuers that it does not publish, and the clock of this machine plays no part.
    async fn lane(
        &self,
        token: &Token,
        claims: &Claims,
        source: Source,
        expiry: Expiry,
    ) -> Result<Lane, Refusal> {
        let undecided = Lane::Undecided(source);
        let Some(known) = self.issuer.known().await else {
            self.issuer.want();
            return Ok(undecided);
        };
        match known.keys.check(token) {
            Signature::Forged => return Err(verdict::forged()),
            Signature::Undecided => {
                self.issuer.want();
                return Ok(undecided);
            }
            Signature::Genuine => {}
        }
        // The document names only the first of several issuers.
        let is_other = |name: &String| *name != claims.issuer;
        if known.name.as_ref().is_some_and(is_other) {
            self.issuer.want();
            return Ok(undecided);
        }
        let now = known.time(Instant::now());
        let earliest = now.and_then(|now| now.checked_sub(EXPIRY_LEEWAY));
        let has_ended = |end: &SystemTime| earliest.is_some_and(|earliest| *end < earliest);
        if let Some(end) = claims.expires.filter(has_ended)
            && expiry == Expiry::Refuses
        {
            return Err(verdict::expired(end));
        }
        // Tokens without a node share a budget: the review rejects them.
        Ok(Lane::Genuine(claims.node.clone().unwrap_or_default()))
    }

    /// The time by the clock of the API server, or else of this machine.
    fn now(&self) -> SystemTime {
        self.issuer.time().unwrap_or_else(SystemTime::now)
    }

    /// Starts a review, which continues even if no caller waits any more.
    fn take_off(
        self: &Arc<Self>,
        state: &mut State,
        hash: TokenHash,
        token: &Token,
        claims: Claims,
        lane: &Lane,
    ) -> Result<Flight, Refusal> {
        let Some(wait) = state.lanes.take(lane, Instant::now().into_std()) else {
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
            let (now, wall) = (Instant::now().into_std(), tokens.now());
            let mut state = tokens.state();
            state.cache.put(hash, &verdict, now, wall);
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
        verdict::reviewed(&status, claims, &self.options, self.now())
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
pub(super) mod tests;
