//! A node in order, then broken in one way after the other: `portolan-agent doctor` names each with its
//! remedy and nothing else, and is quiet once it is put right.

mod breaks;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use portolan_agent::saved::SavedPlan;
use serde_json::Value;

use self::breaks::{BREAKS, Break, Change};
use super::packet_path::external_manifests;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::mounts;
use crate::program::{Ended, Program};
use crate::topology::world::Node;
use crate::topology::{Network, Topology};
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "doctor",
    shows: "doctor names each thing that is broken on a node, with its remedy, and nothing else",
    run,
};

const NODE: Node = Node::A;
/// The kernel of the guest has a small table of connections, whatever is done here.
const USUAL: [&str; 1] = ["connection-table"];

/// A node that an agent programmed, which then ended: nothing is put right by itself.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Bridged, stage.waits)?;
    let manifests = external_manifests(&stage.files)?;
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, manifests)?,
    };
    scene.cluster.start_controller()?;
    scene.cluster.start_agent(NODE)?;
    scene.cluster.wait_applied(NODE, 0)?;
    scene.wait_for_plan()?;
    scene.cluster.stop_agent(NODE)?;
    let said = scene.cluster.said(NODE)?;
    checks.check(
        "an agent that starts hints at a small table of connections (S-195)",
        {
            let hint = said.contains("conn_tab_bits=18");
            hint.then_some(()).with_context(|| said)
        },
    );
    scene.prepare()?;
    stage.console.heading("a node in order");
    checks.check("doctor is quiet on a node in order", scene.is_quiet());
    stage.console.heading("broken in one way after the other");
    for broken in BREAKS {
        let told = scene.is_told(broken);
        checks.check(&format!("{}: {}", broken.check, broken.what), told);
    }
    checks.check(
        "doctor is quiet again once all is put right",
        scene.is_quiet(),
    );
    Ok(())
}

impl Scene<'_> {
    fn wait_for_plan(&self) -> Result<()> {
        let plan = self.cluster.state_folder(NODE).join("plan");
        self.stage.waits.until(
            "the plan on disk",
            Duration::from_secs(15),
            Duration::from_millis(50),
            || Ok(plan.exists().then_some(())),
            || "it is not there".to_owned(),
        )
    }

    /// What some of the breaks need to be about something.
    fn prepare(&self) -> Result<()> {
        breaks::prepare(self.topology.node(NODE)?)
    }

    /// Breaks, asks and puts right, in this order whatever comes of it.
    fn is_told(&mut self, broken: &Break) -> Result<()> {
        let undone = self.change(broken)?;
        let asked = self.ask(broken.change == Change::ReadOnlyState);
        let restored = self.restore(broken, &undone);
        let ended = asked?;
        restored.context("put it right")?;
        let found = alarms(&ended.output)?;
        let [(check, level, remedy)] = found.as_slice() else {
            anyhow::bail!("{found:#?}");
        };
        ensure!(
            (check.as_str(), level.as_str()) == (broken.check, broken.level)
                && remedy.contains(broken.remedy),
            "{found:#?}"
        );
        let status = i32::from(broken.level == "fail");
        ensure!(
            ended.status.code() == Some(status),
            "it ended with {}",
            ended.status
        );
        Ok(())
    }

    /// Breaks something; gives back what the node had.
    fn change(&mut self, broken: &Break) -> Result<String> {
        let node = self.topology.node(NODE)?;
        let state = self.cluster.state_folder(NODE);
        match broken.change {
            Change::Commands(commands) => breaks::execute(node, commands, broken.saves),
            Change::DeadController => self.cluster.kill_controller().map(|()| String::new()),
            Change::OldPlan => self
                .date_plan(Duration::from_secs(3600))
                .map(|()| String::new()),
            Change::Garbage(file) => {
                let path = state.join(file);
                std::fs::rename(&path, path.with_extension("kept"))?;
                std::fs::write(&path, "garbage\n")?;
                Ok(String::new())
            }
            Change::FullTracking => breaks::fill_tracking(node),
            Change::ReadOnlyState => Ok(String::new()),
        }
    }

    fn restore(&mut self, broken: &Break, before: &str) -> Result<()> {
        let node = self.topology.node(NODE)?;
        match broken.change {
            Change::Commands(_) => breaks::restore(node, broken, before),
            Change::DeadController => self.cluster.start_controller(),
            Change::OldPlan => self.date_plan(Duration::ZERO),
            Change::Garbage(file) => {
                let path = self.cluster.state_folder(NODE).join(file);
                Ok(std::fs::rename(path.with_extension("kept"), &path)?)
            }
            Change::FullTracking => breaks::empty_tracking(before),
            Change::ReadOnlyState => Ok(()),
        }
    }

    /// Writes the plan again, as if it had been written so long ago.
    fn date_plan(&self, ago: Duration) -> Result<()> {
        let saved = SavedPlan::new(&self.cluster.state_folder(NODE), NODE.name());
        let (plan, _) = saved.read()?.context("there is no plan")?;
        let then = SystemTime::now()
            .checked_sub(ago)
            .context("the clock is at its beginning")?;
        saved.write(&plan, then)?;
        Ok(())
    }

    fn ask(&self, read_only: bool) -> Result<Ended> {
        let state = self.cluster.state_folder(NODE);
        let folder = state.display().to_string();
        let controller = self.cluster.address();
        let words = [
            "doctor",
            "-o",
            "json",
            "--node",
            NODE.name(),
            "--state-dir",
            &folder,
            "--controller",
            &controller,
        ];
        self.topology.node(NODE)?.inside(|| {
            if read_only {
                mounts::make_read_only(&state)?;
            }
            Program::Agent.try_with_input(&words, "")
        })
    }

    fn is_quiet(&self) -> Result<()> {
        // A controller that was started a moment ago is not there at once.
        let mut last = Vec::new();
        let ask = || {
            let ended = self.ask(false)?;
            last = alarms(&ended.output)?;
            Ok((last.is_empty() && ended.status.success()).then_some(()))
        };
        let every = Duration::from_millis(50);
        let waited = self.stage.waits.until(
            "doctor to be quiet",
            Duration::from_secs(5),
            every,
            ask,
            String::new,
        );
        waited.with_context(|| format!("{last:#?}"))
    }
}

/// Check, level and remedy of everything that is not in order, and not so on every node of the lab.
fn alarms(output: &str) -> Result<Vec<(String, String, String)>> {
    let told: Value = serde_json::from_str(output).with_context(|| output.to_owned())?;
    let findings = told["findings"].as_array().context("no findings")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = findings.iter().map(|finding| {
        let remedy = text(&finding["remedy"]);
        (text(&finding["check"]), text(&finding["level"]), remedy)
    });
    let bad = all.filter(|(check, level, _)| level != "ok" && !USUAL.contains(&check.as_str()));
    Ok(bad.collect())
}
