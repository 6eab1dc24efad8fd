//! The service proxy: Portolan, installed with its chart, or kube-proxy of the cluster's version.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::cluster::Cluster;
use super::network::CONTROL_PLANE;
use crate::control_plane::Reach;
use crate::program::Program;
use crate::stage::Stage;

/// Where the images of Portolan are said to be in the nodes' stores; there is no such registry.
const REPOSITORY: &str = "lab.example/portolan";
pub(super) const NAMESPACE: &str = "portolan";
/// The agents of a cluster where none were ever changed in waves.
pub(super) const AGENTS: &str = "daemonset/portolan-agent-blue";
/// Pods of agents.
const AGENT_PODS: &str = "app.kubernetes.io/component=agent";
/// Kubernetes' tests use an external IP, and no address is served as one unless the operator allows it.
const EXTERNAL_IPS: &str = "config.spec.settings.externalIPs.allowedCIDRs={203.0.113.0/24}";
const NFTABLES: &str = "config.spec.settings.dataplane=nftables";
/// From the install to the last agent; measured: 71 s.
const INSTALLED: Duration = Duration::from_secs(300);
/// Until kube-proxy has written its first rules; measured: 8 s.
const FIRST_RULES: Duration = Duration::from_secs(120);

/// The service proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proxy {
    /// Portolan, by its chart.
    Portolan,
    /// The same with the nftables dataplane.
    PortolanNftables,
    /// kube-proxy with IPVS.
    Ipvs,
    /// kube-proxy with iptables.
    Iptables,
    /// kube-proxy with nftables.
    Nftables,
}

impl Proxy {
    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Portolan => "Portolan",
            Self::PortolanNftables => "Portolan (nftables)",
            Self::Ipvs => "kube-proxy (ipvs)",
            Self::Iptables => "kube-proxy (iptables)",
            Self::Nftables => "kube-proxy (nftables)",
        }
    }

    /// The mode of kube-proxy.
    pub(super) fn mode(self) -> Option<&'static str> {
        match self {
            Self::Portolan | Self::PortolanNftables => None,
            Self::Ipvs => Some("ipvs"),
            Self::Iptables => Some("iptables"),
            Self::Nftables => Some("nftables"),
        }
    }

    /// Brings it, and waits until it has programmed each node.
    pub(super) fn install(self, stage: &Stage, cluster: &Cluster) -> Result<()> {
        if self.mode().is_none() {
            let mut options = vec!["--set", EXTERNAL_IPS];
            if self == Self::PortolanNftables {
                options.extend(["--set", NFTABLES]);
            }
            return install_chart(stage, cluster, &options);
        }
        let runs = || cluster.check_running();
        stage
            .waits
            .eventually_while("kube-proxy on each node", FIRST_RULES, runs, || {
                cluster
                    .node_names()
                    .try_for_each(|node| healthy(cluster, node))
            })
    }
}

/// Whether the service proxy of a node says 200 where load balancers and operators ask.
pub(super) fn healthy(cluster: &Cluster, node: &str) -> Result<()> {
    let path = format!("/api/v1/nodes/{node}:10256/proxy/healthz");
    cluster.plane.kubectl(&["get", "--raw", &path]).map(drop)
}

/// Installs the chart with the least that it needs and these options, and waits until all agents are Ready.
pub(super) fn install_chart(stage: &Stage, cluster: &Cluster, options: &[&str]) -> Result<()> {
    install_chart_from(stage, cluster, &cluster.chart, options)
}

/// The same, with a chart at this path.
pub(super) fn install_chart_from(
    stage: &Stage,
    cluster: &Cluster,
    chart: &Path,
    options: &[&str],
) -> Result<()> {
    let chart = chart.display().to_string();
    let values = [
        format!("image.repository={REPOSITORY}"),
        format!("apiServer.host={CONTROL_PLANE}"),
        format!("apiServer.port={}", cluster.plane.port()),
    ];
    let values = values.iter().flat_map(|value| ["--set", value]);
    let values: Vec<&str> = values.collect();
    let words = [
        "install",
        "portolan",
        &chart,
        "--create-namespace",
        "--timeout",
        "10m",
    ];
    helm(cluster, &[&words, &values[..], options].concat())?;
    let runs = || cluster.check_running();
    let ready = || all_ready(cluster);
    stage
        .waits
        .eventually_while("an agent on each node", INSTALLED, runs, ready)
}

/// Runs helm as administrator, in the namespace of the release.
pub(super) fn helm(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let config = cluster.plane.kubeconfig(Reach::Here).display().to_string();
    let own = ["--kubeconfig", &config, "--namespace", NAMESPACE];
    Program::Helm.run(&[words, &own].concat())
}

/// Whether each node has an agent that is Ready.
pub(super) fn all_ready(cluster: &Cluster) -> Result<()> {
    agents(cluster, |_| true)
}

/// Whether each node has an agent that is Ready, and all agents have the image with this tag.
pub(super) fn all_have(cluster: &Cluster, tag: &str) -> Result<()> {
    agents(cluster, |image| {
        image.rsplit_once(':').is_some_and(|(_, is)| is == tag)
    })
}

fn agents(cluster: &Cluster, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let words = [
        "get", "pods", "-n", NAMESPACE, "-l", AGENT_PODS, "-o", "json",
    ];
    let pods: Value = serde_json::from_str(&cluster.plane.kubectl(&words)?)?;
    let mut count = 0;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let image = pod["spec"]["containers"][0]["image"].as_str();
        let image = image.unwrap_or_default();
        let ready = &pod["status"]["containerStatuses"][0]["ready"];
        ensure!(
            wanted(image) && *ready == true,
            "{}: {image}, ready {ready}",
            pod["metadata"]["name"]
        );
        count += 1;
    }
    let nodes = cluster.node_names().count();
    ensure!(count == nodes, "{count} agents for {nodes} nodes");
    Ok(())
}
