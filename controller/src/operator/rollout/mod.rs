//! Rolls out a change of the settings to nodes in waves.
//!
//! The decision is a function of the stored state ([`portolan_rollout_policy::State::advance`]). This task reads its
//! inputs from watches and stores the result. Only the leader runs it. The API server rejects a write that is based on
//! an outdated object, so of two controllers that both consider themselves the leader only one decides. All
//! controllers serve nodes by the stored state, which they receive from their watch of the ProxyConfig.
//!
//! Accesses: the API server (the ProxyConfig, the statuses of ProxyPlans, the recorded templates of agents), the clock.

mod agents;
mod event;
mod report;
mod reports;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{ProxyConfig, RolloutStatus};
use portolan_rollout_policy::{Agent, Moment, Node, Policy, Report, State, Tally};
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

pub use report::{is_outdated, report};
pub use written::rollout_status;

use crate::cluster_state::Shared;
use crate::engine::moment;
use crate::events::Events;
use crate::from_kube::{self, FieldError};
use crate::leading::{Leading, while_leading};
use crate::operator::agents::{Agents, AgentsError, Recorded, Watched};
use crate::operator::mirror::Unavailable;
use agents::{AgentsSource, Replaced};
use reports::{NodeStatus, Reports};

/// The field manager. Another manager owns the rest of the status.
const MANAGER: &str = "portolan-rollout";
/// Maximum interval between two passes while no change is being rolled out: Nodes come from the planner, which sends
/// no ticks. A pass without changes costs the API server nothing.
const MAX_PASS_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum interval between two passes, and the maximum during a rollout, which has timers.
const MIN_PASS_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one pass.
const PASS_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a pass made no decision.
#[derive(Debug, Error)]
enum DecideError {
    /// The API server rejects the request, or is unreachable.
    #[error("{0}; check that this controller may patch proxyconfigs/status")]
    Api(#[from] kube::Error),
    /// Objects that the decision depends on cannot be watched.
    #[error("{0}; check that this controller may list and watch them")]
    Unavailable(#[from] Unavailable),
    /// The template of agents cannot be recorded.
    #[error("{0}")]
    Agents(Box<AgentsError>),
    /// An object that was read is invalid.
    #[error("{0}")]
    Field(#[from] FieldError),
    /// The pass timed out.
    #[error(
        "no answer from the API server within {} s; check `kubectl get --raw /readyz` and the network of the \
         controller's node",
        PASS_TIMEOUT.as_secs()
    )]
    Silent,
}

impl DecideError {
    /// Whether another client has changed an object since it was read.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Api(kube::Error::Api(status)) => status.code == 409,
            Self::Agents(error) => error.is_conflict(),
            _ => false,
        }
    }
}

/// The rollout task.
pub struct Rollout {
    configs: Api<ProxyConfig>,
    watched: Arc<Watched>,
    client: Client,
    shared: Shared,
    events: Events,
    /// The source of the agents' template and pods, if this controller manages agents.
    agents: Option<AgentsSource>,
    /// The problem that was logged last, empty if there is none. It is not logged again while it lasts.
    logged: String,
}

impl std::fmt::Debug for Rollout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rollout").finish_non_exhaustive()
    }
}

impl Rollout {
    /// Creates the task. It rolls out changes to the nodes in `shared` and records events. `agents` are rolled out as
    /// well.
    pub fn new(
        client: Client,
        shared: Shared,
        watched: Arc<Watched>,
        agents: Option<&Agents>,
        events: Events,
    ) -> Self {
        Self {
            configs: Api::all(client.clone()),
            agents: agents.map(|agents| AgentsSource::new(client.clone(), agents, watched.clone())),
            watched,
            client,
            shared,
            events,
            logged: String::new(),
        }
    }

    /// Runs while this controller leads.
    pub async fn run(mut self, leading: Leading) {
        while_leading!(leading, self.keep());
    }

    async fn keep(&mut self) {
        let mut changes = self.watched.changes();
        let mut reports = Reports::new(self.client.clone());
        loop {
            let begin = Instant::now();
            changes.mark_unchanged();
            let pause = self.look(&mut reports).await;
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = changes.changed() => sleep_until(begin + MIN_PASS_INTERVAL).await,
            }
        }
    }

    /// Decides once, and returns when the next pass is due.
    async fn look(&mut self, reports: &mut Reports) -> Duration {
        let looked = timeout(PASS_TIMEOUT, self.decide(reports)).await;
        match looked.unwrap_or(Err(DecideError::Silent)) {
            Ok(pause) => {
                self.logged.clear();
                pause
            }
            // Another writer changed the object; the next pass reads the new version.
            Err(error) if error.is_conflict() => MIN_PASS_INTERVAL,
            // The planner's reader of the ProxyConfig reported the problem already.
            Err(DecideError::Field(_)) => MAX_PASS_INTERVAL,
            Err(error) => {
                let error = error.to_string();
                if self.logged != error {
                    warn!("cannot roll out a change: {error}");
                    self.logged = error;
                }
                MAX_PASS_INTERVAL
            }
        }
    }

    async fn decide(&self, reports: &mut Reports) -> Result<Duration, DecideError> {
        self.watched.config.ready().await?;
        let Some(config) = self.watched.config()? else {
            return Ok(MAX_PASS_INTERVAL);
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
            // Before the initial lists there seem to be no nodes. A controller without the newest decision would
            // decide on outdated settings of the nodes.
            return Ok(MIN_PASS_INTERVAL);
        }
        let status = config.status.clone().unwrap_or_default();
        let before = status.rollout.unwrap_or_default();
        let stored = match before.history.is_empty() {
            true => None,
            false => Some(from_kube::rollout_state(&before)?),
        };
        let chart = self.recorded(&before).await?;
        let agents = match (&self.agents, chart, &stored) {
            (None, ..) => None,
            (_, Some(chart), _) => Some(chart.record().clone()),
            // The operator reports why the template cannot be used; nodes keep their agents.
            (_, None, Some(stored)) => from_kube::agents_of(stored, stored.target()),
            (_, None, None) => return Ok(MIN_PASS_INTERVAL),
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
            (state, tally) = self.advance(state, policy, reports, now).await?;
        }
        let after = rollout_status(&state, policy, tally.as_ref(), &before);
        if after != before {
            self.store(&config, &after).await?;
            log_transition(&before, &after);
            if let Some(event) = event::event(&before, &after) {
                self.events.record(event);
            }
        }
        if state.rolling().is_some_and(|progress| !progress.halted) {
            return Ok(MIN_PASS_INTERVAL);
        }
        reports.stop();
        Ok(MAX_PASS_INTERVAL)
    }

    /// The template of agents in the chart, recorded before the status refers to it. `None` without a valid one, or if
    /// this controller does not manage agents.
    async fn recorded(&self, stored: &RolloutStatus) -> Result<Option<Recorded>, DecideError> {
        let Some(source) = &self.agents else {
            return Ok(None);
        };
        let chart = source.read()?;
        if let Some(chart) = &chart {
            let recorded = source.record(chart, stored).await;
            recorded.map_err(|error| DecideError::Agents(Box::new(error)))?;
        }
        Ok(chart)
    }

    async fn advance(
        &self,
        state: State,
        policy: &Policy,
        reports: &mut Reports,
        now: Moment,
    ) -> Result<(State, Option<Tally>), DecideError> {
        // Reports of nodes do not matter while the rollout is paused or halted.
        if policy.paused || is_halted(&state) {
            return Ok((state.advance(policy, &[], now), None));
        }
        let reports = reports.read(SystemTime::now()).await?;
        let replaced = match &self.agents {
            Some(source) => source.replaced(&state)?,
            None => None,
        };
        let nodes = self.nodes(&state, &reports, replaced.as_ref())?;
        // Advance twice: the next wave starts in the same pass in which the previous one ends.
        let state = state.advance(policy, &nodes, now);
        let state = state.advance(policy, &nodes, now);
        let tally = state.rolling().map(|progress| Tally::of(progress, &nodes));
        Ok((state, tally))
    }

    /// All nodes, with their reports and the effect of the change on each.
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
                report: status.map_or(Report::DISCONNECTED, |status| status.report.clone()),
            }
        };
        Ok(known.planner.nodes_with_agents().map(node).collect())
    }

    async fn store(&self, config: &ProxyConfig, status: &RolloutStatus) -> Result<(), DecideError> {
        let object = json!({
            "apiVersion": "proxy.portolan.dev/v1alpha1",
            "kind": "ProxyConfig",
            "metadata": {
                "name": config.name_any(),
                // The decision is valid for this version only.
                "resourceVersion": config.resource_version(),
            },
            "status": {"rollout": status},
        });
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(object);
        let patched = self
            .configs
            .patch_status(&config.name_any(), &params, &patch)
            .await?;
        self.watched
            .config
            .wrote(&patched, |patched| Some(patched.clone()));
        Ok(())
    }
}

/// Whether the rollout has stopped and waits for an operator.
fn is_halted(state: &State) -> bool {
    state.rolling().is_some_and(|progress| progress.halted)
}

/// Logs the transition.
fn log_transition(before: &RolloutStatus, after: &RolloutStatus) {
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
        "the rollout has a new state"
    );
}
