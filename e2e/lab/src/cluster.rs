//! Runs scenarios with a real API server on this machine, with the tools of the control plane.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use crate::nested::{self, Profile, Programs, SCENARIOS};
use crate::tools::Release;
use crate::{packages, process, progress, scenarios, tools};

/// Runs `portolan-scenarios cluster` with these arguments, with this build of the programs on this release of
/// Kubernetes, and returns its exit status.
///
/// # Errors
/// The machine cannot be prepared, or a build failed.
pub fn run_scenarios(
    profile: Profile,
    release: Release,
    words: &[&str],
    sink: &mut dyn Write,
) -> Result<u8> {
    let files = nested::root().join("e2e").display().to_string();
    let all = [&["cluster", "--files", &files], words].concat();
    run(profile, || tools::ensure_for(release, words), &all, sink)
}

/// Runs `portolan-scenarios control-plane` with these arguments until a signal ends it.
///
/// # Errors
/// As [`run_scenarios`].
pub fn control_plane(words: &[&str], sink: &mut dyn Write) -> Result<u8> {
    let words = [&["control-plane", "--ignore-stdin"], words].concat();
    run(Profile::Dev, tools::ensure, &words, sink)
}

/// Runs a benchmark of `portolan-scenarios`, release build, on a control plane of this machine.
///
/// # Errors
/// As [`run_scenarios`].
pub fn measure(words: &[&str], sink: &mut dyn Write) -> Result<u8> {
    run(Profile::Release, tools::ensure, words, sink)
}

/// The same, with the programs of nodes as well: kube-proxy is among them.
///
/// # Errors
/// As [`run_scenarios`].
pub fn measure_with_nodes(words: &[&str], sink: &mut dyn Write) -> Result<u8> {
    run(Profile::Release, tools::ensure_with_nodes, words, sink)
}

fn run(
    profile: Profile,
    tools: impl FnOnce() -> Result<PathBuf>,
    words: &[&str],
    sink: &mut dyn Write,
) -> Result<u8> {
    packages::ensure()?;
    let assets = tools()?;
    let programs = Programs::build(profile)?;
    let mut command = process::built(&programs.named(SCENARIOS)?.path)?;
    command
        .args(words)
        .envs(progress::for_programs())
        .env(tools::ASSETS, assets);
    scenarios::exit_of(&mut command, sink)
}
