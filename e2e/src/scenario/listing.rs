//! The tool `nft` lists the tables of a large cluster, as text and as JSON. It reads them rule by rule and element by
//! element, and versions of it abort at rules that it cannot print.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Checks, Scenario, Stage};
use crate::bench::plan::Plan;
use crate::bench::scale::Scale;
use crate::bench::{Agent, NO_TAP, Nodes, write_manifests};
use crate::namespace::Namespace;
use crate::program::Program;
use crate::witness;
use crate::work_folder::WorkFolder;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "listing",
    shows: "the tool nft lists the tables of 10,000 Services",
    run,
};

const SCALE: Scale = Scale {
    services: 10_000,
    endpoints: 2,
};
/// The kernel is read again only after the scenario.
const SETTINGS: &str = "dataplane: nftables, sync: {period: 1h}";

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let folder = WorkFolder::private()?;
    let manifests = folder.path.join("manifests");
    write_manifests(&manifests, &SCALE, SETTINGS)?;
    let plan = Plan::of(&manifests)?;
    let node = Nodes::new(stage.waits).fresh()?;
    let agent = Agent::start(
        node.namespace(),
        &folder.path.join("state"),
        stage.waits,
        NO_TAP,
    )?;
    agent.program(plan.whole())?;
    agent.stop()?;
    let text = list(node.namespace(), &["list", "ruleset"]);
    checks.check(
        "nft list ruleset lists every frontend and backend",
        text.and_then(|text| has_all_lines(&text)),
    );
    let json = list(node.namespace(), &["-j", "list", "ruleset"]);
    checks.check(
        "nft -j list ruleset lists rules with their expressions, chains, sets and maps",
        json.and_then(|text| has_all_objects(&text)),
    );
    let served = witness::tables::served(node.namespace())?;
    let backends: usize = served.values().map(|backends| backends.len()).sum();
    let wanted = (SCALE.services as usize, backends_wanted());
    checks.require(
        "its list of the map `endpoint` has every backend",
        (served.len(), backends) == wanted,
        &format!(
            "it has {} frontends and {backends} backends, not {wanted:?}",
            served.len()
        ),
    );
    Ok(())
}

fn list(namespace: &Namespace, words: &[&str]) -> Result<String> {
    namespace.inside(|| Program::Nft.run(words))
}

fn backends_wanted() -> usize {
    (SCALE.services * SCALE.endpoints) as usize
}

/// Each backend is an element of the map `endpoint`, and each frontend of the set `frontend`.
fn has_all_lines(text: &str) -> Result<()> {
    let backends = text.matches(" . 8080").count();
    let frontends = text.matches(". tcp . 80").count();
    let least = backends_wanted();
    ensure!(
        backends >= least && frontends > least,
        "{backends} backends and {frontends} keys are listed, not {least} and more"
    );
    Ok(())
}

/// Elements are counted elsewhere; here, whether all objects of the table are listed, with each rule's expressions.
fn has_all_objects(text: &str) -> Result<()> {
    let list: Value = serde_json::from_str(text).context("read the list as JSON")?;
    let objects = list["nftables"].as_array().context("it is no list")?;
    for (kind, least) in [
        ("table", 1),
        ("chain", 10),
        ("rule", 30),
        ("map", 2),
        ("set", 3),
    ] {
        let of_kind = objects.iter().filter_map(|object| object.get(kind));
        let found = of_kind.filter(|one| kind != "rule" || one["expr"].is_array());
        let found = found.count();
        ensure!(found >= least, "{found} objects of kind {kind} are listed");
    }
    Ok(())
}
