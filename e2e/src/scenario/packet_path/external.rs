//! Every kind of client × node ports, addresses of balancers and external IPs, under both policies
//! and with source ranges, over both networks, against the checked-in table; then a cleanup.

use anyhow::Result;

use super::{lifecycle, matrix, serve};
use crate::cluster::Cluster;
use crate::expectation::external;
use crate::files::{CLUSTER, EXTERNAL, EXTERNAL_PATH};
use crate::scenario::{Checks, Scenario, Stage};
use crate::topology::world::Node;
use crate::topology::{Network, Topology};
use crate::witness;

/// How many cells there have to be: a row that gets lost is a failure, not a smaller matrix.
const CELLS: usize = 130;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "external-path",
    shows: "node ports, balancers' addresses and external IPs: policies, sources, source ranges",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let rows = external::read(&stage.files.text(EXTERNAL_PATH)?)?;
    for network in Network::ALL {
        let topology = Topology::build(network, stage.waits)?;
        let _servers = serve(&topology)?;
        let before = lifecycle::baselines(&topology)?;
        let mut texts = Vec::new();
        for path in [CLUSTER[0]].into_iter().chain(EXTERNAL) {
            texts.push((path.replace('/', "-"), stage.files.text(path)?));
        }
        let mut cluster = Cluster::new(&topology, stage.waits, texts)?;
        cluster.start()?;
        for node in Node::ALL {
            cluster.wait_applied(node, 0)?;
        }
        matrix(stage, checks, &topology, &rows, CELLS)?;
        for node in Node::ALL {
            cluster.stop_agent(node)?;
            let what = format!(
                "cleanup leaves {} as it was before Portolan (S-196)",
                node.name()
            );
            let result = lifecycle::cleans_up(&cluster, &topology, node, &before[&node]);
            checks.check(&what, result);
        }
    }
    Ok(())
}
