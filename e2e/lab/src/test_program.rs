//! Makes cargo tell which test program prints what. Cargo names programs on standard error, where
//! its progress is shown; tests print to standard output, which the lab reads.
//!
//! So cargo is told to start the lab in the place of each: it prints the program's name, which
//! [`crate::closing::Counter`] keeps to itself, and becomes that program.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};

use crate::closing::ASIDE;
use crate::process;
use crate::progress::print;

/// The hidden command.
pub const COMMAND: &str = "test-program";

/// Words for `cargo test`.
#[must_use]
pub fn words() -> [String; 2] {
    // The file may be replaced while tests are built; what runs stays reachable like this.
    let own = format!("/proc/{}/exe", std::process::id());
    let runner = format!("target.'cfg(all())'.runner=['{own}', '{COMMAND}']");
    ["--config".to_owned(), runner]
}

/// Says which program this is, and becomes it.
///
/// # Errors
/// It cannot be started.
pub fn run(path: &Path, words: &[OsString]) -> Result<u8> {
    let package = std::env::var("CARGO_PKG_NAME")
        .context("cargo starts this command and says of which package the test is")?;
    print(&format!("{ASIDE}{}", name(&package, path)))?;
    Err(process::become_test(path, words))
        .with_context(|| format!("starting the test program {}", path.display()))
}

/// `PACKAGE::PROGRAM`; cargo adds a hash to the names of files.
fn name(package: &str, path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let program = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    format!("{package}::{program}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_without_cargos_hash() {
        let path = Path::new("/t/debug/deps/planner-0a1b2c3d4e5f6071");
        assert_eq!(name("portolan-planner", path), "portolan-planner::planner");
        assert_eq!(name("p", Path::new("/t/plain")), "p::plain");
    }
}
