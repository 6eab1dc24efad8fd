//! Brings a change of the settings to nodes in waves.
//!
//! What is decided is a function of what is stored ([`portolan_rollout::State::advance`]); this is the
//! task that reads what it needs, and stores what came out. Only the controller that leads runs it, and a
//! write that is about an older object than the present one is refused by the API server, so of two that
//! think that they lead one decides. All controllers serve nodes by what is stored, which their watch of
//! the ProxyConfig brings them.
//!
//! Touches: the API server (the ProxyConfig, the statuses of ProxyPlans), the clock.

mod agents;
mod news;
mod report;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{ProxyConfig, ProxyPlan, RolloutStatus};
use portolan_planner::model::ProxyConfig as Config;
use portolan_rollout::{Agent, Moment, Node, Policy, Report, State, Tally};
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

pub use report::report;
pub use written::rollout_status;

use crate::engine::moment;
use crate::events::Events;
use crate::from_kube::{self, FieldError};
use crate::known::Shared;
use crate::trust::Named;
use agents::{AgentsSource, Replaced};

/// Who we are to the API server: the rest of the status has another owner.
const MANAGER: &str = "portolan-rollout";
/// How often it is looked at while nothing is on its way.
const IDLE: Duration = Duration::from_secs(5);
/// The same while something is, in small clusters.
const BUSY: Duration = Duration::from_secs(2);
/// The same for each node: statuses of 5,000 nodes are read every 50 s.
const EACH: Duration = Duration::from_millis(10);
/// How long one look may take.
const LONGEST: Duration = Duration::from_secs(120);
/// ProxyPlans that are read at once.
const PAGE: u32 = 100;

/// Why nothing could be decided.
#[derive(Debug, Error)]
enum Trouble {
    /// The API server refuses, or is not there.
    #[error(
        "{0}; may this controller get proxyconfigs, list proxyplans and patch proxyconfigs/status, and get the \
         ConfigMap of agents and list their pods?"
    )]
    Api(#[from] kube::Error),
    /// What was read makes no sense.
    #[error("{0}")]
    Field(#[from] FieldError),
    /// It takes too long.
    #[error("the API server does not answer")]
    Silent,
}

/// The task.
pub struct Rollout {
    configs: Api<ProxyConfig>,
    plans: Api<ProxyPlan>,
    shared: Shared,
    events: Events,
    /// Where agents are kept.
    agents: Option<AgentsSource>,
    /// What was said and is still so.
    said: String,
}

impl std::fmt::Debug for Rollout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rollout").finish_non_exhaustive()
    }
}

impl Rollout {
    /// Brings changes to the nodes that are known, and tells of it.
    pub fn new(client: Client, shared: Shared, events: Events) -> Self {
        Self {
            configs: Api::all(client.clone()),
            plans: Api::all(client),
            shared,
            events,
            agents: None,
            said: String::new(),
        }
    }

    /// Rolls out agents, too: the template of their DaemonSet is in this ConfigMap.
    #[must_use]
    pub fn with_agents(self, client: Client, template: &Named) -> Self {
        Self {
            agents: Some(AgentsSource::new(client, template)),
            ..self
        }
    }

    /// Decides while this says so; always where there is no other controller. Never ends by itself.
    pub async fn run(mut self, leading: Option<watch::Receiver<bool>>) {
        loop {
            let leads = leading.as_ref().is_none_or(|leads| *leads.borrow());
            let pause = if leads { self.look().await } else { BUSY };
            sleep(pause).await;
        }
    }

    /// Decides once, and tells when to look again.
    async fn look(&mut self) -> Duration {
        let looked = timeout(LONGEST, self.decide()).await;
        match looked.unwrap_or(Err(Trouble::Silent)) {
            Ok(pause) => {
                self.said.clear();
                pause
            }
            // Somebody wrote it meanwhile: the next look knows.
            Err(Trouble::Api(kube::Error::Api(status))) if status.code == 409 => BUSY,
            // Whoever reads it for planning has said what is wrong with it.
            Err(Trouble::Field(_)) => IDLE,
            Err(trouble) => {
                let trouble = trouble.to_string();
                if self.said != trouble {
                    warn!("settings are not rolled out at present: {trouble}");
                    self.said = trouble;
                }
                IDLE
            }
        }
    }

    async fn decide(&self) -> Result<Duration, Trouble> {
        let Some(config) = self.configs.get_opt(Config::DEFAULT).await? else {
            return Ok(IDLE);
        };
        let served = from_kube::proxy_config(&config)?;
        let held = self
            .shared
            .read()
            .planner
            .model()
            .config_in_force()
            .cloned();
        if held.as_deref() != Some(&served) {
            // Before everything was read once there seem to be no nodes; and who has not seen the newest
            // decision would decide by what nodes had before it.
            return Ok(BUSY);
        }
        let status = config.status.clone().unwrap_or_default();
        let before = status.rollout.unwrap_or_default();
        let stored = match before.history.is_empty() {
            true => None,
            false => Some(from_kube::rollout_state(&before)?),
        };
        let agents = match &self.agents {
            None => None,
            Some(source) => match source.read().await? {
                Some(agents) => Some(agents),
                // Who keeps agents says why it cannot be used; what nodes have stays.
                None => match &stored {
                    Some(stored) => from_kube::agents_of(stored, stored.target()),
                    None => return Ok(BUSY),
                },
            },
        };
        let asked = from_kube::asked(&config, agents.as_ref())?;
        let now = moment(SystemTime::now());
        let state = match stored {
            None => State::first(asked.content.clone(), asked.generation, now),
            Some(stored) => from_kube::with_agents(stored, agents.as_ref()),
        };
        let mut state = state.adopt(&asked, now);
        let mut tally = None;
        let policy = asked.policy.as_ref();
        if let Some(policy) = policy.filter(|_| state.rolling().is_some()) {
            (state, tally) = self.advance(state, policy, now).await?;
        }
        let after = rollout_status(&state, policy, tally.as_ref(), &before);
        if after != before {
            self.store(&config, &after).await?;
            tell(&before, &after);
            if let Some(event) = news::news(&before, &after) {
                self.events.tell(event);
            }
        }
        Ok(match state.rolling() {
            Some(progress) if !progress.halted => self.pace(),
            _ => IDLE,
        })
    }

    async fn advance(
        &self,
        state: State,
        policy: &Policy,
        now: Moment,
    ) -> Result<(State, Option<Tally>), Trouble> {
        // What nodes report decides nothing then.
        if policy.paused || is_halted(&state) {
            return Ok((state.advance(policy, &[], now), None));
        }
        let reports = self.reports().await?;
        let replaced = match &self.agents {
            Some(source) => source.replaced(&state).await?,
            None => None,
        };
        let nodes = self.nodes(&state, &reports, replaced.as_ref())?;
        // A wave that has ended is followed by the next one in one go.
        let state = state.advance(policy, &nodes, now);
        let state = state.advance(policy, &nodes, now);
        let tally = state.rolling().map(|progress| Tally::of(progress, &nodes));
        Ok((state, tally))
    }

    /// What nodes reported: to all controllers, so it is read from where all of them write it.
    async fn reports(&self) -> Result<BTreeMap<Arc<str>, NodeStatus>, Trouble> {
        let now = SystemTime::now();
        let mut params = ListParams::default().limit(PAGE);
        let mut reports = BTreeMap::new();
        loop {
            let page = self.plans.list(&params).await?;
            reports.extend(page.items.iter().filter_map(|plan| {
                let status = plan.status.as_ref()?;
                let status = NodeStatus {
                    report: report(status, now),
                    pod: status.agent_pod.clone(),
                };
                Some((plan.name_any().into(), status))
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(reports),
            }
        }
    }

    /// All nodes, and what the change means to each.
    fn nodes(
        &self,
        state: &State,
        reports: &BTreeMap<Arc<str>, NodeStatus>,
        replaced: Option<&Replaced>,
    ) -> Result<Vec<Node>, FieldError> {
        let current = from_kube::stored_revision(state, state.current)?;
        let target = from_kube::stored_revision(state, state.target())?;
        let known = self.shared.read();
        let node = |node: &Arc<portolan_planner::model::Node>| {
            let status = reports.get(&node.name);
            let reporter = status.and_then(|status| status.pod.as_deref());
            let agent = replaced.map_or(Agent::Stays, |change| change.of(node, state, reporter));
            let settings = current.settings_of(node) != target.settings_of(node);
            Node {
                name: node.name.clone(),
                zone: node.zone.clone().unwrap_or_default(),
                affected: settings || agent != Agent::Stays,
                agent,
                report: status.map_or(Report::AWAY, |status| status.report.clone()),
            }
        };
        Ok(known.planner.nodes_with_agents().map(node).collect())
    }

    async fn store(&self, config: &ProxyConfig, status: &RolloutStatus) -> Result<(), Trouble> {
        let object = json!({
            "apiVersion": "proxy.portolan.dev/v1alpha1",
            "kind": "ProxyConfig",
            "metadata": {
                "name": config.name_any(),
                // What was decided is about this version and no other one.
                "resourceVersion": config.resource_version(),
            },
            "status": {"rollout": status},
        });
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(object);
        self.configs
            .patch_status(&config.name_any(), &params, &patch)
            .await?;
        Ok(())
    }

    fn pace(&self) -> Duration {
        let nodes = self.shared.read().planner.nodes().len();
        BUSY.max(EACH * u32::try_from(nodes).unwrap_or(u32::MAX))
    }
}

/// The status of a node.
struct NodeStatus {
    report: Report,
    /// The pod of the agent that reported it, if known.
    pod: Option<String>,
}

/// Whether somebody has to look.
fn is_halted(state: &State) -> bool {
    state.rolling().is_some_and(|progress| progress.halted)
}

/// Says what changed.
fn tell(before: &RolloutStatus, after: &RolloutStatus) {
    let wave = after.wave.as_deref().unwrap_or_default();
    if (before.phase, before.wave.as_deref()) == (after.phase, after.wave.as_deref())
        && before.target_revision == after.target_revision
        && before.reason == after.reason
    {
        return;
    }
    info!(
        phase = ?after.phase,
        wave,
        current = after.current_revision,
        target = after.target_revision,
        reason = after.reason.as_deref().unwrap_or_default(),
        "rollout"
    );
}
