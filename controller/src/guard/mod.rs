//! Stores that endpoints vanished in mass, and that it is over.
//!
//! Every controller watches over endpoints while it plans (`portolan_planner::model`), so nothing waits for this task:
//! it writes what its controller has noticed into `status.guard` of the ProxyConfig, where people read it, approve it by
//! its name, and the other controllers begin and end with it. Whoever sees it first writes it, and whoever has seen its
//! end takes it out; the one that leads keeps the figures, and takes it out when its time is over or it was approved.
//!
//! Touches: the API server (the ProxyConfig), the clock.

mod record;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{GuardStatus, ProxyConfig};
use portolan_planner::model::{Guarding, ProxyConfig as Config};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::agents::Watched;
use crate::engine::moment;
use crate::events::Events;
use crate::from_kube;
use crate::known::Shared;
use crate::mirror::Unavailable;
use record::Seen;

/// Who we are to the API server: the rest of the status has other owners.
const MANAGER: &str = "portolan-guard";
/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// How long one look may take.
const LONGEST: Duration = Duration::from_secs(60);

/// The task.
pub struct Guard {
    configs: Api<ProxyConfig>,
    watched: Arc<Watched>,
    shared: Shared,
    events: Events,
    /// What was said and is still so.
    said: String,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Stores what is noticed in what is known, and tells of it.
    pub fn new(client: Client, shared: Shared, watched: Arc<Watched>, events: Events) -> Self {
        Self {
            configs: Api::all(client),
            watched,
            shared,
            events,
            said: String::new(),
        }
    }

    /// Stores what begins, and while this says so what goes on and ends; always where there is no other controller.
    /// Never ends by itself.
    pub async fn run(mut self, leading: Option<watch::Receiver<bool>>) {
        loop {
            let leads = leading.as_ref().is_none_or(|leads| *leads.borrow());
            self.look(leads).await;
            sleep(PERIOD).await;
        }
    }

    async fn look(&mut self, leads: bool) {
        let trouble = match timeout(LONGEST, self.follow(leads)).await {
            Ok(Ok(())) => return self.said.clear(),
            // Somebody wrote it meanwhile: the next look knows.
            Ok(Err(Trouble::Api(kube::Error::Api(status)))) if status.code == 409 => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the API server does not answer".into(),
        };
        if self.said != trouble {
            warn!(
                "endpoints that vanished in mass are not written down at present: {trouble}; may this controller list and \
                 watch proxyconfigs and patch proxyconfigs/status?"
            );
            self.said = trouble;
        }
    }

    async fn follow(&self, leads: bool) -> Result<(), Trouble> {
        let seen = self.seen();
        let is_stored = |guarding: &Guarding| guarding.stored.is_some();
        match &seen {
            Some((guarding, seen)) if !is_stored(guarding) && seen.loss.is_none() => return Ok(()),
            // Whoever notices it first writes it down: the one that leads may just have gone.
            Some((guarding, _)) if !is_stored(guarding) => {}
            // Who leads may not have seen that it is over.
            Some((_, seen)) if seen.ended => {}
            _ if !leads => return Ok(()),
            _ => {}
        }
        let Some(config) = self.watched.config()? else {
            return Ok(());
        };
        // Whoever reads it for planning says what is wrong with it.
        let Ok(Config {
            guarding: asked, ..
        }) = from_kube::proxy_config(&config)
        else {
            return Ok(());
        };
        let mut planned = seen.iter();
        if planned.any(|(guarding, _)| *guarding != asked) {
            // What this controller noticed may be of another time.
            return Ok(());
        }
        let status = config.status.as_ref();
        let stored = status.and_then(|status| status.guard.as_ref());
        let now = moment(SystemTime::now());
        // Where nothing was planned yet, nothing was seen.
        let seen = seen.map(|(_, seen)| seen).unwrap_or_default();
        let wanted = record::wanted(&asked, stored, seen, now);
        if wanted.as_ref() == stored {
            return Ok(());
        }
        self.store(&config, wanted.as_ref()).await?;
        if let Some(event) = record::news(&asked, stored, wanted.as_ref(), now) {
            self.events.tell(event);
        }
        Ok(())
    }

    /// What the ProxyConfig says as it was planned with, and what this controller has seen; `None` before that.
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
    ) -> Result<(), Trouble> {
        let name = config.name_any();
        // What was decided is about this version and no other one.
        let version = config.resource_version();
        let Some(wanted) = wanted else {
            // By apply only what nobody else ever wrote would go.
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

/// Why nothing could be stored.
#[derive(Debug, Error)]
enum Trouble {
    /// The API server refuses, or does not answer.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// The ProxyConfig is not known.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
}
