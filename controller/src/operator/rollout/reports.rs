//! Statuses of nodes, read from where all controllers write them: the ProxyPlans. They are watched during a rollout
//! only, because a ProxyPlan is large.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{ProxyPlan, ProxyPlanStatus};
use portolan_rollout_policy::Report;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::report;
use crate::operator::mirror::{Mirror, Unavailable};

/// The objects in messages, with the chart's value that permits to watch them.
const WHAT: &str = "ProxyPlans (rbac.waves of the chart)";
/// ProxyPlans in one page of a list.
const PAGE_SIZE: u32 = 100;

/// The status of a node.
pub(super) struct NodeStatus {
    pub(super) report: Report,
    /// The pod of the agent that reported it, if known.
    pub(super) pod: Option<String>,
}

/// Statuses of nodes while they are needed.
pub(super) struct Reports {
    client: Client,
    plans: Mirror<Stored>,
    /// The watch, while it runs.
    tasks: JoinSet<()>,
}

/// The fields of a ProxyPlan that are kept.
struct Stored {
    node: Arc<str>,
    status: ProxyPlanStatus,
}

impl Reports {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            plans: Mirror::new(WHAT, watch::Sender::new(())),
            tasks: JoinSet::new(),
        }
    }

    /// The reports of all nodes at time `now`.
    pub(super) async fn read(
        &mut self,
        now: SystemTime,
    ) -> Result<BTreeMap<Arc<str>, NodeStatus>, Unavailable> {
        if self.tasks.is_empty() {
            let (api, plans) = (Api::all(self.client.clone()), self.plans.clone());
            let config = watcher::Config::default().page_size(PAGE_SIZE);
            self.tasks
                .spawn(async move { plans.follow(api, config, stored).await });
        }
        self.plans.ready().await?;
        let plans = self.plans.values()?;
        let status = |plan: &Arc<Stored>| {
            let status = NodeStatus {
                report: report(&plan.status, now),
                pod: plan.status.agent_pod.clone(),
            };
            (plan.node.clone(), status)
        };
        Ok(plans.iter().map(status).collect())
    }

    /// Ends the watch.
    pub(super) fn stop(&mut self) {
        self.tasks.abort_all();
        self.tasks.detach_all();
    }
}

fn stored(plan: &ProxyPlan) -> Option<Stored> {
    Some(Stored {
        node: plan.name_any().into(),
        status: plan.status.clone()?,
    })
}
