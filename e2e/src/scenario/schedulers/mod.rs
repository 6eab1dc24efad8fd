//! Every scheduler of the kernel and session affinity, with traffic of real clients; schedulers that the kernel
//! lacks; legacy iptables; daemons of the node, and packets that connection tracking classifies as invalid.

mod affinity;
mod change;
mod guards;
mod legacy;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, SCHEDULERS};
use crate::harness::{self, clients_of, manifest_name};
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::client::Outcome;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "schedulers",
    shows: "every scheduler, affinity, changes of both under load, older iptables, daemons beside it",
    run,
};

/// Clients that connect through node-a; the first is a pod of no Service.
const CLIENTS: [Resident; 3] = clients_of(Node::A);
const POD: Resident = CLIENTS[0];

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

/// The state of node-b before the agents, and the manifests in force.
struct State {
    before: BTreeMap<&'static str, String>,
    services: String,
    slices: String,
}

type Lab<'a> = harness::Lab<'a, State>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = harness::Lab::new(stage, Network::Routed)?;
    // An operator has to load these modules; an earlier scenario may have unloaded them.
    for module in change::LOADED_BY_HAND {
        Program::Modprobe.run(&[module])?;
    }
    lab.serve_pods()?;
    let state = State {
        before: legacy::everything(&lab.topology, Node::B)?,
        services: stage.files.text(SCHEDULERS[0])?,
        slices: stage.files.text(SCHEDULERS[1])?,
    };
    let mut lab = lab.with(state);
    lab.add_files([CLUSTER[0]].into_iter().chain(SCHEDULERS))?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("schedulers", change::run),
            ("affinity", affinity::run),
            ("daemons and invalid packets", guards::run),
            ("older iptables", legacy::run),
        ],
    )
}

impl Lab<'_> {
    /// Puts Services in force that differ in this text, which has to be there once.
    fn change_services(&mut self, from: &str, to: &str) -> Result<()> {
        self.state.services = replaced(&self.state.services, from, to)?;
        self.put(&manifest_name(SCHEDULERS[0]), &self.state.services)
    }

    /// Connects `times` times and returns the names in the answers; anything but an answer is an
    /// error.
    fn ask(&self, from: Resident, to: SocketAddr, times: usize) -> Result<Vec<String>> {
        let ask = |_| {
            crate::stop::check()?;
            self.answered(from, to)
        };
        (0..times).map(ask).collect()
    }

    /// The output of `ipvsadm -Ln` for a virtual server on node-a, after its address.
    fn shown(&self, protocol: &str, at: SocketAddr) -> Result<String> {
        let listed = self.tool(Node::A, Program::Ipvsadm, "-Ln")?;
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
