//! Settings that change while the agents run: each mode is put in force, and every cell is as its
//! table says.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::external::manifests;
use super::lab::Lab;
use super::{lifecycle, matrix, serve};
use crate::cluster::Cluster;
use crate::expectation::modes::{self, Mode};
use crate::expectation::places::Places;
use crate::files::{CLUSTER, EXTERNAL, MODES};
use crate::program::Program;
use crate::scenario::{Checks, Scenario, Stage};
use crate::topology::world::Node;
use crate::topology::{Network, Topology};
use crate::witness;

/// How many modes there have to be, and how many cells each.
const COUNT: usize = 10;
const CELLS: usize = 48;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "detection-modes",
    shows: "modes of telling pods, masquerading of all, marks: changed while the agents run",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let places = Places::read(&stage.files.text(EXTERNAL[0])?)?;
    let modes = modes::read(&stage.files.text(MODES)?, &places)?;
    ensure!(modes.len() == COUNT, "{} modes, not {COUNT}", modes.len());
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
        let mut written = BTreeMap::new();
        for mode in modes.iter().filter(|mode| mode.network == network) {
            put_in_force(stage, &mut cluster, mode, &mut written)?;
            show(stage, checks, lab, mode)?;
            if let Some(text) = &mode.holds {
                let what = format!("{}: rules have {text:?} (S-164, S-204)", mode.name);
                checks.check(&what, rules_hold(&topology, text));
            }
        }
        lifecycle::stop_all(&mut cluster)?;
        for node in Node::ALL {
            let what = format!(
                "cleanup leaves {} as it was before Portolan, whatever the mode was (S-196)",
                node.name()
            );
            let result = lifecycle::cleans_up(&cluster, &topology, node, &before[&node]);
            checks.check(&what, result);
        }
    }
    Ok(())
}

fn show(stage: &Stage, checks: &mut Checks, lab: Lab<'_>, mode: &Mode) -> Result<()> {
    let heading = format!(
        "{}: {} network, {} cells are not as with the defaults",
        mode.name,
        mode.network.name(),
        mode.differing
    );
    matrix::run(stage, checks, lab, &mode.matrix, &heading, CELLS)
}

/// Writes what differs from what was written before, and waits until every node has applied it.
fn put_in_force(
    stage: &Stage,
    cluster: &mut Cluster<'_>,
    mode: &Mode,
    written: &mut BTreeMap<String, String>,
) -> Result<()> {
    let nodes = mode.nodes.as_deref().unwrap_or(CLUSTER[0]);
    let wanted = [
        ("settings.yaml".to_owned(), mode.manifest()),
        (CLUSTER[0].replace('/', "-"), stage.files.text(nodes)?),
    ];
    for (name, text) in wanted {
        let usual = if name == "settings.yaml" {
            modes::defaults()
        } else {
            stage.files.text(CLUSTER[0])?
        };
        let old = written.insert(name.clone(), text.clone()).unwrap_or(usual);
        if old == text {
            continue;
        }
        let mut applied = BTreeMap::new();
        for node in Node::ALL {
            applied.insert(node, cluster.applied(node)?.len());
        }
        cluster.write_manifest(&name, &text)?;
        for (node, before) in applied {
            cluster
                .wait_applied(node, before)
                .with_context(|| format!("put {} in force", mode.name))?;
        }
    }
    Ok(())
}

/// That it is in force also where clients meet what they meet with the defaults.
fn rules_hold(topology: &Topology, text: &str) -> Result<()> {
    for node in Node::ALL {
        for program in [Program::IptablesSave, Program::Ip6tablesSave] {
            let rules = topology.node(node)?.inside(|| program.run(&[]))?;
            ensure!(
                rules.contains(text),
                "{} of {} does not show it",
                program.name(),
                node.name()
            );
        }
    }
    Ok(())
}
