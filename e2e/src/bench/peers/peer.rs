//! The measured proxies as processes in the namespace of the node.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, bail};

use super::cluster::Cluster;
use super::network::Network;
use crate::bench::process::megabytes;
use crate::bench::scale::NODE;
use crate::dataplane::Dataplane;
use crate::logs;
use crate::program::{Program, Running, cpu_seconds_with_ended_children};
use crate::traffic::relay::Relay;
use crate::work_folder::WorkFolder;

/// The last lines of a proxy's log in errors.
const LINES_SHOWN: usize = 8;

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// No proxy: endpoints are dialed.
    Direct,
    Portolan,
    KubeProxy,
}

/// A proxy that runs.
pub(super) struct Serving {
    // Ends before its folder goes.
    running: Running,
    _relay: Option<Relay>,
    folder: WorkFolder,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Direct, Self::Portolan, Self::KubeProxy];

    /// All of them, another one first in each run.
    pub(super) fn in_order(run: u32) -> [Self; 3] {
        let [one, two, three] = Self::ALL;
        match run % 3 {
            0 => [one, two, three],
            1 => [two, three, one],
            _ => [three, one, two],
        }
    }

    /// For people and tools.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Portolan => "portolan",
            Self::KubeProxy => "kube-proxy",
        }
    }

    /// Starts it on a node.
    pub(super) fn start(self, cluster: &Cluster, network: &Network) -> Result<Serving> {
        let folder = WorkFolder::make()?;
        let (program, relay, words) = match self {
            Self::Direct => bail!("`direct` is measured without a proxy"),
            Self::Portolan => (Program::Agent, None, agent(cluster, &folder)),
            Self::KubeProxy => {
                let api_server = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.port()));
                let relay = Relay::start(network.node(), api_server, api_server)?;
                (Program::KubeProxy, Some(relay), kube_proxy(cluster))
            }
        };
        let log = File::create(folder.path.join("log"))?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let running = network.node().inside(|| program.start(&words, &log))?;
        Ok(Serving {
            running,
            _relay: relay,
            folder,
        })
    }
}

fn agent(cluster: &Cluster, folder: &WorkFolder) -> Vec<String> {
    let state = folder.path.join("state").display().to_string();
    let own = ["run", "--node", NODE, "--insecure", "--state-dir", &state];
    let own = own.map(str::to_owned).into_iter();
    own.chain(cluster.way()).collect()
}

/// Its defaults, but for limits of connection tracking, which belong to the machine, and the range of pods.
fn kube_proxy(cluster: &Cluster) -> Vec<String> {
    let mode = match cluster.dataplane() {
        Dataplane::Ipvs => "ipvs",
        Dataplane::Nftables => "nftables",
    };
    vec![
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        format!("--hostname-override={NODE}"),
        format!("--proxy-mode={mode}"),
        "--cluster-cidr=10.244.0.0/16".into(),
        "--conntrack-max-per-core=0".into(),
        "--conntrack-min=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
    ]
}

impl Serving {
    /// Fails if it has ended.
    pub(super) fn check(&self) -> Result<()> {
        let Some(status) = self.running.ended()? else {
            return Ok(());
        };
        let said = std::fs::read_to_string(self.folder.path.join("log")).unwrap_or_default();
        let tail = logs::tail("its log", &said, LINES_SHOWN);
        bail!("{} ended with {status}\n{tail}", self.running.line())
    }

    /// With the programs that it has started: kube-proxy writes its rules through `nft`.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds_with_ended_children(self.running.pid())
    }

    pub(super) fn memory_mb(&self) -> Option<f64> {
        self.running.memory_kb().map(megabytes)
    }
}
