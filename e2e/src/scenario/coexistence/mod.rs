//! Portolan beside other software on a node: firewalls and their managers, policy routing by marks,
//! links with a smaller MTU, daemons on the node's own addresses. It runs on the overlay with
//! strict reverse path filters, where the most can go wrong.

mod ask;
mod daemons;
mod firewall;
mod foreign_tables;
mod guards;
mod host_ports;
mod marks;
mod mtu;
mod policy_routing;

use anyhow::Result;

use super::{Checks, Scenario, Stage};
use crate::files::{CLUSTER, COEXISTENCE, EXTERNAL};
use crate::harness::Lab;
use crate::topology::Network;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "coexistence",
    shows: "Services work beside firewalls, foreign marks, smaller MTUs and daemons of the node, \
        and so do those",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = Lab::new(stage, Network::Vxlan)?;
    lab.serve_pods()?;
    lab.serve_nodes()?;
    lab.add_files([CLUSTER[0], COEXISTENCE].into_iter().chain(EXTERNAL))?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("firewalls", firewall::run),
            ("host ports", host_ports::run),
            ("tables of other software", foreign_tables::run),
            ("marks", marks::run),
            ("policy routing", policy_routing::run),
            ("a small MTU", mtu::run),
            ("daemons", daemons::run),
            ("source ranges", guards::run),
        ],
    )
}
