//! Looks at both objects and writes what is due. Touches: the API server, the clock.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::addresses::{addresses, text};
use super::daemon_set::{MANAGER, Owner, stable};
use super::due::{Foreign, Made, Reason, due};
use super::template::{KEY, Template, TemplateError};
use super::{Agents, AgentsError};
use crate::trust::Named;

/// How often both are looked at: four reads.
const LOOK: Duration = Duration::from_secs(5);
/// How long all calls of a look may take.
const LONGEST: Duration = Duration::from_secs(30);
/// The file in the ConfigMap that agents mount.
const ADDRESSES: &str = "addresses";

/// Keeps the agents' DaemonSet, and tells agents where controllers are.
pub struct Operator {
    agents: Agents,
    port: u16,
    templates: Api<ConfigMap>,
    controllers: Api<ConfigMap>,
    pods: Api<Pod>,
    sets: Api<DaemonSet>,
    made: Option<Made>,
    /// What was wrong at the last look, which was said.
    told: Option<String>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("agents", &self.agents)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// Controllers serve agents on this port of their pods' addresses.
    pub fn new(client: Client, agents: Agents, port: u16) -> Self {
        let (template, controllers) = (&agents.template, &agents.controllers);
        Self {
            templates: Api::namespaced(client.clone(), &template.namespace),
            sets: Api::namespaced(client.clone(), &template.namespace),
            pods: Api::namespaced(client.clone(), &controllers.namespace),
            controllers: Api::namespaced(client, &controllers.namespace),
            agents,
            port,
            made: None,
            told: None,
        }
    }

    /// Works for as long as it runs, but only while this controller leads. Without anybody who says so it
    /// is the only one.
    pub async fn run(mut self, leading: Option<watch::Receiver<bool>>) {
        let Some(mut leading) = leading else {
            return self.keep().await;
        };
        loop {
            // Whoever says so has ended: then so has this.
            if leading.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            tokio::select! {
                () = self.keep() => {}
                _ = leading.wait_for(|leads| !leads) => {}
            }
            // Another one may write meanwhile.
            self.made = None;
        }
    }

    async fn keep(&mut self) {
        loop {
            let looked = timeout(LONGEST, self.look()).await;
            let result = looked.unwrap_or(Err(AgentsError::Silent));
            let words = result.err().map(|error| error.to_string());
            if let Some(words) = words
                .as_ref()
                .filter(|words| self.told.as_ref() != Some(words))
            {
                warn!("{words}");
            }
            self.told = words;
            sleep(LOOK).await;
        }
    }

    async fn look(&mut self) -> Result<(), AgentsError> {
        let somebody = self.tell_where().await?;
        let map = &self.agents.template;
        let found = self.templates.get_opt(&map.name).await;
        let found = found.map_err(|error| refused("read ConfigMap", map, error))?;
        let found = found.ok_or_else(|| AgentsError::NoTemplate { map: map.clone() })?;
        let data = found.data.unwrap_or_default();
        let read = data.get(KEY).ok_or(TemplateError::Absent);
        let template = read
            .and_then(|text| Template::read(text))
            .map_err(|error| {
                let map = map.clone();
                AgentsError::Template { map, error }
            })?;
        let owner = Owner {
            map: map.clone(),
            uid: found.metadata.uid.unwrap_or_default(),
        };
        let set = Named {
            namespace: map.namespace.clone(),
            name: template.name.clone(),
        };
        self.follow(&set, stable(&template, &owner), somebody).await
    }

    /// Makes the DaemonSet what it should be. It is not made before agents have somebody to turn to: their
    /// pods would wait for the file.
    async fn follow(
        &mut self,
        set: &Named,
        wanted: Value,
        somebody: bool,
    ) -> Result<(), AgentsError> {
        let found = self.sets.get_opt(&set.name).await;
        let found = found.map_err(|error| refused("read DaemonSet", set, error))?;
        if found.is_none() && !somebody {
            return Ok(());
        }
        let reason = match due(found.as_ref(), &wanted, self.made.as_ref()) {
            Err(Foreign) => return Err(AgentsError::Foreign { set: set.clone() }),
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
        };
        let applied = self
            .sets
            .patch(&set.name, &ours(), &Patch::Apply(&wanted))
            .await;
        let applied = applied.map_err(|error| refused("write DaemonSet", set, error))?;
        let before = found.and_then(|found| found.metadata.generation);
        let changed = before != applied.metadata.generation;
        let line = match reason {
            Reason::Absent => "DaemonSet of agents made",
            Reason::Template => "DaemonSet of agents follows its template",
            Reason::FirstLook if changed => "DaemonSet of agents is as it should be again",
            Reason::FirstLook => "DaemonSet of agents is as it should be",
            Reason::Others if changed => "somebody changed the DaemonSet of agents; it is put back",
            Reason::Others => {
                "somebody changed what the template leaves open in the DaemonSet of agents; it stays"
            }
        };
        info!(%set, "{line}");
        self.made = Some(Made::new(wanted, &applied));
        Ok(())
    }

    /// Writes where controllers are if that is not what agents read. Says whether they are told of any.
    async fn tell_where(&self) -> Result<bool, AgentsError> {
        let map = &self.agents.controllers;
        let selected = ListParams::default().labels(&self.agents.pods);
        let pods = self.pods.list(&selected).await;
        let pods = pods.map_err(|error| refused("list pods of controllers beside", map, error))?;
        let wanted = text(&addresses(&pods.items, self.port));
        let found = self.controllers.get_opt(&map.name).await;
        let found = found.map_err(|error| refused("read ConfigMap", map, error))?;
        let data = found.and_then(|found| found.data).unwrap_or_default();
        let told = data.get(ADDRESSES).map(String::as_str).unwrap_or_default();
        if wanted.is_empty() || wanted == told {
            return Ok(!told.is_empty());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map.name},
            "data": {ADDRESSES: wanted},
        });
        let applied = self
            .controllers
            .patch(&map.name, &ours(), &Patch::Apply(&object))
            .await;
        applied.map_err(|error| refused("write ConfigMap", map, error))?;
        let listed: Vec<_> = wanted.lines().collect();
        info!(%map, controllers = listed.join(", "), "agents are told where controllers are");
        Ok(true)
    }
}

/// Fields of ours are taken back from whoever changed them; an unknown one is refused.
fn ours() -> PatchParams {
    PatchParams::apply(MANAGER).force().validation_strict()
}

fn refused(act: &str, object: &Named, error: kube::Error) -> AgentsError {
    AgentsError::Refused {
        act: format!("{act} {object}"),
        error,
    }
}
