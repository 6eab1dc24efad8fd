//! The controllers' own CA, in a Secret that all replicas share, and the CA bundle in a ConfigMap that agents mount.
//! Touches: the clock, the API server, these two objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Presented;
use super::clock::{Clock, ClockError};
use super::keyring::{Due, Keyring, KeyringError};
use crate::auth::Named;

/// Interval between two checks of the Secret, which another replica may have updated.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before the next check after an error.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Timeout of all calls of one check together.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// Key of the keyring in the Secret.
const KEYRING: &str = "keyring.json";
/// Key of the CA bundle in the ConfigMap.
const BUNDLE: &str = "ca.crt";
/// Maximum number of attempts in one check when another replica writes at the same time.
const MAX_WRITE_ATTEMPTS: u32 = 5;

/// Where CA and certificates are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The Secret.
    pub secret: Named,
    /// The ConfigMap.
    pub bundle: Named,
    /// The name in the certificates.
    pub name: String,
}

/// Why CA or certificate could not be updated.
#[derive(Debug, Error)]
enum KeptError {
    #[error("{0}")]
    Calls(#[from] kube::Error),
    #[error("it was not created by Portolan; delete it to let the controller create a new one")]
    Foreign,
    #[error("{0}")]
    Keyring(#[from] KeyringError),
    #[error("{0}")]
    Clock(#[from] ClockError),
    #[error("repeated write conflicts")]
    Conflict,
    #[error("no answer within {} s", CHECK_TIMEOUT.as_secs())]
    Silent,
}

impl KeptError {
    /// Whether it is the problem that was logged already. The difference of two clocks changes by a second now and
    /// then.
    fn is_same(&self, logged: &Self) -> bool {
        match (self, logged) {
            (
                Self::Clock(ClockError::Differs { direction, .. }),
                Self::Clock(ClockError::Differs {
                    direction: other, ..
                }),
            ) => direction == other,
            _ => self.to_string() == logged.to_string(),
        }
    }

    /// Delay before the next check. A clock is corrected by hand or over minutes.
    fn delay(&self) -> Duration {
        match self {
            Self::Clock(ClockError::Differs { .. }) => POLL_INTERVAL,
            _ => RETRY_DELAY,
        }
    }
}

/// Maintains CA and certificate.
pub struct Keeper {
    kept: Kept,
    clock: Clock,
    secrets: Api<Secret>,
    bundles: Api<ConfigMap>,
}

impl Keeper {
    /// A keeper that uses this API server.
    pub fn new(client: Client, kept: Kept) -> Self {
        Self::with_clock(client, kept, SystemTime::now)
    }

    /// Like [`Self::new`], with another wall clock.
    pub fn with_clock(client: Client, kept: Kept, wall: fn() -> SystemTime) -> Self {
        Self {
            clock: Clock::new(client.clone(), wall),
            secrets: Api::namespaced(client.clone(), &kept.secret.namespace),
            bundles: Api::namespaced(client, &kept.bundle.namespace),
            kept,
        }
    }

    /// Checks and rotates while the program runs.
    pub async fn follow(self, presented: Arc<Presented>) {
        let mut logged: Option<KeptError> = None;
        loop {
            let looked = timeout(CHECK_TIMEOUT, self.look(&presented)).await;
            let (secret, bundle) = (&self.kept.secret, &self.kept.bundle);
            match looked.unwrap_or(Err(KeptError::Silent)) {
                Ok(()) => {
                    if logged.take().is_some() {
                        info!(%secret, %bundle, "certificate and CA are kept current again");
                    }
                    sleep(POLL_INTERVAL).await;
                }
                Err(error) => {
                    let delay = error.delay();
                    if logged.as_ref().is_none_or(|logged| !error.is_same(logged)) {
                        warn!(
                            %secret, %bundle,
                            "keeping the previous certificate, if any: {error}"
                        );
                        logged = Some(error);
                    }
                    sleep(delay).await;
                }
            }
        }
    }

    /// Reads the keyring, performs the steps that are due, and serves the result.
    async fn look(&self, presented: &Presented) -> Result<(), KeptError> {
        let (keyring, refused) = self.current().await?;
        // Publish the bundle first: agents must trust a CA before it signs.
        self.publish(keyring.bundle()).await?;
        if presented.replace(keyring.pair()?) {
            let secret = &self.kept.secret;
            info!(%secret, "serving a new certificate");
        }
        // The certificate of the other controllers is served, although this one may not renew it.
        refused.map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// The keyring after all steps that are due; or before them, and why this controller does not perform them.
    async fn current(&self) -> Result<(Keyring, Option<ClockError>), KeptError> {
        let now = self.clock.seconds();
        let name = &self.kept.secret.name;
        let params = PostParams::default();
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let written = match self.secrets.get_opt(name).await? {
                None => {
                    let secret = self.first(ObjectMeta::default(), now).await?;
                    self.secrets.create(&params, &secret).await
                }
                // An installation without the right to create Secrets provides an empty one.
                Some(secret) if secret.data.as_ref().is_none_or(BTreeMap::is_empty) => {
                    let secret = self.first(secret.metadata, now).await?;
                    self.secrets.replace(name, &params, &secret).await
                }
                Some(secret) => {
                    let keyring = read(&secret).ok_or(KeptError::Foreign)?;
                    let due = keyring.due(now);
                    if matches!(due, Due::Nothing(_)) {
                        return Ok((keyring, None));
                    }
                    if let Err(refused) = self.clock.compare().await {
                        return Ok((keyring, Some(refused)));
                    }
                    let Some(settled) = keyring.settled(&self.kept.name, now)? else {
                        return Ok((keyring, None));
                    };
                    info!(secret = %self.kept.secret, ?due, "renewing");
                    let secret = self.secret(&settled, secret.metadata)?;
                    self.secrets.replace(name, &params, &secret).await
                }
            };
            match written {
                Ok(_) => {}
                // Another replica was faster; its keyring is equally good.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(KeptError::Conflict)
    }

    /// The Secret of the first keyring. Without a right clock there is none, and agents cannot connect.
    async fn first(&self, metadata: ObjectMeta, now: u64) -> Result<Secret, KeptError> {
        self.clock.compare().await?;
        info!(secret = %self.kept.secret, "creating a CA, since there is none yet");
        self.secret(&Keyring::new(&self.kept.name, now)?, metadata)
    }

    fn secret(&self, keyring: &Keyring, metadata: ObjectMeta) -> Result<Secret, KeptError> {
        let text = serde_json::to_vec(keyring).map_err(|_| KeptError::Foreign)?;
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(self.kept.secret.name.clone()),
                ..metadata
            },
            data: Some(BTreeMap::from([(KEYRING.to_owned(), ByteString(text))])),
            ..Secret::default()
        })
    }

    async fn publish(&self, bundle: String) -> Result<(), KeptError> {
        let name = &self.kept.bundle.name;
        let params = PostParams::default();
        let present = self.bundles.get_opt(name).await?;
        let data = present.as_ref().and_then(|map| map.data.as_ref());
        if data.and_then(|data| data.get(BUNDLE)) == Some(&bundle) {
            return Ok(());
        }
        let metadata = present.as_ref().map(|map| map.metadata.clone());
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..metadata.unwrap_or_default()
            },
            data: Some(BTreeMap::from([(BUNDLE.to_owned(), bundle)])),
            ..ConfigMap::default()
        };
        match present {
            None => self.bundles.create(&params, &map).await?,
            Some(_) => self.bundles.replace(name, &params, &map).await?,
        };
        Ok(())
    }
}

fn read(secret: &Secret) -> Option<Keyring> {
    let ByteString(text) = secret.data.as_ref()?.get(KEYRING)?;
    Keyring::read(text)
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
