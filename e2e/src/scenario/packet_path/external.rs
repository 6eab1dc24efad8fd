//! Every kind of client × every frontend × every policy × every protocol and family, over every
//! network, against the checked-in matrix; then cases outside the matrix (source ranges, hairpins,
//! unused ports), mutations of kernel state, and a cleanup.

use anyhow::{Result, ensure};

use super::lab::spoken_here;
use super::{broken, lifecycle, list, matrix, overlay};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::expectation::matrix::Matrix;
use crate::expectation::places::{Place, Places};
use crate::expectation::{self, Row, external};
use crate::files::{BROKEN, CLUSTER, EXTERNAL, EXTERNAL_PATH, MATRIX};
use crate::harness::Lab;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::topology::Network;
use crate::topology::world::{Node, Resident};

/// Required number of cells in the matrix, so that a lost row is a failure.
const CELLS: usize = 480;
/// Number of cells outside the matrix.
const MORE_CELLS: usize = 45;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "external-path",
    shows: "clients × frontends × policies × protocols × families, over every network",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let places = Places::read(&stage.files.text(EXTERNAL[0])?)?;
    let matrix = expectation::matrix::read(&stage.files.text(MATRIX)?, &places)?;
    let rows = external::read(&stage.files.text(EXTERNAL_PATH)?)?;
    let all: Vec<&Row> = matrix.cells.values().chain(&rows).collect();
    let mutations = expectation::broken::read(&stage.files.text(BROKEN)?, &all)?;
    for network in Network::ALL {
        let mut lab = Lab::new(stage, network)?;
        lab.serve_pods()?;
        lab.serve_nodes()?;
        let before = lifecycle::baselines(&lab)?;
        lab.add_files(files())?;
        lab.start()?;
        tables(&lab, checks, &matrix, &rows)?;
        lab.stop_agents()?;
        let running = lifecycle::baselines(&lab)?;
        // The mutations are of what IPVS needs; the cells that detect them are the same.
        if stage.dataplane == Dataplane::Ipvs {
            broken::run(checks, &lab, &mutations);
        }
        checks.check(
            "all mutations are undone, and nothing else changed without agents (S-199)",
            lifecycle::unchanged(&lab, &running),
        );
        for node in Node::ALL {
            let what = format!(
                "cleanup leaves {} as it was before Portolan (S-196)",
                node.name()
            );
            checks.check(&what, lifecycle::cleans_up(&lab, node, &before[&node]));
        }
    }
    Ok(())
}

/// The Nodes of the lab, and Services with every kind of frontend.
pub(in crate::scenario) fn files() -> impl Iterator<Item = &'static str> {
    [CLUSTER[0]].into_iter().chain(EXTERNAL)
}

fn tables(lab: &Lab<'_>, checks: &mut Checks, matrix: &Matrix, rows: &[Row]) -> Result<()> {
    list(lab, checks, rows, MORE_CELLS)?;
    checks.check(
        "no packet to a port of no Service reached a daemon of a node (S-18, S-27)",
        lab.servers.no_daemon_was_reached(),
    );
    let name = lab.topology.network().name();
    let heading = format!("every client, frontend, policy, protocol and family: {name} network");
    matrix::run(lab, checks, matrix, &heading, CELLS)?;
    if lab.topology.network() == Network::Vxlan {
        checks.check(
            "packets of the overlay are not masqueraded a second time (S-72)",
            overlay_keeps_its_ports(lab, matrix),
        );
    }
    Ok(())
}

/// Sends packets that are masqueraded and encapsulated to the other node, then checks the conntrack
/// entries of the overlay.
fn overlay_keeps_its_ports(lab: &Lab<'_>, matrix: &Matrix) -> Result<()> {
    let carried = matrix.cells.iter().filter(|(at, _)| {
        at.to == "far" && at.at == Place::ClusterIp && at.from == Resident::Outside
    });
    let (carried, _) = spoken_here(carried.map(|(_, row)| row));
    for cell in lab.run_cells(carried)? {
        ensure!(cell.passed(), "{}", cell.explain());
    }
    overlay::keeps_its_ports(&lab.topology)
}
