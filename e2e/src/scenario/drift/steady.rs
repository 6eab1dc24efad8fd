//! A steady state: the agent looks, and writes nothing. Who says so sees every message that it sends
//! and every program that it starts, and counts when something is changed.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::tracer::{Seen, Tracer};
use super::{Checks, Scene};
use crate::topology::world::Node;
use crate::witness;

/// So many times the rules of both families are read, once in each period.
const LOOKS: usize = 6;
/// In which they come: the sync period is 2 s.
const LIMIT: Duration = Duration::from_secs(40);

pub(super) fn run(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("steady");
    let before = scene.state()?;
    let tracer = Tracer::attach(
        &scene.cluster,
        scene.topology.node(Node::A)?,
        scene.stage.waits,
    )?;
    let steady = quiet(scene, &tracer);
    let shown = steady.as_ref().ok().copied();
    checks.check(
        "in a steady state the agent looks, and writes nothing (S-157, S-184)",
        steady.map(drop),
    );
    if let Some(seen) = shown {
        scene.stage.console.line(&seen.to_string());
    }
    checks.check(
        "in a steady state the kernel stays as it is (S-157)",
        witness::must_equal(&before, &scene.state()?),
    );
    checks.check("the same witness counts what a change writes", {
        scene.turn("rr", "lc")?;
        let seen = tracer.seen()?;
        ensure_writes(&seen)
    });
    drop(tracer);
    scene.turn("lc", "rr")
}

fn quiet(scene: &mut Scene<'_>, tracer: &Tracer) -> Result<Seen> {
    let waits = scene.stage.waits;
    let mut seen = Seen::default();
    waits.until(
        "the agent to look some more times",
        LIMIT,
        Duration::from_millis(100),
        || {
            scene.cluster.check_running()?;
            seen = tracer.seen()?;
            Ok((seen.programs_that_read >= 2 * LOOKS).then_some(()))
        },
        || "it looked less often".to_owned(),
    )?;
    ensure!(seen.dumps > LOOKS, "the witness sees no messages: {seen}");
    ensure!(seen.written() == 0, "{seen}");
    Ok(seen)
}

fn ensure_writes(seen: &Seen) -> Result<()> {
    ensure!(seen.messages_that_write >= 3, "only {seen}");
    Ok(())
}
