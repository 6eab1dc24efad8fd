//! Changes of the kernel by other programs while agents run: they are corrected within the sync
//! period and counted by kind, or only reported. State of other programs is kept, also by a
//! cleanup. In a steady state nothing is written at all, as an independent witness verifies.

mod hand;
mod report;
mod steady;
mod tables;
mod tracer;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Checks, Scenario, Stage};
use crate::dataplane::Dataplane;
use crate::files::{CLUSTER, SCHEDULERS};
use crate::harness::{self, manifest_name, proxy_config, wrote_nothing};
use crate::topology::Network;
use crate::topology::world::Node;
use crate::waits::ANSWER;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "drift",
    shows: "drift is corrected or reported, foreign state is kept, a steady state writes nothing",
    run,
};

/// The file of the settings.
const SETTINGS: &str = "settings.yaml";
/// The node whose kernel is changed.
const NODE: Node = Node::A;
/// How long after a change the state has to be correct: the sync period is 2 s here.
const IN_TIME: Duration = Duration::from_secs(10);
/// The virtual server whose scheduler, real servers and frontends are changed.
const TURN: &str = "10.96.2.1:80";

type State = BTreeMap<&'static str, String>;

/// The manifest of the Services that is in force.
struct Services(String);

type Lab<'a> = harness::Lab<'a, Services>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let services = Services(stage.files.text(SCHEDULERS[0])?);
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(services);
    lab.serve_pods()?;
    hand::make_others(&lab)?;
    let before = lab.everything(NODE)?;
    lab.write(SETTINGS, &settings("Repair"))?;
    lab.add_files([CLUSTER[0]].into_iter().chain(SCHEDULERS))?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("changes by hand", hand::run),
            ("drift that is only reported", report::run),
            ("a steady state", steady::run),
        ],
    )?;
    ends(&mut lab, checks, &before)
}

/// A lost record, and a cleanup.
fn ends(lab: &mut Lab<'_>, checks: &mut Checks, before: &State) -> Result<()> {
    let right = lab.all()?;
    checks.check("agents end with status 0 after SIGTERM", {
        lab.stop_agents()
    });
    checks.check(
        "an agent that lost its record writes nothing, and removes no foreign state (S-109)",
        without_a_record(lab, &right),
    );
    lab.cluster.stop_agent(NODE)?;
    let what = "cleanup leaves virtual servers, sets, rules and routes of others (S-109, S-197)";
    let left = lab.clean_up(NODE);
    let same = || witness::must_equal(before, &lab.everything(NODE)?);
    checks.check(what, left.and_then(|()| same()));
    Ok(())
}

fn without_a_record(lab: &mut Lab<'_>, right: &State) -> Result<()> {
    // The tables themselves are the record of that dataplane.
    if lab.stage.dataplane == Dataplane::Ipvs {
        lab.cluster.lose_record(NODE)?;
    }
    wrote_nothing(&lab.start_agent(NODE)?)?;
    witness::must_equal(right, &lab.all()?)
}

fn settings(drift: &str) -> String {
    proxy_config(&["sync: {period: 2s}", &format!("drift: {drift}")])
}

impl Lab<'_> {
    /// Changes the scheduler of one Service: the smallest change of a plan.
    fn turn(&mut self, from: &str, to: &str) -> Result<()> {
        let words = |scheduler| format!("proxy.portolan.dev/scheduler: {scheduler:?}");
        let Services(text) = &mut self.state;
        let times = text.matches(&words(from)).count();
        ensure!(times == 1, "{from} is {times} times in the manifest");
        *text = text.replace(&words(from), &words(to));
        self.put(&manifest_name(SCHEDULERS[0]), &self.state.0)
    }

    /// The relevant state of the node. The index of the device is left out, because it changes when
    /// the device is created again.
    fn all(&self) -> Result<State> {
        let mut all = self.everything(NODE)?;
        all.remove("links");
        Ok(all)
    }

    /// Whether every kind of client is answered over both families.
    fn answers(&self) -> Result<()> {
        self.all_are_answered(NODE, TURN.parse()?, ANSWER)?;
        self.all_are_answered(NODE, "[fd00:10:96::201]:80".parse()?, ANSWER)
    }
}
