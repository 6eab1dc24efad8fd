//! Every kind of client × every cluster IP, over every network, against the checked-in table;
//! then what agents leave behind when they stop, start again and clean up.

mod broken;
mod cell;
mod external;
mod lab;
mod lifecycle;
mod matrix;
mod modes;
mod overlay;

pub(super) use external::{SCENARIO as EXTERNAL, manifests as external_manifests};
pub(super) use modes::SCENARIO as MODES;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::console::{Console, Table};
use crate::expectation::{self, Row};
use crate::files::{CLUSTER, Files, PACKET_PATH};
use crate::manifests::Manifests;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::Protocol;
use crate::traffic::server::Server;
use crate::witness;
use cell::Cell;
use lab::Lab;

/// How many cells there have to be. The table is checked in, and so is its size: a row that gets
/// lost is a failure, not a smaller matrix.
const CELLS: usize = 141;
/// The same of those over IPv4.
const CELLS_OF_IPV4: usize = 68;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "packet-path",
    shows: "every client meets on every cluster IP what the table says, over every network",
    run,
};

/// What pods serve.
pub(super) const POD_PORTS: [(Protocol, u16); 4] = [
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 5353),
    (Protocol::Udp, 5353),
    (Protocol::Sctp, 13868),
];
/// What daemons of the nodes listen on, on all addresses: no Service may lead there (S-27).
const DAEMON_PORTS: [(Protocol, u16); 2] = [(Protocol::Tcp, 9999), (Protocol::Udp, 9999)];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let (manifests, texts) = cluster_files(&stage.files)?;
    let rows = expectation::read(&stage.files.text(PACKET_PATH)?, &manifests)?;
    for network in Network::ALL {
        let topology = Topology::build(network, stage.waits)?;
        let servers = serve(&topology)?;
        lifecycle::make_foreign_state(&topology)?;
        let before = lifecycle::baselines(&topology)?;
        let mut cluster = Cluster::new(&topology, stage.waits, texts.clone())?;
        cluster.start()?;
        for node in Node::ALL {
            cluster.wait_programmed(node, &lifecycle::expected(node, &manifests))?;
        }
        let lab = servers.lab(&topology, stage);
        quick_matrix(stage, checks, lab, &servers, &rows)?;
        lifecycle::run(checks, &mut cluster, lab, &rows, &before)?;
    }
    Ok(())
}

/// Every client on every cluster IP.
fn quick_matrix(
    stage: &Stage,
    checks: &mut Checks,
    lab: Lab<'_>,
    servers: &Servers,
    rows: &[Row],
) -> Result<()> {
    let all = match lab.topology.families() {
        [Family::IPv4] => CELLS_OF_IPV4,
        _ => CELLS,
    };
    list(stage, checks, lab, rows, all)?;
    checks.check(
        "no packet to a service address reached a daemon of a node (S-27)",
        servers.no_daemon_was_reached(),
    );
    Ok(())
}

/// The same cells, of the families that there are, for a lab of another scenario with the lab's cluster
/// in it.
pub(super) fn every_client(
    stage: &Stage,
    checks: &mut Checks,
    topology: &Topology,
    servers: &Servers,
    manifests: &Manifests,
) -> Result<()> {
    let mut rows = expectation::read(&stage.files.text(PACKET_PATH)?, manifests)?;
    rows.retain(|row| topology.families().contains(&Family::of(row.target.ip())));
    let lab = servers.lab(topology, stage);
    quick_matrix(stage, checks, lab, servers, &rows)
}

/// The manifests of the lab's cluster: what they promise, and file names with their text.
pub(super) fn cluster_files(files: &Files) -> Result<(Manifests, Vec<(String, String)>)> {
    let mut manifests = Manifests::default();
    let mut texts = Vec::new();
    for path in CLUSTER {
        let text = files.text(path)?;
        manifests.add(&text)?;
        texts.push((path.replace('/', "-"), text));
    }
    Ok((manifests, texts))
}

/// The servers of a lab.
pub(super) struct Servers {
    pods: Vec<Server>,
    daemons: Vec<Server>,
}

impl Servers {
    fn lab<'lab>(&'lab self, topology: &'lab Topology, stage: &Stage) -> Lab<'lab> {
        Lab {
            topology,
            pods: &self.pods,
            waits: stage.waits,
        }
    }

    fn no_daemon_was_reached(&self) -> Result<()> {
        let reached: u64 = self.daemons.iter().map(Server::answered).sum();
        ensure!(reached == 0, "{reached} did");
        Ok(())
    }
}

pub(super) fn serve(topology: &Topology) -> Result<Servers> {
    let pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<_>>()?;
    let daemons = Node::ALL
        .into_iter()
        .map(|node| {
            let name = format!("daemon-of-{}", node.name());
            Server::start(topology.node(node)?, &name, &DAEMON_PORTS)
        })
        .collect::<Result<_>>()?;
    Ok(Servers { pods, daemons })
}

/// Runs a list of cells and shows it.
fn list(stage: &Stage, checks: &mut Checks, lab: Lab<'_>, rows: &[Row], all: usize) -> Result<()> {
    let cells = lab.run(rows)?;
    let name = lab.topology.network().name();
    stage.console.heading(&format!("{name} network"));
    show(stage.console, &cells);
    conclude(stage.console, checks, &cells, all)
}

/// Explains every cell that failed, and counts them all.
fn conclude(console: Console, checks: &mut Checks, cells: &[Cell<'_>], all: usize) -> Result<()> {
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
    ensure!(
        cells.len() == all,
        "{} cells were run, not {all}",
        cells.len()
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
