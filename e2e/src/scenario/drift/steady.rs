//! A steady state: the agent looks, and writes nothing. Who says so sees every message that it sends
//! and every program that it starts, and counts when something is changed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::tracer::{Seen, Tracer};
use super::{Checks, Scene};
use crate::topology::world::Node;
use crate::witness;

/// How long nothing is written.
const STEADY: Duration = Duration::from_secs(60);
/// So many times at least the agent looks meanwhile, once in each sync period of 2 s; a look takes the
/// emulated node a while under the eyes of the witness.
const LOOKS: usize = 6;
/// The programs that read rules, one for each family: once if at all, since nobody changes any.
const READERS: usize = 2;
/// In which they come.
const LIMIT: Duration = Duration::from_secs(90);

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
        "in a steady state of a minute the agent looks, and writes nothing (S-157, S-184)",
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
    let begin = Instant::now();
    waits.until(
        "the agent to look some more times",
        LIMIT,
        Duration::from_millis(100),
        || {
            scene.cluster.check_running()?;
            seen = tracer.seen()?;
            let enough = seen.asked_for_generation >= LOOKS && begin.elapsed() >= STEADY;
            Ok(enough.then_some(()))
        },
        || "it looked less often".to_owned(),
    )?;
    ensure!(seen.dumps > LOOKS, "the witness sees no messages: {seen}");
    ensure!(seen.written() == 0, "{seen}");
    ensure!(seen.programs_that_read <= READERS, "{seen}");
    Ok(seen)
}

fn ensure_writes(seen: &Seen) -> Result<()> {
    ensure!(seen.messages_that_write >= 3, "only {seen}");
    Ok(())
}
