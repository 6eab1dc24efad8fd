//! `kubectl proxyplan wait`: waits until a change is on all nodes.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::future::join_all;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use portolan_plan::ServiceId;
use portolan_planner::model::Kind;
use tokio::time::{Instant, sleep};

use super::ask::{Controller, ControllerArguments, Problem};
use super::cluster::ClusterArguments;
use super::output::{self, Output};
use super::{NOT_YET, OK};
use crate::convergence::{Convergence, Node, Question, Verdict, merge};

/// Interval between two queries.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of progress reports on a terminal.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct WaitArguments {
    /// Service.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service)]
    service: ServiceId,
    /// Wait until no node sends new connections of the Service to this address. For a preStop hook, before its
    /// container stops listening.
    #[arg(long, value_name = "IP")]
    gone: Option<IpAddr>,
    /// Timeout, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Seconds after which a node is not waited for if its agent is connected to no controller. Has an effect only
    /// while all controllers answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    unseen: u64,
    #[command(flatten)]
    controllers: ControllerArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

fn service(text: &str) -> Result<ServiceId, String> {
    text.split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .map(|(namespace, name)| ServiceId::new(namespace, name))
        .ok_or_else(|| "write NAMESPACE/NAME".into())
}

pub(super) async fn run(arguments: WaitArguments) -> anyhow::Result<u8> {
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
    let controllers = arguments.controllers.controllers()?;
    let client = arguments.cluster.client().await?;
    let id = &arguments.service;
    let asked = Asked::read(&client, id)
        .await
        .with_context(|| format!("read Service {id}, its EndpointSlices and Nodes"))?;
    let question = Question {
        service: id.clone(),
        gone: arguments.gone,
        read: asked.versions,
    };
    let mut reported_at = Instant::now();
    loop {
        let (answers, problems) = ask_all(&controllers, &question).await?;
        // A controller that does not answer may hold streams, whose nodes then appear to be disconnected.
        let unseen = problems.is_empty().then_some(arguments.unseen);
        let mut verdict = merge(&answers, Some(&asked.nodes), unseen);
        verdict.held_up.extend(problems);
        if !asked.exists && answers.iter().any(|answer| answer.served) {
            verdict.not_yet("a controller has not yet seen the deletion of the Service");
        } else if asked.exists && answers.iter().all(|answer| !answer.served) {
            verdict.not_yet("no controller serves it; check that it has a cluster IP and no other proxy's label");
        }
        let over = Instant::now() >= deadline;
        if verdict.converged || over {
            output::print(&verdict, arguments.gone, arguments.output)?;
            return Ok(if verdict.converged { OK } else { NOT_YET });
        }
        if reported_at.elapsed() >= REPORT_INTERVAL && io::stderr().is_terminal() {
            reported_at = Instant::now();
            report(&verdict);
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn report(verdict: &Verdict) {
    let (in_force, waiting) = (verdict.in_force, verdict.waiting.len());
    let first = verdict.held_up.first().cloned().or_else(|| {
        let first = verdict.waiting.first()?;
        Some(format!("{}: {}", first.node, first.reason))
    });
    drop(writeln!(
        io::stderr().lock(),
        "{in_force} nodes have it, {waiting} do not yet; {}",
        first.unwrap_or_default()
    ));
}

/// The answers of all controllers, and the temporary errors of those that did not answer.
async fn ask_all(
    controllers: &[Controller],
    question: &Question,
) -> anyhow::Result<(Vec<Convergence>, Vec<String>)> {
    let asked = controllers
        .iter()
        .map(|controller| controller.ask(question));
    let (mut answers, mut problems) = (Vec::new(), Vec::new());
    for answer in join_all(asked).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(Problem::Away(problem)) => problems.push(problem),
            Err(Problem::Refused(problem)) => bail!(problem),
        }
    }
    Ok((answers, problems))
}

/// The state in the API server.
struct Asked {
    exists: bool,
    versions: BTreeMap<Kind, u64>,
    nodes: BTreeMap<String, Node>,
}

impl Asked {
    async fn read(client: &Client, id: &ServiceId) -> kube::Result<Self> {
        let (namespace, name) = (&*id.namespace, &*id.name);
        let services: Api<core::Service> = Api::namespaced(client.clone(), namespace);
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let of_service =
            ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let (service, slices) = (
            services.get_opt(name).await?,
            slices.list(&of_service).await?,
        );
        let nodes: Api<core::Node> = Api::all(client.clone());
        let nodes = nodes.list(&ListParams::default()).await?;
        let mut versions = BTreeMap::new();
        let newest = slices.items.iter().filter_map(version).max();
        versions.extend(newest.map(|newest| (Kind::EndpointSlice, newest)));
        let of_service = service.as_ref().and_then(version);
        versions.extend(of_service.map(|version| (Kind::Service, version)));
        let ready = |node: &core::Node| {
            (
                node.name_any(),
                Node {
                    ready: is_ready(node),
                },
            )
        };
        Ok(Self {
            exists: service.is_some(),
            versions,
            nodes: nodes.items.iter().map(ready).collect(),
        })
    }
}

/// The resource version of an object. Numeric in all API servers since 1.35.
fn version(object: &impl kube::ResourceExt) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

fn is_ready(node: &core::Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
