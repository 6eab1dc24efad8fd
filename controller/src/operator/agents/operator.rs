//! Reconciles the DaemonSets of agents, the labels of Nodes, and the addresses of controllers. Reads from watches
//! ([`Watched`]) and writes to the API server. Uses the clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::Patch;
use kube::{Api, Client};
use portolan_crds::ProxyConfig;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::addresses::{addresses, text};
use super::assign::assign;
use super::conditions::{ConditionWriter, Lack, is_observed, managed, only_service_proxy};
use super::daemon_set::{Owner, apply_params};
use super::daemon_sets::DaemonSets;
use super::moving::Moving;
use super::pods::{AgentPods, list};
use super::template::{KEY, Template, TemplateError};
use super::templates::map_of;
use super::track::Track;
use super::wanted::{Unrecorded, WantedAgents};
use super::watched::Watched;
use super::{Agents, AgentsError};
use crate::cluster_state::Shared;
use crate::events::Events;
use crate::from_kube;
use crate::leading::{Leading, while_leading};
use crate::publish::Verdict;

/// Maximum interval between two passes: Nodes come from the planner, which sends no ticks. A pass without changes
/// costs the API server nothing.
const MAX_PASS_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two passes, and the maximum while agents are being replaced.
const MIN_PASS_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which agents may differ from the desired state before a condition reports it. A write that fails once and
/// pods that are being created are ordinary.
const CONDITION_DELAY: Duration = Duration::from_secs(30);
/// Timeout of all calls of a pass together.
pub(super) const PASS_TIMEOUT: Duration = Duration::from_secs(30);
/// The file in the ConfigMap that agents mount.
const ADDRESSES: &str = "addresses";

/// Manages the DaemonSets of agents, the labels of Nodes, and the addresses of controllers.
pub struct Operator {
    agents: Agents,
    port: u16,
    shared: Shared,
    watched: Arc<Watched>,
    /// Signals changes of watched objects.
    changes: watch::Receiver<()>,
    controllers: Api<ConfigMap>,
    pods: Api<Pod>,
    sets: DaemonSets,
    moving: Moving,
    conditions: ConditionWriter,
    /// Nodes of agents in the last pass.
    members: Vec<Arc<str>>,
    /// Why agents were not all managed in the last pass.
    lack: Option<Lack>,
    /// Since when agents differ from what they should be.
    unmanaged_since: Option<Instant>,
    /// The failure of the last pass, already logged. The same failure is not logged again.
    logged: Option<String>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("agents", &self.agents)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// Creates the operator. `port` is the port of the controllers' pods on which they serve agents.
    pub fn new(
        client: Client,
        agents: Agents,
        port: u16,
        shared: Shared,
        watched: Arc<Watched>,
        events: Events,
    ) -> Self {
        let (template, controllers) = (&agents.template, &agents.controllers);
        Self {
            sets: DaemonSets::new(
                Api::namespaced(client.clone(), &template.namespace),
                watched.clone(),
            ),
            pods: Api::namespaced(client.clone(), &template.namespace),
            controllers: Api::namespaced(client.clone(), &controllers.namespace),
            moving: Moving::new(Api::all(client.clone())),
            conditions: ConditionWriter::new(Api::all(client), watched.clone(), events),
            members: Vec::new(),
            lack: Some(Lack::Decision),
            unmanaged_since: None,
            agents,
            port,
            shared,
            changes: watched.changes(),
            watched,
            logged: None,
        }
    }

    /// Runs while this controller leads.
    pub async fn run(mut self, leading: Leading) {
        while_leading!(leading, self.keep());
    }

    async fn keep(&mut self) {
        // Another controller may have written since this one led last.
        self.sets.clear();
        self.moving.clear();
        self.unmanaged_since = None;
        loop {
            let begin = Instant::now();
            self.changes.mark_unchanged();
            let passed = timeout(PASS_TIMEOUT, self.pass()).await;
            let result = passed.unwrap_or(Err(AgentsError::Silent));
            let pause = result.as_ref().map_or(MAX_PASS_INTERVAL, |pause| *pause);
            // Conditions that cannot be written now are written in the next pass.
            drop(timeout(PASS_TIMEOUT, self.write_conditions(result.as_ref().err())).await);
            let words = result.err().map(|error| error.to_string());
            if let Some(words) = words
                .as_ref()
                .filter(|words| self.logged.as_ref() != Some(words))
            {
                warn!("cannot manage agents: {words}");
            }
            self.logged = words;
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = self.changes.changed() => sleep_until(begin + MIN_PASS_INTERVAL).await,
            }
        }
    }

    /// Reports the result of a pass in conditions of the ProxyConfig.
    async fn write_conditions(&mut self, error: Option<&AgentsError>) -> Result<(), AgentsError> {
        let managed = managed(error, self.lack.as_ref());
        if managed.0.verdict == Verdict::True {
            self.unmanaged_since = None;
        } else if self
            .unmanaged_since
            .get_or_insert_with(Instant::now)
            .elapsed()
            < CONDITION_DELAY
        {
            return Ok(());
        }
        let kube_proxies = self.watched.kube_proxies();
        let agents_on = self.members.iter().map(|node| &**node);
        let only = only_service_proxy(agents_on, &kube_proxies);
        self.conditions.write([managed, only]).await
    }

    /// Makes one pass, and returns when the next one is due.
    async fn pass(&mut self) -> Result<Duration, AgentsError> {
        self.watched.ready().await?;
        let has_addresses = self.write_addresses().await?;
        let (owner, template) = self.template()?;
        let pause = self.reconcile(&owner, has_addresses).await?;
        // An invalid template does not stop the reconciliation of what was decided before.
        template.map(|()| pause).map_err(|error| {
            let map = self.agents.template.clone();
            AgentsError::Template { map, error }
        })
    }

    /// The ConfigMap of the template, and whether the template in it is valid.
    fn template(&self) -> Result<(Owner, Result<(), TemplateError>), AgentsError> {
        let map = &self.agents.template;
        let found = self.watched.template()?;
        let found = found.ok_or_else(|| AgentsError::NoTemplate { map: map.clone() })?;
        let text = found.data.as_ref().and_then(|data| data.get(KEY));
        let read = text.ok_or(TemplateError::Absent);
        let template = read.and_then(|text| Template::read(text)).map(drop);
        let owner = Owner {
            map: map.clone(),
            uid: found.metadata.uid.clone().unwrap_or_default(),
        };
        Ok((owner, template))
    }

    /// Reconciles DaemonSets and Node labels with the stored state of the rollout. No DaemonSet is created before
    /// agents have a controller address: their pods would wait for the mounted file.
    async fn reconcile(
        &mut self,
        owner: &Owner,
        has_addresses: bool,
    ) -> Result<Duration, AgentsError> {
        let Some(wanted) = self.wanted(owner)? else {
            self.lack = Some(Lack::Decision);
            return Ok(MIN_PASS_INTERVAL);
        };
        if let Some(field) = wanted.changed_fixed_field() {
            let map = owner.map.clone();
            return Err(AgentsError::Fixed { map, field });
        }
        let (found, sets) = self.sets.read(&wanted.current, owner)?;
        let members = wanted.members(self.shared.read().planner.nodes_with_agents());
        self.members = members.iter().map(|member| member.name.clone()).collect();
        let decide =
            |occupied: &BTreeSet<Track>| assign(&sets, wanted.hashes(), &members, occupied);
        let mut assignment = decide(&BTreeSet::new());
        let mut pods = AgentPods::default();
        if assignment.sets != sets || !assignment.moves.is_empty() || !self.moving.is_empty() {
            pods = self.watched.agent_pods()?;
            assignment = decide(&pods.tracks());
        }
        if assignment.sets != sets {
            // The template of a DaemonSet changes only while it has no pods. The watch may lag, so list the pods.
            let listed = list(&self.pods).await;
            let namespace = &owner.map.namespace;
            pods = listed.map_err(|error| {
                AgentsError::refused("list pods of agents in", namespace, error)
            })?;
            assignment = decide(&pods.tracks());
        }
        let may_write = has_addresses || !found.is_empty();
        self.lack = match may_write {
            true => found.values().find_map(|set| Lack::of(set)),
            false => Some(Lack::Controllers),
        };
        // Nodes are moved even without DaemonSets, for example back after a rollback.
        let written = match may_write {
            true => {
                self.sets
                    .write(&assignment.sets, &wanted, owner, &found)
                    .await
            }
            false => Ok(()),
        };
        let settled = |track: Track| found.get(&track).is_some_and(|set| is_observed(set));
        let most = wanted.most.of(members.len()).max(1);
        self.moving
            .carry_out(&assignment.moves, &pods, &members, most, settled)
            .await?;
        written?;
        let busy = wanted.target.is_some() || !self.moving.is_empty();
        let busy = busy || !assignment.moves.is_empty();
        Ok(if busy {
            MIN_PASS_INTERVAL
        } else {
            MAX_PASS_INTERVAL
        })
    }

    /// The wanted agents; `None` until the rollout has decided, and this controller has read everything.
    fn wanted(&self, owner: &Owner) -> Result<Option<WantedAgents>, AgentsError> {
        let config = self.watched.config()?;
        let Some(config) = config.filter(|config| self.has_seen(config)) else {
            return Ok(None);
        };
        let templates = self.watched.templates()?;
        let wanted = WantedAgents::read(&config, &templates);
        wanted.map_err(|Unrecorded(sha256)| {
            let map = map_of(&owner.map);
            AgentsError::Unrecorded { map, sha256 }
        })
    }

    /// Whether this controller has observed the Nodes and this version of the settings, or a later one. Before the
    /// initial lists there seem to be no Nodes.
    fn has_seen(&self, config: &ProxyConfig) -> bool {
        let known = self.shared.read();
        let held = known.planner.model().config_in_force();
        match from_kube::proxy_config(config) {
            Ok(served) => held.is_some_and(|held| **held == served),
            // Invalid settings leave the last accepted ones in force.
            Err(_) => held.is_some(),
        }
    }

    /// Writes the addresses of controllers if they changed. Returns whether agents have any address.
    async fn write_addresses(&self) -> Result<bool, AgentsError> {
        let map = &self.agents.controllers;
        let pods = self.watched.controller_pods.values()?;
        let wanted = text(&addresses(pods.iter().map(AsRef::as_ref), self.port));
        let found = self.watched.controllers.get(&map.name)?;
        let data = found.as_ref().and_then(|found| found.data.as_ref());
        let held = data.and_then(|data| data.get(ADDRESSES));
        let held = held.map(String::as_str).unwrap_or_default();
        if wanted.is_empty() || wanted == held {
            return Ok(!held.is_empty());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map.name},
            "data": {ADDRESSES: wanted},
        });
        let applied = self
            .controllers
            .patch(&map.name, &apply_params(), &Patch::Apply(&object))
            .await;
        let applied =
            applied.map_err(|error| AgentsError::refused("write ConfigMap", map, error))?;
        self.watched
            .controllers
            .wrote(&applied, |applied| Some(applied.clone()));
        let listed: Vec<_> = wanted.lines().collect();
        info!(%map, controllers = listed.join(", "), "wrote the addresses of controllers for agents");
        Ok(true)
    }
}
