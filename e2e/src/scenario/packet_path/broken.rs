//! Kernel state broken on purpose, one mutation at a time: the named cell has to fail in the named
//! way, and to pass again once the mutation is undone. A mutation that no cell detects fails the
//! run.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Checks, overlay};
use crate::expectation::broken::Mutation;
use crate::harness::Lab;
use crate::program::Program;

/// Tries every mutation of this network.
pub(super) fn run(checks: &mut Checks, lab: &Lab<'_>, mutations: &[Mutation]) {
    let network = lab.topology.network();
    for mutation in mutations.iter().filter(|m| m.network == network) {
        let rules = mutation.rules.join(" ");
        let what = format!("broken on purpose: {} is detected ({rules})", mutation.name);
        checks.check(&what, is_noticed(lab, mutation));
    }
}

fn is_noticed(lab: &Lab<'_>, mutation: &Mutation) -> Result<()> {
    let namespace = lab.topology.node(mutation.node)?;
    namespace.inside(|| all(&mutation.break_it))?;
    let broken = wrong(lab, mutation);
    namespace.inside(|| all(&mutation.undo))?;
    let why = broken?.with_context(|| format!("{} passes all the same", dials(mutation)))?;
    ensure!(
        mutation.fails.iter().any(|text| why.contains(text)),
        "it fails in another way than {:?}: {why}",
        mutation.fails
    );
    match wrong(lab, mutation)? {
        None => Ok(()),
        Some(why) => bail!("undone, it still fails: {why}"),
    }
}

/// Why the cell fails now, if it does.
fn wrong(lab: &Lab<'_>, mutation: &Mutation) -> Result<Option<String>> {
    let cell = lab.run_cell(&mutation.row)?;
    if !mutation.overlay {
        return Ok((!cell.passed()).then(|| cell.explain()));
    }
    let kept = overlay::keeps_its_ports(&lab.topology);
    Ok(kept.err().map(|error| format!("{error:#}")))
}

fn dials(mutation: &Mutation) -> String {
    format!("{} -> {}", mutation.row.from.name(), mutation.row.dials())
}

fn all(lines: &[String]) -> Result<()> {
    lines.iter().try_for_each(|line| act(line))
}

/// Runs one line of the table: a program with its arguments, or `set` with a kernel setting and its
/// value.
fn act(line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (first, rest) = words.split_first().context("an empty line")?;
    if *first == "set" {
        let [name, value] = rest else {
            bail!("{line}: `set` takes a name and a value");
        };
        let path = Path::new("/proc/sys").join(name);
        return std::fs::write(&path, value).with_context(|| format!("write {}", path.display()));
    }
    const KNOWN: [Program; 6] = [
        Program::Conntrack,
        Program::Ip,
        Program::Ipvsadm,
        Program::Ipset,
        Program::Iptables,
        Program::Ip6tables,
    ];
    let program = KNOWN.into_iter().find(|program| program.name() == *first);
    let program = program.with_context(|| format!("{line}: no program is called {first:?}"))?;
    program.run(rest).map(drop)
}
