//! Every kind of client × every cluster IP, over every network, against the checked-in table; then
//! stop, restart and cleanup of agents.

mod broken;
mod cell;
mod external;
mod lab;
mod lifecycle;
mod matrix;
mod modes;
mod overlay;

pub(super) use external::{SCENARIO as EXTERNAL, files as external_files};
pub(super) use modes::SCENARIO as MODES;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::console::{Console, Table};
use crate::dataplane::Dataplane;
use crate::expectation::{self, Row};
use crate::files::{CLUSTER, Files, PACKET_PATH};
use crate::harness::Lab;
use crate::manifests::Manifests;
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use cell::Cell;
use lab::spoken_here;

/// Required number of cells, so that a lost row of the table is a failure.
const CELLS: usize = 141;
/// The same of those over IPv4.
const CELLS_OF_IPV4: usize = 68;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "packet-path",
    shows: "every client gets the result of the table at every cluster IP, over every network",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let manifests = cluster_manifests(&stage.files)?;
    let rows = expectation::read(&stage.files.text(PACKET_PATH)?, &manifests)?;
    for network in Network::ALL {
        let mut lab = Lab::new(stage, network)?;
        lab.serve_pods()?;
        lab.serve_nodes()?;
        lifecycle::make_foreign_state(&lab)?;
        let before = lifecycle::baselines(&lab)?;
        lab.add_files(CLUSTER)?;
        lab.cluster.start()?;
        for node in Node::ALL {
            lab.cluster.wait_programmed(
                node,
                &lifecycle::expected(node, &manifests, stage.dataplane),
            )?;
        }
        quick_matrix(&lab, checks, &rows)?;
        lifecycle::run(checks, &mut lab, &rows, &before)?;
    }
    Ok(())
}

/// Every client on every cluster IP.
fn quick_matrix<S: Sync>(lab: &Lab<'_, S>, checks: &mut Checks, rows: &[Row]) -> Result<()> {
    let all = match lab.topology.families() {
        [Family::IPv4] => CELLS_OF_IPV4,
        _ => CELLS,
    };
    list(lab, checks, rows, all)?;
    checks.check(
        "no packet to a service address reached a daemon of a node (S-27)",
        lab.servers.no_daemon_was_reached(),
    );
    Ok(())
}

/// The same cells, of the families that there are, for another scenario with the lab's cluster in it.
pub(super) fn every_client<S: Sync>(
    lab: &Lab<'_, S>,
    checks: &mut Checks,
    manifests: &Manifests,
) -> Result<()> {
    every_client_with(lab.stage.dataplane, lab, checks, manifests)
}

/// As [`every_client`], while the nodes have this dataplane.
pub(super) fn every_client_with<S: Sync>(
    dataplane: Dataplane,
    lab: &Lab<'_, S>,
    checks: &mut Checks,
    manifests: &Manifests,
) -> Result<()> {
    let rows = rows(lab, manifests)?.into_iter();
    let rows: Vec<_> = rows.map(|row| row.with(dataplane)).collect();
    quick_matrix(lab, checks, &rows)
}

fn rows<S: Sync>(lab: &Lab<'_, S>, manifests: &Manifests) -> Result<Vec<Row>> {
    let mut rows = expectation::read(&lab.stage.files.text(PACKET_PATH)?, manifests)?;
    rows.retain(|row| {
        let family = Family::of(row.target.ip());
        lab.topology.families().contains(&family)
    });
    Ok(rows)
}

/// The expectations that follow from the manifests of the lab's cluster.
pub(super) fn cluster_manifests(files: &Files) -> Result<Manifests> {
    let mut manifests = Manifests::default();
    for path in CLUSTER {
        manifests.add(&files.text(path)?)?;
    }
    Ok(manifests)
}

/// Runs a list of cells and shows it.
fn list<S: Sync>(lab: &Lab<'_, S>, checks: &mut Checks, rows: &[Row], all: usize) -> Result<()> {
    let (rows, unspoken) = spoken_here(rows);
    let cells = lab.run_cells(rows)?;
    let name = lab.topology.network().name();
    lab.heading(&format!("{name} network"));
    show(lab.stage.console, &cells);
    conclude(lab.stage.console, checks, &cells, unspoken, all)
}

/// Explains every cell that failed, and counts them all. `unspoken` cells were not run, because this kernel lacks their
/// protocol.
fn conclude(
    console: Console,
    checks: &mut Checks,
    cells: &[Cell<'_>],
    unspoken: usize,
    all: usize,
) -> Result<()> {
    let failed: Vec<_> = cells.iter().filter(|cell| !cell.passed()).collect();
    for cell in &failed {
        console.verdict(false, &cell.explain());
    }
    checks.count(cells.len() - failed.len(), failed.len());
    let slowest = cells.iter().filter_map(|cell| cell.refused_after).max();
    console.line(&format!(
        "{} cells of {all}, {} failed; slowest refusal {:.1} ms",
        cells.len(),
        failed.len(),
        slowest.unwrap_or_default().as_secs_f64() * 1000.0,
    ));
    if unspoken > 0 {
        console.line(&format!(
            "{unspoken} cells over SCTP were not run: this kernel has none; `--where guest` runs them"
        ));
    }
    ensure!(
        cells.len() + unspoken == all,
        "{} cells were run, not {all}",
        cells.len() + unspoken
    );
    Ok(())
}

/// One line for each thing dialled, one column for each client.
fn show(console: Console, cells: &[Cell<'_>]) {
    let mut clients: Vec<String> = Vec::new();
    let mut lines: Vec<(String, BTreeMap<String, &Cell<'_>>)> = Vec::new();
    for cell in cells {
        let (client, dialled) = (cell.row.from.name(), cell.row.dials());
        if !clients.contains(&client) {
            clients.push(client.clone());
        }
        match lines.iter_mut().find(|line| line.0 == dialled) {
            Some(line) => drop(line.1.insert(client, cell)),
            None => lines.push((dialled, BTreeMap::from([(client, cell)]))),
        }
    }
    let mut table = Table::new(
        ["DIALLED".to_owned()]
            .into_iter()
            .chain(clients.iter().cloned()),
    );
    for (dialled, line) in lines {
        let texts = clients
            .iter()
            .map(|client| line.get(client).map_or("", |cell| cell.text()));
        table.row([dialled.as_str()].into_iter().chain(texts));
    }
    console.table(&table);
}
