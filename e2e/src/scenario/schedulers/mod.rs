//! Every scheduler of the kernel and client affinity, with traffic of real clients; what an agent
//! does about a scheduler that the kernel lacks, in the older iptables, and about daemons of the node and
//! packets that connection tracking cannot place.

mod affinity;
mod change;
mod guards;
mod legacy;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, SCHEDULERS};
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::client::{self, Outcome};
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "schedulers",
    shows: "every scheduler, affinity, changes of both under load, older iptables, daemons beside it",
    run,
};

/// The client that is a pod of node-a and of no Service.
const POD: Resident = Resident::Pod(Pod {
    node: Node::A,
    number: 3,
});

/// The Services of the manifests, by the last part of their cluster IPs.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Service {
    Turn = 1,
    Sticky = 2,
    Steady = 3,
    Asked = 4,
}

impl Service {
    fn at(self, family: Family, port: u16) -> SocketAddr {
        let number = self as u8;
        match family {
            Family::IPv4 => ([10, 96, 2, number], port).into(),
            Family::IPv6 => (
                [0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x200 + u16::from(number)],
                port,
            )
                .into(),
        }
    }
}

/// The lab with its programs, and the manifests that are in force.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    services: String,
    slices: String,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    // As whoever wants them on a node has to; a scenario before may have unloaded them.
    for module in change::LOADED_BY_HAND {
        Program::Modprobe.run(&[module])?;
    }
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let before = legacy::everything(&topology, Node::B)?;
    let mut texts = Vec::new();
    for path in [CLUSTER[0]].into_iter().chain(SCHEDULERS) {
        texts.push((file_name(path), stage.files.text(path)?));
    }
    let mut scene = Scene {
        stage,
        topology: &topology,
        services: stage.files.text(SCHEDULERS[0])?,
        slices: stage.files.text(SCHEDULERS[1])?,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    change::run(&mut scene, checks)?;
    affinity::run(&mut scene, checks)?;
    guards::run(&scene, checks)?;
    legacy::run(&mut scene, checks, &before)
}

fn file_name(path: &str) -> String {
    path.replace('/', "-")
}

impl Scene<'_> {
    /// Puts Services in force that differ in this text, which has to be there once.
    fn change_services(&mut self, from: &str, to: &str) -> Result<()> {
        self.services = replaced(&self.services, from, to)?;
        self.put(SCHEDULERS[0], &self.services.clone())
    }

    /// Puts a manifest in force on both nodes.
    fn put(&mut self, path: &str, text: &str) -> Result<()> {
        let mut before = BTreeMap::new();
        for node in Node::ALL {
            before.insert(node, self.cluster.applied(node)?.len());
        }
        self.cluster.write_manifest(&file_name(path), text)?;
        for (node, batches) in before {
            self.cluster.wait_applied(node, batches)?;
        }
        Ok(())
    }

    /// Connects so often, and gives back who answered; anything but an answer is an error.
    fn ask(&self, from: Resident, to: SocketAddr, times: usize) -> Result<Vec<String>> {
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
        self.topology.of(from)?.inside(|| {
            let mut names = Vec::new();
            for _ in 0..times {
                crate::stop::check()?;
                names.push(answered(client::tcp(to, deadline).outcome)?);
            }
            Ok(names)
        })
    }

    /// What `ipvsadm` says on node-a.
    fn ipvsadm(&self, args: &[&str]) -> Result<String> {
        self.topology
            .node(Node::A)?
            .inside(|| Program::Ipvsadm.run(args))
    }

    /// What `ipvsadm -Ln` shows of a virtual server on node-a, behind its address.
    fn shown(&self, protocol: &str, at: SocketAddr) -> Result<String> {
        let listed = self.ipvsadm(&["-Ln"])?;
        let prefix = format!("{protocol}  {at} ");
        let line = listed.lines().find_map(|line| line.strip_prefix(&prefix));
        let shown = line.with_context(|| format!("no {protocol} {at} in {listed}"))?;
        Ok(shown.trim().to_owned())
    }
}

fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    let times = text.matches(from).count();
    ensure!(times == 1, "{from:?} is {times} times in the manifest");
    Ok(text.replace(from, to))
}

fn answered(outcome: Outcome) -> Result<String> {
    match outcome {
        Outcome::Answered { by, .. } => Ok(by),
        other => bail!("not answered but {other}"),
    }
}

/// How often each answered.
fn counted(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}
