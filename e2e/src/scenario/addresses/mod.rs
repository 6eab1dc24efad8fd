//! Addresses and routes of nodes that come and go while agents run. Agents follow each change at once, remove nothing
//! of the node or of other machines, and answer ARP only for addresses of the node.
//!
//! The sync period is one hour here, so every correction in time was triggered by a kernel event.

mod arp;
mod bridge;
mod elsewhere;
mod moving;
mod node_ports;
mod own;
mod renumbered;
mod routes;
mod vip;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::console::Table;
use crate::files::{ADDRESSES, CLUSTER};
use crate::harness::{self, proxy_config};
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Node, Resident};
use crate::traffic::client::Outcome;
use crate::traffic::server::Server;
use crate::waits::ANSWER;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "addresses",
    shows: "addresses, routes and devices of nodes come and go; only owners of an address answer \
        ARP",
    run,
};

/// How soon a change is followed.
const SOON: Duration = Duration::from_secs(1);
/// How long one of many attempts may take.
const BRIEF: Duration = Duration::from_millis(250);
/// Endpoints of the Service `web`.
const WEB: &[&str] = &["pod-a1", "pod-b1"];

const NODE_A: Resident = Resident::Node(Node::A);
const NODE_B: Resident = Resident::Node(Node::B);
const POD_A3: Resident = Resident::Pod(Node::A.pod(3));
const POD_B3: Resident = Resident::Pod(Node::B.pod(3));

/// State of this scenario beside the lab.
struct Beside {
    /// How long agents took to follow each change.
    times: RefCell<Table>,
    /// A server that stays to the end.
    _beyond: Server,
}

type Lab<'a> = harness::Lab<'a, Beside>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = harness::Lab::new(stage, Network::Routed)?;
    lab.serve_pods()?;
    lab.serve_nodes()?;
    let beside = Beside {
        times: RefCell::new(Table::new(["WHAT WAS FOLLOWED", "ms"])),
        _beyond: routes::before_the_agents(&lab)?,
    };
    lab.add_files([CLUSTER[0]].into_iter().chain(ADDRESSES))?;
    lab.write(SETTINGS, &settings("nodePortAddresses: []"))?;
    let mut lab = lab.with(beside);
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("addresses of nodes", own::run),
            ("routes", routes::run),
            ("an address that another machine has", elsewhere::run),
            ("an address that moves", moving::run),
            ("a virtual IP", vip::run),
            ("node ports", node_ports::run),
            ("another address of a Node", renumbered::run),
            ("the node's own address", moving::run_with_the_nodes_own),
            ("a bridge", bridge::run),
            ("ARP", arp::run),
        ],
    )?;
    stage.console.table(&lab.state.times.borrow());
    Ok(())
}

/// Runs `ip` in the namespace of a resident.
fn ip<S>(lab: &harness::Lab<'_, S>, who: Resident, line: &str) -> Result<String> {
    lab.inside(who, || Program::Ip.run_line(line))
}

/// The file of the settings.
const SETTINGS: &str = "settings.yaml";

/// Settings that differ from the defaults in one line, and leave no work to the sync period.
fn settings(line: &str) -> String {
    proxy_config(&["sync: {period: 1h}", line])
}

impl Lab<'_> {
    /// Changes the settings and waits until both nodes have them.
    fn set(&self, line: &str) -> Result<()> {
        self.put(SETTINGS, &settings(line))
    }

    /// Runs `ip` in the namespace of a resident.
    fn ip(&self, who: Resident, line: &str) -> Result<String> {
        ip(self, who, line)
    }

    /// Routes of the agent on a node, as `ip` shows them; `family` is `-4` or `-6`.
    fn routes(&self, node: Resident, family: &str) -> Result<String> {
        // If the device does not exist, there are no routes and `ip` fails.
        let all = self.ip(node, &format!("{family} route show proto 112"))?;
        let ours = all.lines().filter(|line| line.contains("dev kube-ipvs0"));
        Ok(ours.map(|line| format!("{line} \n")).collect())
    }

    /// Fails unless one of these answers.
    fn answers(&self, from: Resident, target: &str, by: &[&str]) -> Result<()> {
        self.answers_within(from, target, by, ANSWER)
    }

    fn answers_within(
        &self,
        from: Resident,
        target: &str,
        by: &[&str],
        deadline: Duration,
    ) -> Result<()> {
        let outcome = self.dial(from, target.parse()?, deadline)?;
        let right = is_by(&outcome, by);
        ensure!(right, "{} to {target}: {outcome}", from.name());
        Ok(())
    }

    /// Fails unless the connection is refused.
    fn refuses(&self, from: Resident, target: &str) -> Result<()> {
        self.refused(from, target.parse()?)
    }

    /// Waits until `holds` succeeds and records the time since `since`.
    fn soon(&self, what: &str, since: Instant, holds: impl FnMut() -> Result<()>) -> Result<()> {
        self.within(what, SOON, holds)?;
        let took = since.elapsed().as_millis().to_string();
        self.state.times.borrow_mut().row([what.to_owned(), took]);
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
        self.soon(what, since, || self.answers_within(from, target, by, BRIEF))
    }

    /// Fails if there is an answer.
    fn is_unanswered(&self, from: Resident, target: &str, deadline: Duration) -> Result<()> {
        let outcome = self.dial(from, target.parse()?, deadline)?;
        let right = !matches!(outcome, Outcome::Answered { .. });
        ensure!(right, "{} to {target}: {outcome}", from.name());
        Ok(())
    }

    /// Waits until there is no answer.
    fn soon_unanswered(
        &self,
        what: &str,
        since: Instant,
        from: Resident,
        target: &str,
    ) -> Result<()> {
        self.soon(what, since, || self.is_unanswered(from, target, BRIEF))
    }

    /// Waits until the connection is refused.
    fn soon_refuses(&self, what: &str, since: Instant, from: Resident, target: &str) -> Result<()> {
        self.soon(what, since, || {
            let outcome = self.dial(from, target.parse()?, BRIEF)?;
            let right = outcome == Outcome::Refused;
            ensure!(right, "{} to {target}: {outcome}", from.name());
            Ok(())
        })
    }

    /// Waits until the agent's routes on a node are right.
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
            ensure!(right(&routes), "{routes}");
            Ok(())
        })
    }
}

fn is_by(outcome: &Outcome, names: &[&str]) -> bool {
    matches!(outcome, Outcome::Answered { by, .. } if names.contains(&by.as_str()))
}
