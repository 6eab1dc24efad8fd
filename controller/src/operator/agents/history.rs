//! Records templates of agents in the controllers' namespace. Accesses: the API server. It is read through watches
//! ([`Watched`]).

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Patch;
use kube::{Api, Client};
use portolan_crds::RolloutStatus;
use tracing::info;

use super::daemon_set::apply_params;
use super::templates::{Recorded, Templates, map_of};
use super::watched::Watched;
use super::{Agents, AgentsError};
use crate::auth::Named;

/// The ConfigMap of recorded templates.
pub struct TemplateHistory {
    api: Api<ConfigMap>,
    /// The ConfigMap of the chart's template.
    template: Named,
    watched: Arc<Watched>,
}

impl TemplateHistory {
    /// The history of these agents. Nothing is read or written yet.
    pub fn new(client: Client, agents: &Agents, watched: Arc<Watched>) -> Self {
        let template = agents.template.clone();
        Self {
            api: Api::namespaced(client, &template.namespace),
            template,
            watched,
        }
    }

    /// Records a template, so that the status may refer to it. The templates of revisions in `status` stay.
    ///
    /// # Errors
    /// The API server rejects it, or the ConfigMap of the chart does not exist any more.
    pub(crate) async fn record(
        &self,
        new: &Recorded,
        status: &RolloutStatus,
    ) -> Result<(), AgentsError> {
        let contents = status.history.iter().map(|held| held.content.as_str());
        let Some(templates) = self.watched.templates()?.with(new, contents) else {
            return Ok(());
        };
        let owner = self.watched.owner()?;
        let owner = owner.ok_or_else(|| AgentsError::NoTemplate {
            map: self.template.clone(),
        })?;
        let map = map_of(&self.template);
        let object = Patch::Apply(templates.object(&owner));
        let applied = self.api.patch(&map.name, &apply_params(), &object).await;
        let applied =
            applied.map_err(|error| AgentsError::refused("write ConfigMap", &map, error))?;
        self.watched
            .templates
            .wrote(&applied, |applied| Some(Templates::read(applied)));
        info!(%map, sha256 = %new.record().sha256, "recorded the template of agents");
        Ok(())
    }
}
