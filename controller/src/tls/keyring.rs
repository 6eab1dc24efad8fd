//! The controller's own authority and certificate: what is due, with time as an argument.
//!
//! An authority is replaced with an overlap: the next one is announced first, so that agents believe both,
//! then it signs, and the old one is forgotten when nobody can show a certificate of it any more.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::authority;
use super::{Pair, PairError};

/// How long agents hear of a next authority before it signs, and of an old one after it did, in seconds:
/// a day, because what is mounted into pods comes late and some nodes are away for a while.
const OVERLAP: u64 = 24 * 3600;

/// A certificate and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signed {
    /// As PEM.
    pub(super) certificate: String,
    /// As PEM. It is in no log.
    pub(super) key: String,
    /// When it was made, in seconds since 1970.
    pub(super) from: u64,
    /// When it ends.
    pub(super) until: u64,
}

/// Who signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Authority {
    /// Its name, which is in what it signs.
    pub(super) name: String,
    pub(super) signed: Signed,
}

/// An authority that signs no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Retired {
    certificate: String,
    since: u64,
}

/// All of it, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keyring {
    authority: Authority,
    /// Believed already, signs nothing yet.
    next: Option<Authority>,
    #[serde(default)]
    retired: Vec<Retired>,
    serving: Signed,
}

/// What has to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before then, in seconds since 1970.
    Nothing(u64),
    /// A new certificate of the same authority.
    Renew,
    /// A next authority.
    Announce,
    /// The next authority signs.
    Switch,
    /// An old one is not believed any more.
    Forget,
}

/// Keys cannot be made or used.
#[derive(Debug, Error)]
pub(super) enum KeyringError {
    /// The library says why.
    #[error("make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The system has no chance.
    #[error("the system gives no random numbers")]
    Chance,
    /// What is kept cannot be used.
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
    /// When it should be replaced: before two thirds of its life are over.
    fn renewal(&self) -> u64 {
        self.from + self.until.saturating_sub(self.from) / 5 * 3
    }
}

impl Keyring {
    /// A first one, for a controller of this name.
    pub(super) fn new(name: &str, now: u64) -> Result<Self, KeyringError> {
        let authority = authority::authority(now)?;
        Ok(Self {
            serving: authority::serving(&authority, name, now)?,
            authority,
            next: None,
            retired: Vec::new(),
        })
    }

    /// What has to be done now, one thing at a time.
    pub(super) fn due(&self, now: u64) -> Due {
        let forget = self.retired.iter().map(|old| old.since + OVERLAP).min();
        let switch = self.next.as_ref().map(|next| next.signed.from + OVERLAP);
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

    /// The same after what is due was done; `None` when nothing is.
    pub(super) fn after(&self, name: &str, now: u64) -> Result<Option<Self>, KeyringError> {
        let mut after = self.clone();
        match self.due(now) {
            Due::Nothing(_) => return Ok(None),
            Due::Renew => after.serving = authority::serving(&self.authority, name, now)?,
            Due::Announce => after.next = Some(authority::authority(now)?),
            Due::Switch => {
                if let Some(next) = after.next.take() {
                    after.serving = authority::serving(&next, name, now)?;
                    let old = std::mem::replace(&mut after.authority, next);
                    after.retired.push(Retired {
                        certificate: old.signed.certificate,
                        since: now,
                    });
                }
            }
            Due::Forget => after.retired.retain(|old| old.since + OVERLAP > now),
        }
        Ok(Some(after))
    }

    /// What is shown to agents.
    pub(super) fn pair(&self) -> Result<Pair, KeyringError> {
        let Signed {
            certificate, key, ..
        } = &self.serving;
        Ok(Pair::from_pem(certificate.as_bytes(), key.as_bytes())?)
    }

    /// Whom agents should believe, as PEM.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| &next.signed.certificate);
        let retired = self.retired.iter().map(|old| &old.certificate);
        let own = std::iter::once(&self.authority.signed.certificate);
        own.chain(next).chain(retired).map(String::as_str).collect()
    }
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
mod tests;
