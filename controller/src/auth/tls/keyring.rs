//! The controller's own CA and server certificate: which step of the rotation is due. Time is an argument.
//!
//! A CA is replaced with an overlap. The next CA is published first, so that agents trust both; then it signs; the
//! old CA is removed when no valid certificate of it can be in use.
//!
//! All controllers share one keyring, so a controller whose clock was wrong may have written it. What it left is
//! corrected before the timetable applies (`Keyring::correction`).

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::authority;
use super::{Pair, PairError};

/// Time between publishing the next CA and signing with it, and between that and removing the old one, seconds. A
/// day, because volumes in pods are updated late and some nodes are disconnected for a while.
const CA_OVERLAP_SECONDS: u64 = 24 * 3600;
/// Maximum difference between the clocks of two controllers that issue certificates, seconds: each differs from the API
/// server by at most a minute. Certificates are backdated by an hour, so one from less far ahead is already valid.
const MAX_CLOCK_DIFFERENCE_SECONDS: u64 = 600;
/// Maximum number of steps at one time. Fewer suffice from any keyring; the rest is done in the next check.
const MAX_STEPS: usize = 8;

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signed {
    /// As PEM.
    pub(super) certificate: String,
    /// As PEM. It is in no log.
    pub(super) key: String,
    /// Creation time, seconds since 1970.
    pub(super) from: u64,
    /// Expiry time, seconds since 1970.
    pub(super) until: u64,
}

/// A certificate authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    /// Its subject name, the issuer in the certificates that it signs.
    pub(super) name: String,
    pub(super) signed: Signed,
}

/// A CA that no longer signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Retired {
    certificate: String,
    since: u64,
}

/// All keys, in their stored form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keyring {
    authority: Authority,
    /// Trusted already, does not sign yet.
    next: Option<Authority>,
    #[serde(default)]
    retired: Vec<Retired>,
    serving: Signed,
}

/// The step that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before this time, seconds since 1970.
    Nothing(u64),
    /// The CA has no time left for an overlap, so another one signs at once. Only after a clock was wrong by years, or
    /// no controller ran for years.
    Replace,
    /// Issue a new certificate of the same CA.
    Renew,
    /// Create the next CA.
    Announce,
    /// The next CA starts signing.
    Switch,
    /// Remove an old CA.
    Forget,
}

/// A key operation failed.
#[derive(Debug, Error)]
pub(super) enum KeyringError {
    /// The library's error.
    #[error("create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The system has no random numbers.
    #[error("the system provides no random numbers")]
    Chance,
    /// The stored keys are unusable.
    #[error("{0}")]
    Pair(#[from] PairError),
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until, .. } = self;
        write!(f, "Signed({from}..{until})")
    }
}

impl Signed {
    /// When it should be replaced: after three fifths of its lifetime.
    fn renewal(&self) -> u64 {
        let lifetime = self.until.saturating_sub(self.from);
        self.from.saturating_add(lifetime / 5 * 3)
    }

    /// Whether a clock that was ahead created it, so that it may not be valid yet.
    fn is_ahead(&self, now: u64) -> bool {
        is_ahead(self.from, now)
    }
}

impl Authority {
    /// Whether it lasts for the time in which another CA would replace it.
    fn lasts(&self, now: u64) -> bool {
        self.signed.until > now.saturating_add(CA_OVERLAP_SECONDS)
    }

    /// Whether it may sign.
    fn is_usable(&self, now: u64) -> bool {
        self.lasts(now) && !self.signed.is_ahead(now)
    }
}

/// Whether a clock that was ahead recorded this time.
fn is_ahead(time: u64, now: u64) -> bool {
    time > now.saturating_add(MAX_CLOCK_DIFFERENCE_SECONDS)
}

impl Keyring {
    /// The first keyring, for a controller of this name.
    pub(super) fn new(name: &str, now: u64) -> Result<Self, KeyringError> {
        let authority = authority::authority(now)?;
        Ok(Self {
            serving: authority::serving(&authority, name, now)?,
            authority,
            next: None,
            retired: Vec::new(),
        })
    }

    /// A keyring in its stored form; `None` if it was not written by Portolan.
    pub(super) fn read(stored: &[u8]) -> Option<Self> {
        serde_json::from_slice(stored).ok()
    }

    /// The step that is due; one step at a time.
    pub(super) fn due(&self, now: u64) -> Due {
        self.correction(now).unwrap_or_else(|| self.scheduled(now))
    }

    /// The step that corrects what a wrong clock left. Nothing else would: by its own times, such a keyring is due
    /// months later, or at every check.
    fn correction(&self, now: u64) -> Option<Due> {
        let next_is_unusable = match &self.next {
            Some(next) => !next.is_usable(now),
            // Agents do not check the dates of a CA, but other clients do, and its own replacement would be late.
            None => self.authority.signed.is_ahead(now),
        };
        if !self.authority.lasts(now) {
            Some(Due::Replace)
        } else if self.serving.is_ahead(now) {
            Some(Due::Renew)
        } else if next_is_unusable {
            Some(Due::Announce)
        } else if self.retired.iter().any(|old| is_ahead(old.since, now)) {
            Some(Due::Forget)
        } else {
            None
        }
    }

    /// The step that is due by the timetable of the rotation.
    fn scheduled(&self, now: u64) -> Due {
        let forget = self
            .retired
            .iter()
            .map(|old| old.since.saturating_add(CA_OVERLAP_SECONDS))
            .min();
        let switch = self
            .next
            .as_ref()
            .map(|next| next.signed.from.saturating_add(CA_OVERLAP_SECONDS));
        let announce = match self.next {
            None => Some(self.authority.signed.renewal()),
            Some(_) => None,
        };
        let renew = Some(self.serving.renewal());
        let times = [
            (switch, Due::Switch),
            (renew, Due::Renew),
            (announce, Due::Announce),
            (forget, Due::Forget),
        ];
        let mut earliest = u64::MAX;
        for (time, due) in times {
            match time {
                Some(time) if time <= now => return due,
                Some(time) => earliest = earliest.min(time),
                None => {}
            }
        }
        Due::Nothing(earliest)
    }

    /// The keyring after all steps that are due; `None` if none is.
    pub(super) fn settled(&self, name: &str, now: u64) -> Result<Option<Self>, KeyringError> {
        let mut settled = None;
        for _ in 0..MAX_STEPS {
            match settled.as_ref().unwrap_or(self).after(name, now)? {
                Some(after) => settled = Some(after),
                None => break,
            }
        }
        Ok(settled)
    }

    /// The keyring after the step that is due; `None` if none is.
    fn after(&self, name: &str, now: u64) -> Result<Option<Self>, KeyringError> {
        let mut after = self.clone();
        match self.due(now) {
            Due::Nothing(_) => return Ok(None),
            Due::Replace => {
                let next = match after.next.take().filter(|next| next.is_usable(now)) {
                    Some(next) => next,
                    None => authority::authority(now)?,
                };
                after.switch(next, name, now)?;
            }
            Due::Renew => after.serving = authority::serving(&self.authority, name, now)?,
            Due::Announce => after.next = Some(authority::authority(now)?),
            Due::Switch => {
                if let Some(next) = after.next.take() {
                    after.switch(next, name, now)?;
                }
            }
            Due::Forget => {
                for old in &mut after.retired {
                    if is_ahead(old.since, now) {
                        old.since = now;
                    }
                }
                let expires = |old: &Retired| old.since.saturating_add(CA_OVERLAP_SECONDS);
                after.retired.retain(|old| expires(old) > now);
            }
        }
        Ok(Some(after))
    }

    /// From now on, this CA signs.
    fn switch(&mut self, next: Authority, name: &str, now: u64) -> Result<(), KeyringError> {
        self.serving = authority::serving(&next, name, now)?;
        let old = std::mem::replace(&mut self.authority, next);
        self.retired.push(Retired {
            certificate: old.signed.certificate,
            since: now,
        });
        Ok(())
    }

    /// The certificate and key to serve.
    pub(super) fn pair(&self) -> Result<Pair, KeyringError> {
        let Signed {
            certificate, key, ..
        } = &self.serving;
        Ok(Pair::from_pem(certificate.as_bytes(), key.as_bytes())?)
    }

    /// The CAs that agents should trust, PEM.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| &next.signed.certificate);
        let retired = self.retired.iter().map(|old| &old.certificate);
        let own = std::iter::once(&self.authority.signed.certificate);
        own.chain(next).chain(retired).map(String::as_str).collect()
    }
}

/// A stored keyring after all steps that are due, in its stored form; `None` if it cannot be read. For
/// `e2e/fuzz-targets`.
#[must_use]
pub fn settle_stored(stored: &[u8], name: &str, now: u64) -> Option<Result<Vec<u8>, String>> {
    let keyring = Keyring::read(stored)?;
    let settled = match keyring.settled(name, now) {
        Ok(settled) => settled.unwrap_or(keyring),
        Err(error) => return Some(Err(error.to_string())),
    };
    // As in a check of the Secret. A foreign certificate may be unusable.
    drop((settled.bundle(), settled.pair()));
    Some(serde_json::to_vec(&settled).map_err(|error| error.to_string()))
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
pub(super) mod tests;
