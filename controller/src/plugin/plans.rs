//! `kubectl proxyplan show`, `explain` and `diff`: computed locally from the objects that the user may read, by the
//! controllers' planner.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use kube::{Api, Client};
use portolan_crds::{ProxyPlan, condition};
use portolan_planner::Planner;
use portolan_planner::compare::{Difference, Lost, Plans};

use super::cluster::{ClusterArguments, read};
use super::{NOT_YET, OK, UNUSABLE};
use crate::cli::explain::{ExplainQuestion, answer};
use crate::cli::plan::{planner, print_plan, report, unknown_node};
use crate::cli::what_if::print_difference;
use crate::manifests::Manifests;
use crate::output::difference::Question;
use crate::output::{Format, plan_document};

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// Name of the node.
    node: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    #[command(flatten)]
    question: ExplainQuestion,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Args)]
pub(super) struct DiffArguments {
    /// Name of the node.
    #[arg(value_name = "NODE")]
    one: Arc<str>,
    /// Name of the node whose plan it would have.
    other: Arc<str>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

pub(super) async fn show(arguments: ShowArguments) -> anyhow::Result<u8> {
    let client = arguments.cluster.client().await?;
    let objects = read(&client).await?;
    let node = &*arguments.node;
    let Some(document) = plan_document(&planner(&objects), node) else {
        return Ok(report(UNUSABLE, &unknown_node(node, &objects)));
    };
    let code = print_plan(&document, arguments.output, &objects);
    report(code, &in_force(&client, node, &document.hash).await);
    Ok(code)
}

/// Reports whether the node has this plan in force, from its agent's last report.
async fn in_force(client: &Client, node: &str, hash: &str) -> String {
    let plans: Api<ProxyPlan> = Api::all(client.clone());
    let plan = match plans.get_opt(node).await {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            return format!("{node}: unknown whether it has this plan: it has no ProxyPlan");
        }
        Err(error) => {
            return format!(
                "{node}: unknown whether it has this plan: {error}; check that you may get proxyplans"
            );
        }
    };
    let status = plan.status.unwrap_or_default();
    let (applied, received) = (status.applied_hash, status.received_hash);
    let of = |conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]| {
        let mut conditions = conditions.iter();
        let applied = conditions.find(|condition| condition.type_ == condition::APPLIED)?;
        Some(applied.message.clone())
    };
    let condition = of(&status.conditions).unwrap_or_else(|| "it is missing".into());
    if applied.as_deref() == Some(hash) {
        return format!("{node} has this plan in force ({condition})");
    }
    let reported = match (applied, received) {
        (Some(applied), _) => {
            format!("reported another plan ({applied}) than the one printed above")
        }
        (None, Some(received)) => {
            format!("received the plan {received} and did not report it as in force")
        }
        (None, None) => "has not reported a plan".into(),
    };
    format!(
        "{node} {reported}. Its report may be up to 5 minutes old: run this again. Condition Applied: {condition}"
    )
}

pub(super) async fn explain(arguments: ExplainArguments) -> anyhow::Result<u8> {
    let client = arguments.cluster.client().await?;
    let objects = read(&client).await?;
    Ok(answer(&arguments.question, &objects))
}

pub(super) async fn diff(arguments: DiffArguments) -> anyhow::Result<u8> {
    let client = arguments.cluster.client().await?;
    let objects = read(&client).await?;
    let planner = planner(&objects);
    let (one, other) = (&arguments.one, &arguments.other);
    let plans = [one, other].map(|node| in_place_of(one, node, &planner, &objects));
    let [before, after] = plans;
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(unknown), _) | (_, Err(unknown)) => return Ok(report(UNUSABLE, &unknown)),
    };
    let difference = Difference::on_node(one, &before, &after);
    let question = Question {
        diff: Some(format!("the plan of {other}")),
        lost: Lost::default(),
        node: Some(one.to_string()),
    };
    print_difference(&question, &difference, arguments.output).map_err(|error| anyhow!(error))?;
    Ok(if difference.is_empty() { OK } else { NOT_YET })
}

/// The plans of a cluster in which `one` is the only node and has the plan of `other`.
fn in_place_of(
    one: &Arc<str>,
    other: &str,
    planner: &Planner,
    objects: &Manifests,
) -> Result<Plans, String> {
    let entry = planner.node(other);
    let entry = entry.ok_or_else(|| unknown_node(other, objects))?;
    Ok(Plans {
        services: planner.services().clone(),
        nodes: BTreeMap::from([(one.clone(), entry.clone())]),
    })
}
