//! Writes the CustomResourceDefinitions into the chart; with `--check` it only reports outdated files.
//!
//! Touches: `charts/portolan/charts/crds/crds` beside this crate, standard output and standard error.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portolan_crds::definitions;

/// The output folder.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/portolan/charts/crds/crds")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => return end(2, "usage: crdgen [--check]"),
    };
    match run(&folder(), check) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) => end(
            1,
            &format!(
                "outdated, differ from the types in crds/src: {}; run `cargo run -p portolan-crds --bin crdgen`",
                stale.join(", ")
            ),
        ),
        Err(error) => end(1, &format!("error: {error}")),
    }
}

fn end(code: u8, message: &str) -> ExitCode {
    // If standard error is closed, the message is lost.
    drop(writeln!(io::stderr().lock(), "{message}"));
    code.into()
}

/// Writes changed files and returns nothing; with `check`, only returns their names.
fn run(folder: &Path, check: bool) -> io::Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for definition in definitions().map_err(io::Error::other)? {
        let path = folder.join(definition.file);
        let text = definition.yaml().map_err(io::Error::other)?;
        let name = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        let present = match std::fs::read_to_string(&path) {
            Ok(present) => Some(present),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(name(error)),
        };
        if present.as_ref() == Some(&text) {
            continue;
        }
        if check {
            stale.push(definition.file);
            continue;
        }
        std::fs::create_dir_all(folder).map_err(name)?;
        std::fs::write(&path, text).map_err(name)?;
        writeln!(io::stdout().lock(), "wrote {}", definition.file)?;
    }
    Ok(stale)
}
