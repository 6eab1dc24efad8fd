//! A healthy node, then one fault after the other: `portolan-agent doctor` reports each fault with its remedy and
//! nothing else, and no finding once it is repaired.

mod breaks;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use portolan_agent::saved::SavedPlan;
use serde_json::Value;

use self::breaks::{BREAKS, Break, Change};
use super::packet_path::external_files;
use super::{Checks, Scenario, Stage};
use crate::harness;
use crate::mounts;
use crate::program::{Ended, Program};
use crate::topology::Network;
use crate::topology::world::Node;
use crate::waits::SOON;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "doctor",
    shows: "doctor reports each fault of a node, with its remedy, and nothing else",
    run,
};

const NODE: Node = Node::A;
/// The kernel of the guest has a small table of connections, whatever is done here.
const USUAL: [&str; 1] = ["connection-table"];

type Lab<'a> = harness::Lab<'a>;

/// Runs on a node whose agent has ended, so nothing is repaired automatically.
fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = Lab::new(stage, Network::Bridged)?;
    lab.add_files(external_files())?;
    lab.cluster.start_controller()?;
    lab.cluster.start_agent(NODE)?;
    lab.cluster.wait_applied(NODE, 0)?;
    lab.wait_plan_on_disk(NODE)?;
    lab.cluster.stop_agent(NODE)?;
    lab.run_parts(checks, &[("hint", hint), ("breaks", breaks)])
}

fn hint(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let said = lab.cluster.said(NODE)?;
    checks.require(
        "a starting agent warns about a small connection table (S-195)",
        said.contains("conn_tab_bits=18"),
        &said,
    );
    Ok(())
}

fn breaks(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    breaks::prepare(&lab.node(NODE)?)?;
    lab.heading("a healthy node");
    checks.check("doctor reports nothing on a healthy node", is_quiet(lab));
    lab.heading("one fault after the other");
    for broken in BREAKS {
        let reported = reports(lab, broken);
        checks.check(&format!("{}: {}", broken.check, broken.what), reported);
    }
    checks.check(
        "doctor reports nothing once all faults are repaired",
        is_quiet(lab),
    );
    Ok(())
}

/// Causes the fault, runs doctor and repairs the fault, also if a step fails.
fn reports(lab: &mut Lab<'_>, broken: &Break) -> Result<()> {
    let undone = change(lab, broken)?;
    let asked = ask(lab, broken.change == Change::ReadOnlyState);
    let restored = restore(lab, broken, &undone);
    let ended = asked?;
    restored.context("repair the fault")?;
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

/// Causes a fault; returns the previous state of the node.
fn change(lab: &mut Lab<'_>, broken: &Break) -> Result<String> {
    let node = lab.node(NODE)?;
    let state = lab.cluster.state_folder(NODE);
    match broken.change {
        Change::Commands(commands) => breaks::execute(&node, commands, broken.saves),
        Change::DeadController => lab.cluster.kill_controller().map(|()| String::new()),
        Change::OldPlan => date_plan(lab, Duration::from_secs(3600)).map(|()| String::new()),
        Change::Garbage(file) => {
            let path = state.join(file);
            std::fs::rename(&path, path.with_extension("kept"))?;
            std::fs::write(&path, "garbage\n")?;
            Ok(String::new())
        }
        Change::FullTracking => breaks::fill_tracking(&node),
        Change::ReadOnlyState => Ok(String::new()),
    }
}

fn restore(lab: &mut Lab<'_>, broken: &Break, before: &str) -> Result<()> {
    let node = lab.node(NODE)?;
    match broken.change {
        Change::Commands(_) => breaks::restore(&node, broken, before),
        Change::DeadController => lab.cluster.start_controller(),
        Change::OldPlan => date_plan(lab, Duration::ZERO),
        Change::Garbage(file) => {
            let path = lab.cluster.state_folder(NODE).join(file);
            Ok(std::fs::rename(path.with_extension("kept"), &path)?)
        }
        Change::FullTracking => breaks::empty_tracking(before),
        Change::ReadOnlyState => Ok(()),
    }
}

/// Rewrites the saved plan with a timestamp `ago` in the past.
fn date_plan(lab: &Lab<'_>, ago: Duration) -> Result<()> {
    let saved = SavedPlan::new(&lab.cluster.state_folder(NODE), NODE.name());
    let (plan, _) = saved.read()?.context("there is no plan")?;
    let then = SystemTime::now()
        .checked_sub(ago)
        .context("the clock is at its beginning")?;
    saved.write(&plan, then)?;
    Ok(())
}

fn ask(lab: &Lab<'_>, read_only: bool) -> Result<Ended> {
    let state = lab.cluster.state_folder(NODE);
    let folder = state.display().to_string();
    let controller = lab.cluster.address();
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
    lab.node(NODE)?.inside(|| {
        if read_only {
            mounts::make_read_only(&state)?;
        }
        Program::Agent.try_with_input(&words, "")
    })
}

fn is_quiet(lab: &Lab<'_>) -> Result<()> {
    // A controller that has just started is not reachable at once.
    lab.eventually("doctor to report nothing", SOON, || {
        let ended = ask(lab, false)?;
        let found = alarms(&ended.output)?;
        ensure!(found.is_empty() && ended.status.success(), "{found:#?}");
        Ok(())
    })
}

/// Check, level and remedy of everything that is not in order, and not so on every node of the lab.
fn alarms(output: &str) -> Result<Vec<(String, String, String)>> {
    let report: Value = serde_json::from_str(output).with_context(|| output.to_owned())?;
    let findings = report["findings"].as_array().context("no findings")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = findings.iter().map(|finding| {
        let remedy = text(&finding["remedy"]);
        (text(&finding["check"]), text(&finding["level"]), remedy)
    });
    let bad = all.filter(|(check, level, _)| level != "ok" && !USUAL.contains(&check.as_str()));
    Ok(bad.collect())
}
