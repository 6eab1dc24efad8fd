//! Portolan beside what else a node has: firewalls and their managers, policy routing by marks,
//! links with a smaller MTU, daemons on the node's own addresses. On the overlay with strict reverse
//! path filters, where the most can go wrong.

mod ask;
mod daemons;
mod firewall;
mod marks;
mod mtu;

use anyhow::Result;

use super::packet_path::serve;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, COEXISTENCE, EXTERNAL};
use crate::topology::world::Node;
use crate::topology::{Network, Topology};
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "coexistence",
    shows: "firewalls, marks of others, smaller MTUs and daemons of the node keep working, and so do Services",
    run,
};

/// The lab with its programs, as the parts need it.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Vxlan, stage.waits)?;
    let _servers = serve(&topology)?;
    let mut texts = Vec::new();
    for path in [CLUSTER[0], COEXISTENCE].into_iter().chain(EXTERNAL) {
        texts.push((path.replace('/', "-"), stage.files.text(path)?));
    }
    let mut cluster = Cluster::new(&topology, stage.waits, texts)?;
    cluster.start()?;
    for node in Node::ALL {
        cluster.wait_applied(node, 0)?;
    }
    let scene = Scene {
        stage,
        topology: &topology,
    };
    let parts: [fn(&Scene<'_>, &mut Checks) -> Result<()>; 4] =
        [firewall::run, marks::run, mtu::run, daemons::run];
    for part in parts {
        part(&scene, checks)?;
    }
    cluster.check_running()
}
