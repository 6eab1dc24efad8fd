//! A steady state: the agent reads the kernel and writes nothing. A witness sees every message that
//! it sends and every program that it starts, and also counts the messages of a change.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::tracer::{Seen, Tracer};
use super::{Checks, Lab, NODE};
use crate::dataplane::Dataplane;
use crate::{waits, witness};

/// How long nothing is written.
const STEADY: Duration = Duration::from_secs(60);
/// The minimum number of resyncs meanwhile, one in each sync period of 2 s. A resync takes a while on an emulated
/// node under strace.
const LOOKS: usize = 6;
/// The programs that read rules, one for each family: at most once, since no rule changes.
const READERS: usize = 2;
/// In which they come, after that.
const LIMIT: Duration = Duration::from_secs(90);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("steady");
    let before = lab.all()?;
    let tracer = Tracer::attach(&lab.cluster, &lab.node(NODE)?, lab.stage.waits)?;
    let steady = quiet(lab, &tracer);
    let shown = steady.as_ref().ok().copied();
    checks.check(
        "in a steady state of one minute the agent reads, and writes nothing (S-157, S-184)",
        steady.map(drop),
    );
    if let Some(seen) = shown {
        lab.line(&seen.to_string());
    }
    checks.check(
        "in a steady state the kernel does not change (S-157)",
        witness::must_equal(&before, &lab.all()?),
    );
    checks.check("the same witness counts what a change writes", {
        lab.turn("rr", "sh")?;
        let seen = tracer.seen()?;
        ensure_writes(&seen)
    });
    drop(tracer);
    lab.turn("sh", "rr")
}

fn quiet(lab: &mut Lab<'_>, tracer: &Tracer) -> Result<Seen> {
    waits::sleep_until(Instant::now() + STEADY)?;
    let seen = lab.eventually("the agent to resync more often", LIMIT, || {
        let seen = tracer.seen()?;
        ensure!(
            seen.asked_for_generation >= LOOKS,
            "too few resyncs: {seen}"
        );
        Ok(seen)
    })?;
    // Tables are read again only if any rules were changed.
    let reads = seen.dumps > LOOKS || lab.stage.dataplane == Dataplane::Nftables;
    ensure!(reads, "the witness sees no messages: {seen}");
    ensure!(seen.written() == 0, "{seen}");
    ensure!(seen.programs_that_read <= READERS, "{seen}");
    Ok(seen)
}

fn ensure_writes(seen: &Seen) -> Result<()> {
    ensure!(seen.messages_that_write >= 3, "only {seen}");
    Ok(())
}
