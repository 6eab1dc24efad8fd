//! `cargo lab real`: a cluster of emulated machines with real kubelets, and Kubernetes' own tests on it.
//!
//! This module builds what the machines boot from; `portolan-scenarios real` runs them.

mod earlier;
mod images;
mod iperf;
mod store;
mod system;

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::guest::emulated;
use crate::nested::{self, Profile, Programs, SCENARIOS};
use crate::{packages, process, progress, scenarios, tools};

/// Prepares what `portolan-scenarios real` needs, runs it with these arguments and returns its exit status. With
/// `prepare` it only prepares.
///
/// # Errors
/// The machine cannot be prepared, or a build failed.
pub(crate) fn run(words: &[&str], sink: &mut dyn Write) -> Result<u8> {
    let versions = packages::ensure()?;
    let assets = tools::ensure_with_nodes()?;
    let system = system::prepare(&versions, &assets)?;
    let programs = Programs::build(Profile::Dev)?;
    let earlier = match words {
        ["skew", options @ ..] => Some(earlier::prepare(value_of("--revision", options))?),
        _ => None,
    };
    let store = store::prepare(&system, &assets, &programs, earlier.as_ref())?;
    if words == ["prepare"] {
        return Ok(0);
    }
    let root = nested::root();
    let mut command = process::built(&programs.named(SCENARIOS)?.path)?;
    command
        .arg("real")
        .args(words)
        .args(["--cpu", emulated::CPU])
        .args(["--boot", emulated::KERNEL])
        .args(file("--kernel", &system.kernel()))
        .args(file("--initrd", &system.initrd()))
        .args(file("--system", &system.disk()))
        .args(file("--store", &store))
        .args(file("--chart", &root.join("charts/portolan")))
        .args(file("--files", &root.join("e2e")))
        .args(
            earlier
                .iter()
                .flat_map(|earlier| file("--earlier", &earlier.chart())),
        )
        .envs(progress::for_programs())
        .env(tools::ASSETS, &assets);
    scenarios::exit_of(&mut command, sink)
}

fn value_of<'a>(flag: &str, words: &[&'a str]) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == flag)?;
    words.get(at + 1).copied()
}

fn file(flag: &str, path: &Path) -> [String; 2] {
    [flag.to_owned(), path.display().to_string()]
}
