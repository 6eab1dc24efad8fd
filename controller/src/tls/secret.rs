//! An authority of the controller's own, in a Secret that all its replicas share, and whom to believe in a
//! ConfigMap that agents mount. Touches: the API server, these two objects.

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
use super::keyring::{Keyring, KeyringError};
use crate::trust::Named;

/// How often the Secret is read: another replica may have replaced it.
const LOOK: Duration = Duration::from_secs(60);
/// The same while something is wrong.
const RETRY: Duration = Duration::from_secs(5);
/// How long all calls of a look may take.
const LONGEST: Duration = Duration::from_secs(30);
/// Where it is in the Secret.
const KEYRING: &str = "keyring.json";
/// Where it is in the ConfigMap.
const BUNDLE: &str = "ca.crt";
/// How often a conflict with another replica is tried again at once.
const ATTEMPTS: u32 = 5;

/// Where they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The Secret.
    pub secret: Named,
    /// The ConfigMap.
    pub bundle: Named,
    /// The name that certificates are for.
    pub name: String,
}

/// What keeps it from being kept.
#[derive(Debug, Error)]
enum KeptError {
    #[error("{0}")]
    Calls(#[from] kube::Error),
    #[error("what is in it is not ours; delete it, and a new one is made")]
    Foreign,
    #[error("{0}")]
    Keyring(#[from] KeyringError),
    #[error("others write it all the time")]
    Conflict,
    #[error("no answer within {} s", LONGEST.as_secs())]
    Silent,
}

/// Whoever keeps them.
pub struct Keeper {
    kept: Kept,
    secrets: Api<Secret>,
    bundles: Api<ConfigMap>,
}

impl Keeper {
    /// Keeps them at this API server.
    pub fn new(client: Client, kept: Kept) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &kept.secret.namespace),
            bundles: Api::namespaced(client, &kept.bundle.namespace),
            kept,
        }
    }

    /// Follows them for as long as the program runs.
    pub async fn follow(self, presented: Arc<Presented>) {
        let mut told = None;
        loop {
            let looked = timeout(LONGEST, self.look(&presented)).await;
            match looked.unwrap_or(Err(KeptError::Silent)) {
                Ok(()) => {
                    told = None;
                    sleep(LOOK).await;
                }
                Err(error) => {
                    let words = error.to_string();
                    if told.as_ref() != Some(&words) {
                        let (secret, bundle) = (&self.kept.secret, &self.kept.bundle);
                        warn!(
                            %secret, %bundle,
                            "the certificate that was in force stays, if there was one: {words}"
                        );
                        told = Some(words);
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Reads what is kept, does what is due, and shows the result.
    async fn look(&self, presented: &Presented) -> Result<(), KeptError> {
        let keyring = self.current().await?;
        // Agents hear of an authority before it signs, so whom to believe goes first.
        self.publish(keyring.bundle()).await?;
        if presented.replace(keyring.pair()?) {
            let secret = &self.kept.secret;
            info!(%secret, "another certificate is shown from now on");
        }
        Ok(())
    }

    /// What is kept, after everything that is due was done.
    async fn current(&self) -> Result<Keyring, KeptError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let name = &self.kept.secret.name;
        let params = PostParams::default();
        for _ in 0..ATTEMPTS {
            let written = match self.secrets.get_opt(name).await? {
                None => {
                    let secret = self.first(ObjectMeta::default(), now)?;
                    self.secrets.create(&params, &secret).await
                }
                // Whoever may create no Secrets is given an empty one.
                Some(secret) if secret.data.as_ref().is_none_or(BTreeMap::is_empty) => {
                    let secret = self.first(secret.metadata, now)?;
                    self.secrets.replace(name, &params, &secret).await
                }
                Some(secret) => {
                    let keyring = read(&secret).ok_or(KeptError::Foreign)?;
                    let Some(after) = keyring.after(&self.kept.name, now)? else {
                        return Ok(keyring);
                    };
                    info!(secret = %self.kept.secret, due = ?keyring.due(now), "renewing");
                    let secret = self.secret(&after, secret.metadata)?;
                    self.secrets.replace(name, &params, &secret).await
                }
            };
            match written {
                Ok(_) => {}
                // Another replica was faster: what it wrote is as good.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(KeptError::Conflict)
    }

    fn first(&self, metadata: ObjectMeta, now: u64) -> Result<Secret, KeptError> {
        info!(secret = %self.kept.secret, "there is no authority yet; making one");
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
    serde_json::from_slice(text).ok()
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}
