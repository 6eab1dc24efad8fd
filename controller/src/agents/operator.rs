//! Looks at the DaemonSets of agents, at what nodes belong to, and at where controllers are, and writes what is
//! due. Touches: the API server, the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use portolan_crds::ProxyConfig;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::addresses::{addresses, text};
use super::assign::assign;
use super::conditions::{Lack, Teller, is_observed, managed, only_service_proxy};
use super::daemon_set::{MANAGER, Owner, daemon_set, held, set_name};
use super::due::{Foreign, Made, Reason, due};
use super::moving::Moving;
use super::neighbours::Neighbours;
use super::pods::{AgentPods, list};
use super::template::{KEY, Template, TemplateError};
use super::track::{Sets, Track};
use super::wanted::WantedAgents;
use super::{Agents, AgentsError};
use crate::events::Events;
use crate::from_kube;
use crate::known::Shared;
use crate::publish::Verdict;
use crate::trust::Named;

/// How often everything is looked at while nothing is on its way: six reads.
const LOOK: Duration = Duration::from_secs(5);
/// The same while agents are changed.
const BUSY: Duration = Duration::from_secs(1);
/// How long agents are not kept as they should be before a condition says so: a look that fails once, and pods that are
/// being created, are ordinary.
const SETTLED: Duration = Duration::from_secs(30);
/// How long all calls of a look may take.
const LONGEST: Duration = Duration::from_secs(30);
/// The file in the ConfigMap that agents mount.
const ADDRESSES: &str = "addresses";

/// Keeps the agents' DaemonSets and what nodes belong to, and tells agents where controllers are.
pub struct Operator {
    agents: Agents,
    port: u16,
    shared: Shared,
    configs: Api<ProxyConfig>,
    templates: Api<ConfigMap>,
    controllers: Api<ConfigMap>,
    /// Those of controllers; of agents.
    pods: [Api<Pod>; 2],
    sets: Api<DaemonSet>,
    made: BTreeMap<Track, Made>,
    moving: Moving,
    neighbours: Neighbours,
    teller: Teller,
    /// Nodes of agents, by the last look.
    members: Vec<Arc<str>>,
    /// What they lack, by the last look.
    lack: Option<Lack>,
    /// Since when agents are not kept as they should be.
    amiss: Option<Instant>,
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
    pub fn new(client: Client, agents: Agents, port: u16, shared: Shared, events: Events) -> Self {
        let (template, controllers) = (&agents.template, &agents.controllers);
        Self {
            configs: Api::all(client.clone()),
            templates: Api::namespaced(client.clone(), &template.namespace),
            sets: Api::namespaced(client.clone(), &template.namespace),
            pods: [&controllers.namespace, &template.namespace]
                .map(|namespace| Api::namespaced(client.clone(), namespace)),
            controllers: Api::namespaced(client.clone(), &controllers.namespace),
            moving: Moving::new(Api::all(client.clone())),
            neighbours: Neighbours::new(client.clone()),
            teller: Teller::new(Api::all(client), events),
            members: Vec::new(),
            lack: Some(Lack::Decision),
            amiss: None,
            agents,
            port,
            shared,
            made: BTreeMap::new(),
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
            self.made.clear();
            self.moving.clear();
            self.amiss = None;
        }
    }

    async fn keep(&mut self) {
        loop {
            let looked = timeout(LONGEST, self.look()).await;
            let result = looked.unwrap_or(Err(AgentsError::Silent));
            let pause = result.as_ref().map_or(LOOK, |pause| *pause);
            // What cannot be written now is written at the next look.
            drop(timeout(LONGEST, self.tell_conditions(result.as_ref().err())).await);
            let words = result.err().map(|error| error.to_string());
            if let Some(words) = words
                .as_ref()
                .filter(|words| self.told.as_ref() != Some(words))
            {
                warn!("{words}");
            }
            self.told = words;
            sleep(pause).await;
        }
    }

    /// Tells in the ProxyConfig what the look found.
    async fn tell_conditions(&mut self, error: Option<&AgentsError>) -> kube::Result<()> {
        let managed = managed(error, self.lack.as_ref());
        if managed.0.verdict == Verdict::True {
            self.amiss = None;
        } else if self.amiss.get_or_insert_with(Instant::now).elapsed() < SETTLED {
            return Ok(());
        }
        let kube_proxies = self.neighbours.kube_proxies().await;
        let agents_on = self.members.iter().map(|node| &**node);
        let only = only_service_proxy(agents_on, kube_proxies);
        self.teller.tell([managed, only]).await
    }

    /// Does what is due, and says when to look again.
    async fn look(&mut self) -> Result<Duration, AgentsError> {
        let somebody = self.tell_where().await?;
        let (owner, template) = self.template().await?;
        let pause = self.follow(&owner, somebody).await?;
        // What was decided before goes on meanwhile.
        template.map(|()| pause).map_err(|error| {
            let map = self.agents.template.clone();
            AgentsError::Template { map, error }
        })
    }

    /// The ConfigMap of the template, and whether it holds one.
    async fn template(&self) -> Result<(Owner, Result<(), TemplateError>), AgentsError> {
        let map = &self.agents.template;
        let found = self.templates.get_opt(&map.name).await;
        let found = found.map_err(|error| refused("read ConfigMap", map, error))?;
        let found = found.ok_or_else(|| AgentsError::NoTemplate { map: map.clone() })?;
        let data = found.data.unwrap_or_default();
        let read = data.get(KEY).ok_or(TemplateError::Absent);
        let template = read.and_then(|text| Template::read(text)).map(drop);
        let owner = Owner {
            map: map.clone(),
            uid: found.metadata.uid.unwrap_or_default(),
        };
        Ok((owner, template))
    }

    /// Makes everything what the stored state of the rollout says. DaemonSets are not made before agents have
    /// somebody to turn to: their pods would wait for the file.
    async fn follow(&mut self, owner: &Owner, somebody: bool) -> Result<Duration, AgentsError> {
        let config = self.configs.get_opt("default").await;
        let named = "default of ProxyConfigs";
        let config = config.map_err(|error| refused("read", &named, error))?;
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
        let (found, sets) = self.read_sets(&wanted.current, owner).await?;
        let members = wanted.members(self.shared.read().planner.nodes_with_agents());
        self.members = members.iter().map(|member| member.name.clone()).collect();
        let decide =
            |occupied: &BTreeSet<Track>| assign(&sets, wanted.hashes(), &members, occupied);
        let mut assignment = decide(&BTreeSet::new());
        let mut pods = AgentPods::default();
        if assignment.sets != sets || !assignment.moves.is_empty() || !self.moving.is_empty() {
            let listed = list(&self.pods[1]).await;
            let namespace = &owner.map.namespace;
            pods = listed.map_err(|error| refused("list pods of agents in", namespace, error))?;
            assignment = decide(&pods.tracks());
        }
        let is_made = somebody || !found.is_empty();
        self.lack = match is_made {
            true => found.values().find_map(Lack::of),
            false => Some(Lack::Controllers),
        };
        // Nodes are moved all the same: back, for one.
        let written = match is_made {
            true => {
                self.write_sets(&assignment.sets, &wanted, owner, &found)
                    .await
            }
            false => Ok(()),
        };
        let settled = |track: Track| found.get(&track).is_some_and(is_observed);
        let most = wanted.most.of(members.len()).max(1);
        self.moving
            .carry_out(&assignment.moves, &pods, &members, most, settled)
            .await?;
        written?;
        let busy = wanted.target.is_some() || !self.moving.is_empty();
        let busy = busy || !assignment.moves.is_empty();
        Ok(if busy { BUSY } else { LOOK })
    }

    /// Whether the nodes that are known are those of now, and of this version of the settings or a later one: before
    /// everything was read once there seem to be none.
    fn has_seen(&self, config: &ProxyConfig) -> bool {
        let known = self.shared.read();
        let held = known.planner.model().config_in_force();
        match from_kube::proxy_config(config) {
            Ok(served) => held.is_some_and(|held| **held == served),
            // What was accepted last stays in force.
            Err(_) => held.is_some(),
        }
    }

    /// Both DaemonSets, and what they are.
    async fn read_sets(
        &self,
        template: &Template,
        owner: &Owner,
    ) -> Result<(BTreeMap<Track, DaemonSet>, Sets), AgentsError> {
        let (mut found, mut sets) = (BTreeMap::new(), Sets::default());
        for track in Track::ALL {
            let set = self.read_set(template, owner, track).await?;
            if let Some(held) = set.as_ref().and_then(|set| self.held(track, set)) {
                sets.put(track, &held.agents, held.takes);
            }
            found.extend(set.map(|set| (track, set)));
        }
        Ok((found, sets))
    }

    /// Makes both what they should be. One that fails does not stop the other.
    async fn write_sets(
        &mut self,
        sets: &Sets,
        wanted: &WantedAgents,
        owner: &Owner,
        found: &BTreeMap<Track, DaemonSet>,
    ) -> Result<(), AgentsError> {
        let mut written = Ok(());
        for track in Track::ALL {
            // Another template is left as it is for as long as nodes are at it.
            let held = sets.get(track);
            let template = held.and_then(|held| wanted.template(&held.agents));
            let (Some(held), Some(template)) = (held, template) else {
                continue;
            };
            let object = daemon_set(template, owner, track, held.takes);
            let set = named_set(template, owner, track);
            let wrote = self.write_set(&set, track, found.get(&track), object).await;
            written = written.and(wrote);
        }
        written
    }

    async fn read_set(
        &self,
        template: &Template,
        owner: &Owner,
        track: Track,
    ) -> Result<Option<DaemonSet>, AgentsError> {
        let set = named_set(template, owner, track);
        let found = self.sets.get_opt(&set.name).await;
        let found = found.map_err(|error| refused("read DaemonSet", &set, error))?;
        if found
            .as_ref()
            .is_some_and(|found| !super::due::is_ours(found))
        {
            return Err(AgentsError::Foreign { set });
        }
        Ok(found)
    }

    /// What one is, by what was asked for last, if that was here: others may have changed what is there.
    fn held(&self, track: Track, found: &DaemonSet) -> Option<super::track::Held> {
        let made = self.made.get(&track);
        let made = made.filter(|made| made.uid == found.metadata.uid);
        made.and_then(|made| held(&made.wanted))
            .or_else(|| held(&serde_json::to_value(found).ok()?))
    }

    /// Makes a DaemonSet what it should be.
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
        self.made.insert(track, Made::new(wanted, &applied));
        Ok(())
    }

    /// Writes where controllers are if that is not what agents read. Says whether they are told of any.
    async fn tell_where(&self) -> Result<bool, AgentsError> {
        let map = &self.agents.controllers;
        let selected = ListParams::default().labels(&self.agents.pods);
        let pods = self.pods[0].list(&selected).await;
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

fn named_set(template: &Template, owner: &Owner, track: Track) -> Named {
    Named {
        namespace: owner.map.namespace.clone(),
        name: set_name(template, track),
    }
}

/// Fields of ours are taken back from whoever changed them; an unknown one is refused.
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
