//! Reconciles the DaemonSets of agents, the labels of Nodes, and the addresses of controllers. Reads from watches
//! ([`Watched`]) and writes to the API server. Uses the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use portolan_crds::ProxyConfig;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::addresses::{addresses, text};
use super::assign::assign;
use super::conditions::{Lack, Teller, is_observed, managed, only_service_proxy};
use super::daemon_set::{MANAGER, Owner, daemon_set, held, set_name};
use super::due::{Foreign, Made, Reason, due};
use super::moving::Moving;
use super::pods::{AgentPods, list};
use super::template::{KEY, Template, TemplateError};
use super::track::{Sets, Track};
use super::wanted::WantedAgents;
use super::watched::Watched;
use super::{Agents, AgentsError};
use crate::events::Events;
use crate::from_kube;
use crate::known::Shared;
use crate::leading::{Leading, while_leading};
use crate::publish::Verdict;
use crate::trust::Named;

/// The longest time between two passes: Nodes come from the planner, which sends no ticks. A pass without changes costs
/// the API server nothing.
const LOOK: Duration = Duration::from_secs(5);
/// The shortest time between two passes.
const BUSY: Duration = Duration::from_secs(1);
/// How long agents may differ from what they should be before a condition reports it: a write that fails once and pods
/// that are being created are ordinary.
const SETTLED: Duration = Duration::from_secs(30);
/// The timeout of all calls of a pass together.
const LONGEST: Duration = Duration::from_secs(30);
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
    sets: Api<DaemonSet>,
    made: BTreeMap<Track, Made>,
    moving: Moving,
    teller: Teller,
    /// Nodes of agents in the last pass.
    members: Vec<Arc<str>>,
    /// Why agents were not all managed in the last pass.
    lack: Option<Lack>,
    /// Since when agents differ from what they should be.
    amiss: Option<Instant>,
    /// The failure of the last pass, already logged. The same failure is not logged again.
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
            sets: Api::namespaced(client.clone(), &template.namespace),
            pods: Api::namespaced(client.clone(), &template.namespace),
            controllers: Api::namespaced(client.clone(), &controllers.namespace),
            moving: Moving::new(Api::all(client.clone())),
            teller: Teller::new(Api::all(client), watched.clone(), events),
            members: Vec::new(),
            lack: Some(Lack::Decision),
            amiss: None,
            agents,
            port,
            shared,
            changes: watched.changes(),
            watched,
            made: BTreeMap::new(),
            told: None,
        }
    }

    /// Runs while this controller leads.
    pub async fn run(mut self, leading: Leading) {
        while_leading!(leading, self.keep());
    }

    async fn keep(&mut self) {
        // Another controller may have written since this one led last.
        self.made.clear();
        self.moving.clear();
        self.amiss = None;
        loop {
            let begin = Instant::now();
            self.changes.mark_unchanged();
            let looked = timeout(LONGEST, self.look()).await;
            let result = looked.unwrap_or(Err(AgentsError::Silent));
            let pause = result.as_ref().map_or(LOOK, |pause| *pause);
            // Conditions that cannot be written now are written in the next pass.
            drop(timeout(LONGEST, self.tell_conditions(result.as_ref().err())).await);
            let words = result.err().map(|error| error.to_string());
            if let Some(words) = words
                .as_ref()
                .filter(|words| self.told.as_ref() != Some(words))
            {
                warn!("{words}");
            }
            self.told = words;
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = self.changes.changed() => sleep_until(begin + BUSY).await,
            }
        }
    }

    /// Reports the result of a pass in conditions of the ProxyConfig.
    async fn tell_conditions(&mut self, error: Option<&AgentsError>) -> Result<(), AgentsError> {
        let managed = managed(error, self.lack.as_ref());
        if managed.0.verdict == Verdict::True {
            self.amiss = None;
        } else if self.amiss.get_or_insert_with(Instant::now).elapsed() < SETTLED {
            return Ok(());
        }
        let kube_proxies = self.watched.kube_proxies();
        let agents_on = self.members.iter().map(|node| &**node);
        let only = only_service_proxy(agents_on, &kube_proxies);
        self.teller.tell([managed, only]).await
    }

    /// Makes one pass, and returns when the next one is due.
    async fn look(&mut self) -> Result<Duration, AgentsError> {
        self.watched.ready().await?;
        let somebody = self.tell_where().await?;
        let (owner, template) = self.template()?;
        let pause = self.follow(&owner, somebody).await?;
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
    async fn follow(&mut self, owner: &Owner, somebody: bool) -> Result<Duration, AgentsError> {
        let config = self.watched.config()?;
        let Some(config) = config.filter(|config| self.has_seen(config)) else {
            self.lack = Some(Lack::Decision);
            return Ok(BUSY);
        };
        let Some(wanted) = WantedAgents::read(&config) else {
            self.lack = Some(Lack::Decision);
            return Ok(BUSY);
        };
        if let Some(field) = wanted.stands_in_the_way() {
            let map = owner.map.clone();
            return Err(AgentsError::Fixed { map, field });
        }
        let (found, sets) = self.read_sets(&wanted.current, owner)?;
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
            pods = listed.map_err(|error| refused("list pods of agents in", namespace, error))?;
            assignment = decide(&pods.tracks());
        }
        let is_made = somebody || !found.is_empty();
        self.lack = match is_made {
            true => found.values().find_map(|set| Lack::of(set)),
            false => Some(Lack::Controllers),
        };
        // Nodes are moved even without DaemonSets, for example back after a rollback.
        let written = match is_made {
            true => {
                self.write_sets(&assignment.sets, &wanted, owner, &found)
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
        Ok(if busy { BUSY } else { LOOK })
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

    /// Both DaemonSets as stored, and their template and node selection.
    fn read_sets(
        &self,
        template: &Template,
        owner: &Owner,
    ) -> Result<(BTreeMap<Track, Arc<DaemonSet>>, Sets), AgentsError> {
        let (mut found, mut sets) = (BTreeMap::new(), Sets::default());
        for track in Track::ALL {
            let set = self.read_set(template, owner, track)?;
            if let Some(held) = set.as_ref().and_then(|set| self.held(track, set)) {
                sets.put(track, &held.agents, held.takes);
            }
            found.extend(set.map(|set| (track, set)));
        }
        Ok((found, sets))
    }

    /// Writes both DaemonSets. A failure of one does not stop the other.
    async fn write_sets(
        &mut self,
        sets: &Sets,
        wanted: &WantedAgents,
        owner: &Owner,
        found: &BTreeMap<Track, Arc<DaemonSet>>,
    ) -> Result<(), AgentsError> {
        let mut written = Ok(());
        for track in Track::ALL {
            // A DaemonSet with an unknown template is left as it is while nodes belong to it.
            let held = sets.get(track);
            let template = held.and_then(|held| wanted.template(&held.agents));
            let (Some(held), Some(template)) = (held, template) else {
                continue;
            };
            let object = daemon_set(template, owner, track, held.takes);
            let set = named_set(template, owner, track);
            let wrote = self
                .write_set(&set, track, found.get(&track).map(|found| &**found), object)
                .await;
            written = written.and(wrote);
        }
        written
    }

    fn read_set(
        &self,
        template: &Template,
        owner: &Owner,
        track: Track,
    ) -> Result<Option<Arc<DaemonSet>>, AgentsError> {
        let set = named_set(template, owner, track);
        let found = self.watched.sets.get(&set.name)?;
        if found
            .as_ref()
            .is_some_and(|found| !super::due::is_ours(found))
        {
            return Err(AgentsError::Foreign { set });
        }
        Ok(found)
    }

    /// The template and node selection of a DaemonSet. What this controller wrote last takes precedence over the
    /// stored object, which others may have changed.
    fn held(&self, track: Track, found: &DaemonSet) -> Option<super::track::Held> {
        let made = self.made.get(&track);
        let made = made.filter(|made| made.uid == found.metadata.uid);
        made.and_then(|made| held(&made.wanted))
            .or_else(|| held(&serde_json::to_value(found).ok()?))
    }

    /// Writes a DaemonSet if it differs from the wanted object.
    async fn write_set(
        &mut self,
        set: &Named,
        track: Track,
        found: Option<&DaemonSet>,
        wanted: Value,
    ) -> Result<(), AgentsError> {
        let reason = match due(found, &wanted, self.made.get(&track)) {
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
            Reason::Template => "DaemonSet of agents is given other nodes, or another template",
            Reason::FirstLook if changed => "DaemonSet of agents is as it should be again",
            Reason::FirstLook => "DaemonSet of agents is as it should be",
            Reason::Others if changed => "somebody changed the DaemonSet of agents; it is put back",
            Reason::Others => {
                "somebody changed what the template leaves open in the DaemonSet of agents; it stays"
            }
        };
        info!(%set, "{line}");
        self.watched
            .sets
            .wrote(&applied, |applied| Some(applied.clone()));
        self.made.insert(track, Made::new(wanted, &applied));
        Ok(())
    }

    /// Writes the addresses of controllers if they changed. Returns whether agents have any address.
    async fn tell_where(&self) -> Result<bool, AgentsError> {
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
            .patch(&map.name, &ours(), &Patch::Apply(&object))
            .await;
        let applied = applied.map_err(|error| refused("write ConfigMap", map, error))?;
        self.watched
            .controllers
            .wrote(&applied, |applied| Some(applied.clone()));
        let listed: Vec<_> = wanted.lines().collect();
        info!(%map, controllers = listed.join(", "), "wrote the addresses of controllers for agents");
        Ok(true)
    }
}

fn named_set(template: &Template, owner: &Owner, track: Track) -> Named {
    Named {
        namespace: owner.map.namespace.clone(),
        name: set_name(template, track),
    }
}

/// Forces ownership of our fields, and rejects unknown ones.
fn ours() -> PatchParams {
    PatchParams::apply(MANAGER).force().validation_strict()
}

pub(super) fn refused(
    act: &str,
    object: &impl std::fmt::Display,
    error: kube::Error,
) -> AgentsError {
    AgentsError::Refused {
        act: format!("{act} {object}"),
        error,
    }
}
