//! Where drift is only reported: nothing is written for it, it is counted once, a new plan is written
//! all the same, and other settings put the rest right.

use anyhow::{Context as _, Result, ensure};

use super::{Checks, SETTINGS, Scene, State, TURN, hand, settings};
use crate::program::Program;
use crate::topology::world::Node;
use crate::witness;

/// Looks of the agent while nothing may be written.
const PERIODS: std::time::Duration = std::time::Duration::from_secs(7);

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("only reported");
    scene.put(SETTINGS, &settings("Report"))?;
    let right = scene.state()?;
    let before = scene.cluster.said(Node::A)?.len();
    let hands = [
        hand::weight(),
        hand::flush(&right),
        hand::chain(),
        hand::route(),
    ];
    for (program, line) in hands.iter().flat_map(|hand| &hand.lines) {
        scene.tool(*program, line)?;
    }
    let changed = scene.state()?;
    checks.check(
        "what is only reported is told by kind (S-184)",
        told(scene, before, &hands),
    );
    checks.check(
        "what is only reported is not written, however often it is looked at (S-184)",
        stands(scene, before, &changed),
    );
    checks.check(
        "what the plan changes is written all the same, and the rest stands",
        plan_changes(scene, &changed),
    );
    let before = scene.cluster.said(Node::A)?.len();
    scene.put(SETTINGS, &settings("Repair"))?;
    checks.check("other settings put right what stood, at once", {
        let said = scene.said(before)?;
        witness::must_equal(&right, &scene.state()?).context(said)
    });
    checks.check("clients are answered (S-184)", scene.answers());
    Ok(())
}

fn told(scene: &mut Scene<'_>, before: usize, hands: &[hand::Hand]) -> Result<()> {
    scene.until("words about all of it", |scene| {
        let said = scene.said(before)?;
        let missing = hands.iter().find(|hand| !said.contains(&hand.found));
        let alone = said.contains("left alone, as settings.drift says");
        Ok(match missing {
            None if alone => Ok(()),
            _ => Err(said),
        })
    })
}

fn stands(scene: &mut Scene<'_>, before: usize, changed: &State) -> Result<()> {
    crate::waits::sleep_until(std::time::Instant::now() + scene.stage.waits.limit(PERIODS))?;
    witness::must_equal(changed, &scene.state()?)?;
    let said = scene.said(before)?;
    ensure!(!said.contains("operations="), "it wrote: {said}");
    let times = said.matches("1 weight").count();
    ensure!(times == 1, "told {times} times: {said}");
    Ok(())
}

fn plan_changes(scene: &mut Scene<'_>, changed: &State) -> Result<()> {
    scene.turn("rr", "wlc")?;
    let listed = scene.tool(Program::Ipvsadm, "-Ln")?;
    let shown = format!("TCP  {TURN} wlc");
    ensure!(listed.contains(&shown), "no {shown:?} in {listed}");
    scene.turn("wlc", "rr")?;
    witness::must_equal(changed, &scene.state()?)
}
