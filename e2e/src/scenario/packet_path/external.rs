//! Every kind of client × every frontend × every policy × every protocol and family, over every
//! network, against the checked-in matrix; then what the matrix leaves out (source ranges, hairpins,
//! ports of nobody), what is broken on purpose, and a cleanup.

use anyhow::{Result, ensure};

use super::lab::Lab;
use super::{Servers, broken, lifecycle, list, matrix, overlay, serve};
use crate::cluster::Cluster;
use crate::expectation::matrix::Matrix;
use crate::expectation::places::{Place, Places};
use crate::expectation::{self, Row, external};
use crate::files::{BROKEN, CLUSTER, EXTERNAL, EXTERNAL_PATH, Files, MATRIX};
use crate::scenario::{Checks, Scenario, Stage};
use crate::topology::world::{Node, Resident};
use crate::topology::{Network, Topology};
use crate::witness;

/// How many cells the matrix has to have: a row that gets lost is a failure, not a smaller matrix.
const CELLS: usize = 480;
/// How many there are beside it.
const MORE_CELLS: usize = 29;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "external-path",
    shows: "clients × frontends × policies × protocols × families, over every network",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let places = Places::read(&stage.files.text(EXTERNAL[0])?)?;
    let matrix = expectation::matrix::read(&stage.files.text(MATRIX)?, &places)?;
    let rows = external::read(&stage.files.text(EXTERNAL_PATH)?)?;
    let all: Vec<&Row> = matrix.cells.values().chain(&rows).collect();
    let mutations = expectation::broken::read(&stage.files.text(BROKEN)?, &all)?;
    for network in Network::ALL {
        let topology = Topology::build(network, stage.waits)?;
        let servers = serve(&topology)?;
        let lab = servers.lab(&topology, stage);
        let before = lifecycle::baselines(&topology)?;
        let mut cluster = Cluster::new(&topology, stage.waits, manifests(&stage.files)?)?;
        cluster.start()?;
        for node in Node::ALL {
            cluster.wait_applied(node, 0)?;
        }
        tables(stage, checks, lab, &servers, &matrix, &rows)?;
        lifecycle::stop_all(&mut cluster)?;
        let running = lifecycle::baselines(&topology)?;
        broken::run(checks, lab, &mutations);
        checks.check(
            "what was broken on purpose is undone, and nothing else changed without agents (S-199)",
            lifecycle::unchanged(&topology, &running),
        );
        for node in Node::ALL {
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

/// The Nodes of the lab, and Services with every kind of frontend.
pub(in crate::scenario) fn manifests(files: &Files) -> Result<Vec<(String, String)>> {
    let paths = [CLUSTER[0]].into_iter().chain(EXTERNAL);
    paths
        .map(|path| Ok((path.replace('/', "-"), files.text(path)?)))
        .collect()
}

fn tables(
    stage: &Stage,
    checks: &mut Checks,
    lab: Lab<'_>,
    servers: &Servers,
    matrix: &Matrix,
    rows: &[Row],
) -> Result<()> {
    list(stage, checks, lab, rows, MORE_CELLS)?;
    checks.check(
        "no packet to a port of no Service reached a daemon of a node (S-18, S-27)",
        servers.no_daemon_was_reached(),
    );
    let name = lab.topology.network().name();
    let heading = format!("every client, frontend, policy, protocol and family: {name} network");
    matrix::run(stage, checks, lab, matrix, &heading, CELLS)?;
    if lab.topology.network() == Network::Vxlan {
        checks.check(
            "packets of the overlay are not masqueraded a second time (S-72)",
            overlay_keeps_its_ports(lab, matrix),
        );
    }
    Ok(())
}

/// Sends what is masqueraded and carried to the other node, then looks at what carried it.
fn overlay_keeps_its_ports(lab: Lab<'_>, matrix: &Matrix) -> Result<()> {
    let carried = matrix.cells.iter().filter(|(at, _)| {
        at.to == "far" && at.at == Place::ClusterIp && at.from == Resident::Outside
    });
    for cell in lab.run(carried.map(|(_, row)| row))? {
        ensure!(cell.passed(), "{}", cell.explain());
    }
    overlay::keeps_its_ports(lab.topology)
}
