//! Drift that is only reported: it is not corrected and is counted once, a new plan is still written, and other
//! settings correct the rest.

use anyhow::{Context as _, Result, ensure};

use super::{Checks, IN_TIME, Lab, NODE, SETTINGS, State, TURN, hand, settings, tables};
use crate::dataplane::Dataplane;
use crate::program::Program;
use crate::witness;

/// Sync periods during which nothing may be written.
const PERIODS: std::time::Duration = std::time::Duration::from_secs(7);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("only reported");
    lab.put(SETTINGS, &settings("Report"))?;
    let right = lab.all()?;
    let before = lab.log_end(NODE)?;
    let hands = match lab.stage.dataplane {
        Dataplane::Ipvs => vec![
            hand::weight(),
            hand::flush(&right),
            hand::chain(),
            hand::route(),
        ],
        Dataplane::Nftables => vec![tables::two_elements()],
    };
    let node = lab.node(NODE)?;
    hands.iter().try_for_each(|hand| hand.change(&node))?;
    let changed = lab.all()?;
    checks.check(
        "drift that is only reported is logged by kind (S-184)",
        is_logged(lab, before, &hands),
    );
    checks.check(
        "drift that is only reported is never corrected (S-184)",
        persists(lab, before, &changed, &hands),
    );
    checks.check(
        "changes of the plan are still written, and the drift stays",
        plan_changes(lab, &changed),
    );
    let before = lab.log_end(NODE)?;
    lab.put(SETTINGS, &settings("Repair"))?;
    checks.check("other settings correct the drift at once", {
        let said = lab.log_since(NODE, before)?;
        witness::must_equal(&right, &lab.all()?).context(said)
    });
    checks.check("clients are answered (S-184)", lab.answers());
    Ok(())
}

fn is_logged(lab: &mut Lab<'_>, before: usize, hands: &[hand::Hand]) -> Result<()> {
    lab.eventually("log lines about all of it", IN_TIME, || {
        let said = lab.log_since(NODE, before)?;
        let missing = hands.iter().find(|hand| !said.contains(&hand.found));
        let alone = said.contains("not repairing them because of settings.drift");
        ensure!(missing.is_none() && alone, "{said}");
        Ok(())
    })
}

fn persists(lab: &mut Lab<'_>, before: usize, changed: &State, hands: &[hand::Hand]) -> Result<()> {
    crate::waits::sleep_until(std::time::Instant::now() + lab.limit(PERIODS))?;
    witness::must_equal(changed, &lab.all()?)?;
    let said = lab.log_since(NODE, before)?;
    ensure!(!said.contains("operations="), "it wrote: {said}");
    for hand in hands {
        let times = said.matches(&hand.found).count();
        ensure!(times == 1, "{} was logged {times} times: {said}", hand.name);
    }
    Ok(())
}

fn plan_changes(lab: &mut Lab<'_>, changed: &State) -> Result<()> {
    let (tool, line, shown) = match lab.stage.dataplane {
        Dataplane::Ipvs => (Program::Ipvsadm, "-Ln", format!("TCP  {TURN} sh")),
        Dataplane::Nftables => {
            let (address, port) = TURN.split_once(':').context("a frontend has a port")?;
            let line = "list set ip portolan source-hash";
            (Program::Nft, line, format!("{address} . tcp . {port}"))
        }
    };
    lab.turn("rr", "sh")?;
    let listed = lab.tool(NODE, tool, line)?;
    ensure!(listed.contains(&shown), "no {shown:?} in {listed}");
    lab.turn("sh", "rr")?;
    witness::must_equal(changed, &lab.all()?)
}
