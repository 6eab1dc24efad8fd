//! Starts the process of a batch, and passes on its output.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use super::COMMAND;
use super::batch::{Splitter, Unit};
use super::copy::Copy;
use super::schedule::{Batch, Event};
use super::work::How;
use crate::nested;
use crate::process;
use crate::progress::say;
use crate::tiers::Resource;

/// Runs a batch to its end. Every unit of it ends in any case.
pub(super) fn run(batch: &Batch, copy: &Copy, built: &Path, how: How, events: &SyncSender<Event>) {
    let name = match &batch.units[..] {
        [unit] => unit.path(),
        units => format!(
            "{} of {}",
            units.len(),
            units.first().map_or("", |unit| unit.tier)
        ),
    };
    // Fails only after standard output is closed; the batch still runs to its end.
    drop(events.send(Event::Started(name.clone())));
    let mut ended = |unit: &Unit, outcome| {
        let (unit, outcome) = (Box::new(unit.clone()), Box::new(outcome));
        drop(events.send(Event::Ended(unit, outcome)));
    };
    let mut splitter = Splitter::new(&batch.units, &mut ended);
    let since = Instant::now();
    let success = match pass_on(batch, copy, built, how, &mut splitter) {
        Ok(success) => success,
        Err(error) => {
            say(&format!("{name}: {error:#}"));
            false
        }
    };
    splitter.finish(success, since.elapsed());
    drop(events.send(Event::Finished(name)));
}

fn pass_on(
    batch: &Batch,
    copy: &Copy,
    built: &Path,
    how: How,
    splitter: &mut Splitter<'_>,
) -> Result<bool> {
    let mut command = process::own(batch.resource != Resource::Processor)?;
    command.arg(COMMAND).args(how.options());
    command.args(batch.units.iter().map(Unit::path));
    command.envs(copy.environment()?).env(nested::BUILT, built);
    command.current_dir(&copy.folder).stdin(Stdio::null());
    command.stderr(Stdio::piped());
    let (mut child, output) = process::piped(&mut command).context("starting the lab once more")?;
    let errors = child
        .stderr
        .take()
        .context("a piped child has a standard error")?;
    let tier = batch.units.first().map_or("", |unit| unit.tier);
    thread::scope(|scope| {
        scope.spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                say(&format!("[{tier}] {line}"));
            }
        });
        std::io::copy(&mut BufReader::new(output), splitter)
    })
    .context("reading what the lab prints")?;
    Ok(child.wait().context("waiting for the lab")?.success())
}
