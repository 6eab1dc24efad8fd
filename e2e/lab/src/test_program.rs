//! Test programs built by cargo, started directly with cargo's folder and environment.

use std::path::Path;

use anyhow::Result;

use crate::nested::Binary;
use crate::process;

/// A command that starts a test program the way cargo does.
///
/// # Errors
/// `setpriv` left the table.
pub fn command(binary: &Binary) -> Result<std::process::Command> {
    let mut command = process::built(&binary.path)?;
    command
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .env("CARGO_PKG_NAME", &binary.package);
    Ok(command)
}

/// `PACKAGE::PROGRAM`; cargo appends a hash to file names.
#[must_use]
pub fn name(package: &str, path: &Path) -> String {
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
