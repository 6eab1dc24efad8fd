//! Stores a mass loss of endpoints, and its end.
//!
//! Each controller detects losses while it plans (`portolan_planner::model`), so planning does not wait for this
//! task. It writes the detected loss to `status.guard` of the ProxyConfig. Operators read it there and approve it by
//! its ID, and the other controllers apply it. The first controller that detects a loss writes it, and any controller
//! that saw its end clears it. The leader updates the figures, and clears a loss when its time is over or it was
//! approved.
//!
//! Accesses: the API server (the ProxyConfig), the clock.

mod record;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{GuardStatus, ProxyConfig};
use portolan_planner::model::{Guarding, ProxyConfig as Config};
use serde_json::json;
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::cluster_state::Shared;
use crate::engine::moment;
use crate::events::Events;
use crate::from_kube;
use crate::leading::Leading;
use crate::operator::agents::Watched;
use crate::operator::mirror::Unavailable;
use record::Seen;

/// The field manager. Other managers own the rest of the status.
const MANAGER: &str = "portolan-guard";
/// Pause between two passes.
const PASS_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one pass.
const PASS_TIMEOUT: Duration = Duration::from_secs(60);

/// The task that stores losses.
pub struct Guard {
    configs: Api<ProxyConfig>,
    watched: Arc<Watched>,
    shared: Shared,
    events: Events,
    /// The problem that was logged last, empty if there is none. It is not logged again while it lasts.
    logged: String,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Creates the task. It stores losses that the planner in `shared` detects, and records events.
    pub fn new(client: Client, shared: Shared, watched: Arc<Watched>, events: Events) -> Self {
        Self {
            configs: Api::all(client),
            watched,
            shared,
            events,
            logged: String::new(),
        }
    }

    /// Stores new losses and, while this controller leads, updates and clears stored ones. Runs forever.
    pub async fn run(mut self, leading: Leading) {
        loop {
            self.look(leading.now()).await;
            sleep(PASS_INTERVAL).await;
        }
    }

    async fn look(&mut self, leads: bool) {
        let error = match timeout(PASS_TIMEOUT, self.follow(leads)).await {
            Ok(Ok(())) => return self.logged.clear(),
            // Another writer changed the object; the next pass reads the new version.
            Ok(Err(StoreError::Api(kube::Error::Api(status)))) if status.code == 409 => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", PASS_TIMEOUT.as_secs()),
        };
        if self.logged != error {
            warn!(
                "cannot store a mass loss of endpoints: {error}; check that this controller may list and \
                 watch proxyconfigs and patch proxyconfigs/status"
            );
            self.logged = error;
        }
    }

    async fn follow(&self, leads: bool) -> Result<(), StoreError> {
        let seen = self.seen();
        let is_stored = |guarding: &Guarding| guarding.stored.is_some();
        match &seen {
            Some((guarding, seen)) if !is_stored(guarding) && seen.loss.is_none() => return Ok(()),
            // The first controller that detects the loss writes it: the leader may just have gone.
            Some((guarding, _)) if !is_stored(guarding) => {}
            // The leader may not have seen the end of the loss.
            Some((_, seen)) if seen.ended => {}
            _ if !leads => return Ok(()),
            _ => {}
        }
        let Some(config) = self.watched.config()? else {
            return Ok(());
        };
        // The planner's reader of the ProxyConfig reports the problem.
        let Ok(Config {
            guarding: asked, ..
        }) = from_kube::proxy_config(&config)
        else {
            return Ok(());
        };
        let mut planned = seen.iter();
        if planned.any(|(guarding, _)| *guarding != asked) {
            // The detected loss may belong to other settings.
            return Ok(());
        }
        let status = config.status.as_ref();
        let stored = status.and_then(|status| status.guard.as_ref());
        let now = moment(SystemTime::now());
        // Before the first plan, no loss was observed.
        let seen = seen.map(|(_, seen)| seen).unwrap_or_default();
        let wanted = record::wanted(&asked, stored, seen, now);
        if wanted.as_ref() == stored {
            return Ok(());
        }
        self.store(&config, wanted.as_ref()).await?;
        if let Some(event) = record::event(&asked, stored, wanted.as_ref(), now) {
            self.events.record(event);
        }
        Ok(())
    }

    /// The guard settings in force and the observed losses; `None` before the first plan.
    fn seen(&self) -> Option<(Guarding, Seen)> {
        let known = self.shared.read();
        let model = known.planner.model();
        let guarding = model.config_in_force()?.guarding.clone();
        let stored = guarding.stored.as_ref();
        let seen = Seen {
            loss: model.loss(),
            ended: stored.is_some_and(|stored| model.loss_has_ended(&stored.id)),
        };
        Some((guarding, seen))
    }

    async fn store(
        &self,
        config: &ProxyConfig,
        wanted: Option<&GuardStatus>,
    ) -> Result<(), StoreError> {
        let name = config.name_any();
        // The decision is valid for this version only.
        let version = config.resource_version();
        let Some(wanted) = wanted else {
            // Server-side apply would remove only fields without another owner.
            let object =
                json!({"metadata": {"resourceVersion": version}, "status": {"guard": null}});
            let params = PatchParams {
                field_manager: Some(MANAGER.into()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(object);
            self.written(&self.configs.patch_status(&name, &params, &patch).await?);
            return Ok(());
        };
        let object = json!({
            "apiVersion": "proxy.portolan.dev/v1alpha1",
            "kind": "ProxyConfig",
            "metadata": {"name": name, "resourceVersion": version},
            "status": {"guard": wanted},
        });
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(object);
        self.written(&self.configs.patch_status(&name, &params, &patch).await?);
        Ok(())
    }

    fn written(&self, config: &ProxyConfig) {
        self.watched
            .config
            .wrote(config, |config| Some(config.clone()));
    }
}

/// Why a loss could not be stored.
#[derive(Debug, Error)]
enum StoreError {
    /// The API server rejects the request, or does not answer.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// The ProxyConfig cannot be watched.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
}
