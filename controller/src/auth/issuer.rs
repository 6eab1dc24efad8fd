//! The issuer of service account tokens: its name, its keys and its clock, as the API server publishes them. They are
//! read every few minutes, and sooner if a token names an unknown key.
//!
//! Touches: the API server. The address of the keys in the discovery document is not used: it may be outside of the
//! cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Limited};
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::signature::Keys;
use crate::telemetry::metrics::Counters;

/// The paths, which the ClusterRole system:service-account-issuer-discovery allows as well.
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
const KEYS_PATH: &str = "/openid/v1/jwks";
/// Interval between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(300);
/// Minimum interval between two reads, however many tokens name unknown keys.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(30);
/// Delay after a failed read. It doubles up to [`READ_INTERVAL`].
const INITIAL_BACKOFF: Duration = Duration::from_secs(2);
/// Timeout of one read. Agents that connect to a controller which has just started wait for the first one.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a document. A set of keys has a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
/// Age at which a time is not used any more: the API server's clock may have been corrected meanwhile.
const MAX_CLOCK_AGE: Duration = Duration::from_secs(900);

/// What is known of the issuer.
#[derive(Debug)]
pub(super) struct Known {
    /// Its keys.
    pub(super) keys: Keys,
    /// The claim `iss` of its tokens. `None` if the API server does not publish it.
    pub(super) name: Option<String>,
    clock: Option<Clock>,
}

/// The time by the API server's clock at one instant.
#[derive(Debug, Clone, Copy)]
struct Clock {
    time: SystemTime,
    at: Instant,
}

impl Known {
    /// The time by the clock of the API server. The clock of this machine may be wrong; that of the issuer cannot be,
    /// for its own tokens.
    pub(super) fn time(&self, now: Instant) -> Option<SystemTime> {
        let clock = self.clock?;
        let age = now.saturating_duration_since(clock.at);
        clock.time.checked_add(age).filter(|_| age <= MAX_CLOCK_AGE)
    }
}

#[derive(Debug, Clone, Default)]
enum State {
    /// The first read has not ended.
    Reading,
    /// Every read failed, or there is no API server.
    #[default]
    Unknown,
    Known(Arc<Known>),
}

/// The issuer. While nothing is known of it, every token is left to the API server.
#[derive(Debug, Default)]
pub struct Issuer {
    state: watch::Sender<State>,
    /// A token named an unknown key.
    wanted: Notify,
}

impl Issuer {
    /// The issuer of an API server. It is read for as long as the program runs.
    pub fn follow(client: Client, counters: Arc<Counters>) -> Arc<Self> {
        let issuer = Arc::new(Self {
            state: watch::Sender::new(State::Reading),
            wanted: Notify::new(),
        });
        drop(tokio::spawn(keep(issuer.clone(), client, counters)));
        issuer
    }

    /// What is known. Waits for the first read: agents that reconnect to a controller which was started again would
    /// otherwise be reviewed at the low rate of tokens without a verified signature.
    pub(super) async fn known(&self) -> Option<Arc<Known>> {
        let mut state = self.state.subscribe();
        let read = |state: &State| !matches!(state, State::Reading);
        let state = state.wait_for(read).await;
        match state.as_deref() {
            Ok(State::Known(known)) => Some(known.clone()),
            _ => None,
        }
    }

    /// The time by the clock of the API server, if it is known.
    pub(super) fn time(&self) -> Option<SystemTime> {
        let state = self.state.borrow().clone();
        match state {
            State::Known(known) => known.time(Instant::now()),
            State::Reading | State::Unknown => None,
        }
    }

    /// Asks for a new read, because a token names an unknown key.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Records a read. Returns whether nothing was known before.
    fn read(&self, known: Known) -> bool {
        let before = self.state.send_replace(State::Known(Arc::new(known)));
        !matches!(before, State::Known(_))
    }

    /// Records a failed read. Known keys stay: a removed one is rejected by the review.
    fn not_read(&self) {
        self.state.send_if_modified(|state| {
            let first = matches!(state, State::Reading);
            if first {
                *state = State::Unknown;
            }
            first
        });
    }

    #[cfg(test)]
    pub(super) fn of_test(keys: Keys, name: Option<&str>, time: SystemTime) -> Arc<Self> {
        let issuer = Self::default();
        let at = Instant::now();
        issuer.read(Known {
            keys,
            name: name.map(str::to_owned),
            clock: Some(Clock { time, at }),
        });
        Arc::new(issuer)
    }
}

/// Reads the issuer again and again.
async fn keep(issuer: Arc<Issuer>, client: Client, counters: Arc<Counters>) {
    let (mut said, mut backoff) = (None, INITIAL_BACKOFF);
    loop {
        let began = Instant::now();
        let silent = |_| format!("no answer within {} s", READ_TIMEOUT.as_secs());
        let known = timeout(READ_TIMEOUT, read(&client)).await;
        let wait = match known.map_err(silent).flatten() {
            Ok(known) => {
                let keys = known.keys.len();
                counters.token_keys(keys);
                if issuer.read(known) || said.is_some() {
                    info!(
                        keys,
                        "verifying tokens of agents with the keys of the API server"
                    );
                }
                (said, backoff) = (None, INITIAL_BACKOFF);
                READ_INTERVAL
            }
            Err(why) => {
                issuer.not_read();
                if said.as_ref() != Some(&why) {
                    failed(&why);
                    said = Some(why);
                }
                let wait = backoff;
                backoff = READ_INTERVAL.min(2 * backoff);
                wait
            }
        };
        let due = began + wait;
        tokio::select! {
            () = sleep_until(due) => {}
            () = issuer.wanted.notified() => sleep_until(due.min(began + MIN_READ_INTERVAL)).await,
        }
    }
}

fn failed(why: &str) {
    warn!(
        "cannot read the keys of service account tokens: {why}; tokens are reviewed without verified signatures, at a \
         lower rate; check that the controller may get {KEYS_PATH} and {DISCOVERY_PATH}, as ClusterRole \
         system:service-account-issuer-discovery allows, and that --service-account-issuer of the API server is an \
         https URL"
    );
}

/// The part of the discovery document that is needed.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

async fn read(client: &Client) -> Result<Known, String> {
    let (text, clock) = get(client, KEYS_PATH).await?;
    let keys = keys_of(&text)?;
    // Without a name, the signature alone decides.
    let discovery = get(client, DISCOVERY_PATH).await.ok();
    let name = discovery.and_then(|(text, _)| name_of(&text));
    Ok(Known { keys, name, clock })
}

/// The keys of a key set, at least one.
pub(super) fn keys_of(text: &str) -> Result<Keys, String> {
    let keys = Keys::read(text).map_err(|error| format!("{KEYS_PATH}: {error}"))?;
    if keys.is_empty() {
        return Err(format!("{KEYS_PATH} has no key for RS256, ES256 or ES384"));
    }
    Ok(keys)
}

/// The name of the issuer in its discovery document.
pub(super) fn name_of(text: &str) -> Option<String> {
    let discovery: Discovery = serde_json::from_str(text).ok()?;
    Some(discovery.issuer)
}

/// A document, and the time by the clock of the API server.
async fn get(client: &Client, path: &str) -> Result<(String, Option<Clock>), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    let request = http::Request::get(path).body(Body::empty());
    let request = request.map_err(|error| wrong(&error))?;
    let response = client.send(request).await;
    let response = response.map_err(|error| wrong(&error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("the API server answers {path} with {status}"));
    }
    let date = response.headers().get(http::header::DATE);
    let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok());
    let clock = date.map(|date| Clock {
        time: date.into(),
        at: Instant::now(),
    });
    let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES);
    let body = body.collect().await.map_err(|error| wrong(&error))?;
    let text = String::from_utf8(body.to_bytes().to_vec());
    Ok((text.map_err(|error| wrong(&error))?, clock))
}

#[cfg(test)]
#[path = "issuer_tests.rs"]
mod tests;
