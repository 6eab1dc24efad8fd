//! Addresses and routes of nodes, which come and go while agents run: each change is followed at
//! once, nothing of the node is taken away, and nobody answers ARP for what is not his.
//!
//! The agents' own period is an hour here: what is put right in time, events of the kernel did.

mod arp;
mod bridge;
mod moving;
mod node_ports;
mod own;
mod renumbered;
mod routes;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::console::Table;
use crate::files::{ADDRESSES, CLUSTER};
use crate::program::Program;
use crate::topology::world::{Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "addresses",
    shows: "addresses, routes and devices of nodes come and go; ARP is answered by owners only",
    run,
};

/// How soon a change is followed.
const SOON: Duration = Duration::from_secs(1);
/// How long one of many attempts may take.
const BRIEF: Duration = Duration::from_millis(250);
/// A daemon of each node, on all of its addresses.
const DAEMON: (Protocol, u16) = (Protocol::Tcp, 9999);
/// Those behind the Service `web`.
const WEB: &[&str] = &["pod-a1", "pod-b1"];

const NODE_A: Resident = Resident::Node(Node::A);
const NODE_B: Resident = Resident::Node(Node::B);
const POD_A3: Resident = Resident::Pod(Pod {
    node: Node::A,
    number: 3,
});
const POD_B3: Resident = Resident::Pod(Pod {
    node: Node::B,
    number: 3,
});

/// A lab with what runs in it.
struct Lab<'a> {
    stage: &'a Stage,
    topology: &'a Topology,
    cluster: Cluster<'a>,
    /// How long each change took to be followed.
    times: RefCell<Table>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let _daemons = Node::ALL
        .into_iter()
        .map(|node| {
            let name = format!("daemon-of-{}", node.name());
            Server::start(topology.node(node)?, &name, &[DAEMON])
        })
        .collect::<Result<Vec<_>>>()?;
    let mut texts = Vec::new();
    for path in [CLUSTER[0]].into_iter().chain(ADDRESSES) {
        texts.push((path.replace('/', "-"), stage.files.text(path)?));
    }
    texts.push((SETTINGS.to_owned(), settings("nodePortAddresses: []")));
    let mut lab = Lab {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
        times: RefCell::new(Table::new(["WHAT WAS FOLLOWED", "ms"])),
    };
    let _beyond = routes::before_the_agents(&lab)?;
    lab.cluster.start()?;
    for node in Node::ALL {
        lab.cluster.wait_applied(node, 0)?;
    }
    let parts: [fn(&mut Lab<'_>, &mut Checks) -> Result<()>; 8] = [
        own::run,
        routes::run,
        moving::run,
        node_ports::run,
        renumbered::run,
        moving::run_with_the_nodes_own,
        bridge::run,
        arp::run,
    ];
    for part in parts {
        part(&mut lab, checks).map_err(|error| lab.cluster.with_logs(&error))?;
        lab.cluster.check_running()?;
    }
    stage.console.table(&lab.times.borrow());
    Ok(())
}

/// The file of the settings.
const SETTINGS: &str = "settings.yaml";

/// Settings that differ from the defaults in one line, and leave no work to the sync period.
fn settings(line: &str) -> String {
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec:\n  settings:\n    sync: {{period: 1h}}\n    {line}\n"
    )
}

impl Lab<'_> {
    /// Changes the settings and waits until both nodes have them.
    fn set(&mut self, line: &str) -> Result<()> {
        let before = Node::ALL.map(|node| self.cluster.applied(node).map(|all| all.len()));
        self.cluster.write_manifest(SETTINGS, &settings(line))?;
        for (node, before) in Node::ALL.into_iter().zip(before) {
            self.cluster.wait_applied(node, before?)?;
        }
        Ok(())
    }

    /// Runs `ip` where somebody lives.
    fn ip(&self, who: Resident, line: &str) -> Result<String> {
        let words: Vec<_> = line.split(' ').collect();
        self.topology.of(who)?.inside(|| Program::Ip.run(&words))
    }

    /// Routes of ours on a node, as `ip` shows them; `family` is `-4` or `-6`.
    fn routes(&self, node: Resident, family: &str) -> Result<String> {
        // Without the device there are none, and `ip` says that it does not know it.
        let all = self.ip(
            node,
            &format!("{family} route show table local proto static"),
        )?;
        let ours = all.lines().filter(|line| line.contains("dev kube-ipvs0"));
        Ok(ours.map(|line| format!("{line} \n")).collect())
    }

    /// One connection.
    fn dial(&self, from: Resident, target: &str, deadline: Duration) -> Result<Outcome> {
        let (target, deadline) = (target.parse()?, self.stage.waits.limit(deadline));
        self.topology
            .of(from)?
            .inside(|| Ok(client::tcp(target, deadline).outcome))
    }

    /// Fails unless one of these answers.
    fn answers(&self, from: Resident, target: &str, by: &[&str]) -> Result<()> {
        let outcome = self.dial(from, target, Duration::from_secs(2))?;
        let right = is_by(&outcome, by);
        ensure!(right, "{} to {target}: {outcome}", from.name());
        Ok(())
    }

    /// Fails unless it is refused.
    fn refuses(&self, from: Resident, target: &str) -> Result<()> {
        let outcome = self.dial(from, target, Duration::from_secs(2))?;
        let right = outcome == Outcome::Refused;
        ensure!(right, "{} to {target}: {outcome}", from.name());
        Ok(())
    }

    /// Waits until it is so, and notes how long after `since` that was.
    fn soon(
        &self,
        what: &str,
        since: Instant,
        mut holds: impl FnMut() -> Result<Result<(), String>>,
    ) -> Result<()> {
        let mut last = String::new();
        self.stage
            .waits
            .until(
                what,
                SOON,
                Duration::from_millis(5),
                || match holds()? {
                    Ok(()) => Ok(Some(())),
                    Err(seen) => {
                        last = seen;
                        Ok(None)
                    }
                },
                || "see below".to_owned(),
            )
            .map_err(|error| error.context(last))?;
        let took = since.elapsed().as_millis().to_string();
        self.times.borrow_mut().row([what.to_owned(), took]);
        Ok(())
    }

    /// Waits until one of these answers.
    fn soon_answers(
        &self,
        what: &str,
        since: Instant,
        from: Resident,
        target: &str,
        by: &[&str],
    ) -> Result<()> {
        self.soon(what, since, || {
            let outcome = self.dial(from, target, BRIEF)?;
            Ok(if is_by(&outcome, by) {
                Ok(())
            } else {
                Err(format!("{} to {target}: {outcome}", from.name()))
            })
        })
    }

    /// Waits until it is refused.
    fn soon_refuses(&self, what: &str, since: Instant, from: Resident, target: &str) -> Result<()> {
        self.soon(what, since, || {
            let outcome = self.dial(from, target, BRIEF)?;
            Ok(if outcome == Outcome::Refused {
                Ok(())
            } else {
                Err(format!("{} to {target}: {outcome}", from.name()))
            })
        })
    }

    /// Waits until the routes of ours on a node are right.
    fn soon_routes(
        &self,
        what: &str,
        since: Instant,
        node: Resident,
        family: &str,
        right: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.soon(what, since, || {
            let routes = self.routes(node, family)?;
            Ok(if right(&routes) { Ok(()) } else { Err(routes) })
        })
    }
}

fn is_by(outcome: &Outcome, names: &[&str]) -> bool {
    matches!(outcome, Outcome::Answered { by, .. } if names.contains(&by.as_str()))
}
