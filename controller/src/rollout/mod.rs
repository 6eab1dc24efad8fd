//! Brings a change of the settings to nodes in waves.
//!
//! What is decided is a function of what is stored ([`portolan_rollout::State::advance`]); this is the task that reads
//! what it needs from watches, and stores the result. Only the controller that leads runs it, and a
//! write that is about an older object than the present one is refused by the API server, so of two that
//! think that they lead one decides. All controllers serve nodes by what is stored, which their watch of
//! the ProxyConfig brings them.
//!
//! Touches: the API server (the ProxyConfig, the statuses of ProxyPlans), the clock.

mod agents;
mod news;
mod report;
mod reports;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{ProxyConfig, RolloutStatus};
use portolan_rollout::{Agent, Moment, Node, Policy, Report, State, Tally};
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

pub use report::report;
pub use written::rollout_status;

use crate::agents::Watched;
use crate::engine::moment;
use crate::events::Events;
use crate::from_kube::{self, FieldError};
use crate::known::Shared;
use crate::leading::{Leading, while_leading};
use crate::mirror::Unavailable;
use agents::{AgentsSource, Replaced};
use reports::{NodeStatus, Reports};

/// Who we are to the API server: the rest of the status has another owner.
const MANAGER: &str = "portolan-rollout";
/// The longest time between two passes while no change is being rolled out: Nodes come from the planner, which sends
/// no ticks. A pass without changes costs the API server nothing.
const IDLE: Duration = Duration::from_secs(5);
/// The shortest time between two passes, and the longest one during a rollout, which waits for times.
const BUSY: Duration = Duration::from_secs(2);
/// How long one pass may take.
const LONGEST: Duration = Duration::from_secs(120);

/// Why nothing could be decided.
#[derive(Debug, Error)]
enum Trouble {
    /// The API server refuses, or is not there.
    #[error("{0}; may this controller patch proxyconfigs/status?")]
    Api(#[from] kube::Error),
    /// What it depends on is not known.
    #[error("{0}; may this controller list and watch them?")]
    Unavailable(#[from] Unavailable),
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
    watched: Arc<Watched>,
    client: Client,
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
    /// Rolls changes out to the nodes that are known, and records events. Agents are rolled out as well if
    /// `with_agents`.
    pub fn new(
        client: Client,
        shared: Shared,
        watched: Arc<Watched>,
        with_agents: bool,
        events: Events,
    ) -> Self {
        Self {
            configs: Api::all(client.clone()),
            agents: with_agents.then(|| AgentsSource(watched.clone())),
            watched,
            client,
            shared,
            events,
            said: String::new(),
        }
    }

    /// Decides while this controller leads.
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
                Ok(()) = changes.changed() => sleep_until(begin + BUSY).await,
            }
        }
    }

    /// Decides once, and returns when the next pass is due.
    async fn look(&mut self, reports: &mut Reports) -> Duration {
        let looked = timeout(LONGEST, self.decide(reports)).await;
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

    async fn decide(&self, reports: &mut Reports) -> Result<Duration, Trouble> {
        self.watched.config.ready().await?;
        let Some(config) = self.watched.config()? else {
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
            Some(source) => match source.read()? {
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
            (state, tally) = self.advance(state, policy, reports, now).await?;
        }
        let after = rollout_status(&state, policy, tally.as_ref(), &before);
        if after != before {
            self.store(&config, &after).await?;
            tell(&before, &after);
            if let Some(event) = news::news(&before, &after) {
                self.events.tell(event);
            }
        }
        let advances = state.rolling().is_some_and(|progress| !progress.halted);
        if !advances {
            reports.stop();
        }
        Ok(if advances { BUSY } else { IDLE })
    }

    async fn advance(
        &self,
        state: State,
        policy: &Policy,
        reports: &mut Reports,
        now: Moment,
    ) -> Result<(State, Option<Tally>), Trouble> {
        // What nodes report decides nothing then.
        if policy.paused || is_halted(&state) {
            return Ok((state.advance(policy, &[], now), None));
        }
        let reports = reports.read(SystemTime::now()).await?;
        let replaced = match &self.agents {
            Some(source) => source.replaced(&state)?,
            None => None,
        };
        let nodes = self.nodes(&state, &reports, replaced.as_ref())?;
        // A wave that has ended is followed by the next one in one go.
        let state = state.advance(policy, &nodes, now);
        let state = state.advance(policy, &nodes, now);
        let tally = state.rolling().map(|progress| Tally::of(progress, &nodes));
        Ok((state, tally))
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
