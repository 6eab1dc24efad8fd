//! Settings that change while the agents run: each mode is applied, and every cell matches its
//! table.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::external::files;
use super::{lifecycle, matrix};
use crate::checks::Checks;
use crate::dataplane::Dataplane;
use crate::expectation::modes::{self, Mode};
use crate::expectation::places::Places;
use crate::files::{CLUSTER, EXTERNAL, MODES};
use crate::harness::{Lab, manifest_name};
use crate::program::Program;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::topology::Network;
use crate::topology::world::Node;

/// The file of the settings.
const SETTINGS: &str = "settings.yaml";
/// Required number of modes, and of cells in each.
const COUNT: usize = 10;
const CELLS: usize = 48;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "detection-modes",
    shows: "pod detection modes, masquerading of all packets, marks: changed while the agents run",
    run,
};

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let places = Places::read(&stage.files.text(EXTERNAL[0])?)?;
    let modes = modes::read(&stage.files.text(MODES)?, &places)?;
    ensure!(modes.len() == COUNT, "{} modes, not {COUNT}", modes.len());
    for network in Network::ALL {
        let mut lab = Lab::new(stage, network)?;
        lab.serve_pods()?;
        lab.serve_nodes()?;
        let before = lifecycle::baselines(&lab)?;
        lab.add_files(files())?;
        lab.start()?;
        let mut written = BTreeMap::new();
        for mode in modes.iter().filter(|mode| mode.network == network) {
            put_in_force(&lab, mode, &mut written)
                .with_context(|| format!("put {} in force", mode.name))?;
            show(&lab, checks, mode)?;
            let text = mode.holds.as_ref();
            if let Some(text) = text.filter(|_| stage.dataplane == Dataplane::Ipvs) {
                let what = format!("{}: rules have {text:?} (S-164, S-204)", mode.name);
                checks.check(&what, rules_hold(&lab, text));
            }
        }
        lab.stop_agents()?;
        for node in Node::ALL {
            let what = format!(
                "cleanup leaves {} as it was before Portolan, whatever the mode was (S-196)",
                node.name()
            );
            checks.check(&what, lifecycle::cleans_up(&lab, node, &before[&node]));
        }
    }
    Ok(())
}

fn show(lab: &Lab<'_>, checks: &mut Checks, mode: &Mode) -> Result<()> {
    let heading = format!(
        "{}: {} network, {} cells are not as with the defaults",
        mode.name,
        mode.network.name(),
        mode.differing
    );
    matrix::run(lab, checks, &mode.matrix, &heading, CELLS)
}

/// Writes what differs from what was written before, and waits until every node has applied it.
fn put_in_force(lab: &Lab<'_>, mode: &Mode, written: &mut BTreeMap<String, String>) -> Result<()> {
    let files = &lab.stage.files;
    let nodes = mode.nodes.as_deref().unwrap_or(CLUSTER[0]);
    let wanted = [
        (SETTINGS.to_owned(), mode.manifest()),
        (manifest_name(CLUSTER[0]), files.text(nodes)?),
    ];
    for (name, text) in wanted {
        let usual = if name == SETTINGS {
            modes::defaults()
        } else {
            files.text(CLUSTER[0])?
        };
        let old = written.insert(name.clone(), text.clone()).unwrap_or(usual);
        if old != text {
            lab.put(&name, &text)?;
        }
    }
    Ok(())
}

/// That it is in force also where clients meet what they meet with the defaults.
fn rules_hold(lab: &Lab<'_>, text: &str) -> Result<()> {
    for node in Node::ALL {
        for program in [Program::IptablesSave, Program::Ip6tablesSave] {
            let rules = lab.node(node)?.inside(|| program.run(&[]))?;
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
