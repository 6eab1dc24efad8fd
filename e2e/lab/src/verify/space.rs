//! Free disk space, checked before a run: a compiler or an emulated machine without it fails with an unclear message.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{output, program};

/// Bytes that a run needs when most things are built. An estimate: new builds of all crates, and new images of nodes
/// beside the former ones, took 4 to 5 GB.
const WITH_BUILDS: u64 = 6_000_000_000;

/// Bytes that a run needs from an empty cache. Measured: 20 GB of cache and 7 GB of Go's build cache.
const FROM_EMPTY: u64 = 28_000_000_000;

/// # Errors
/// Too little space is available to this user on the disk of the folder, or `df` failed.
pub(super) fn check(target: &Path) -> Result<()> {
    let needed = match target.join("debug").is_dir() {
        true => WITH_BUILDS,
        false => FROM_EMPTY,
    };
    let mut df = program("df")?;
    df.args(["--block-size=1", "--output=avail"]).arg(target);
    let text = output(&mut df)?;
    let free = parse(&text).with_context(|| format!("`df` printed `{text}`"))?;
    enough(target, free, needed)
}

/// The second line of the output of `df --output=avail`.
fn parse(text: &str) -> Option<u64> {
    text.lines().nth(1)?.trim().parse().ok()
}

fn enough(folder: &Path, free: u64, needed: u64) -> Result<()> {
    if free >= needed {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    bail!(
        "{} MB are free on the disk of {}, a run needs {} MB; delete what is not needed, or set XDG_CACHE_HOME to a \
         folder on a larger disk. Deleting the folder itself is safe too: the next run builds everything again",
        megabytes(free),
        folder.display(),
        megabytes(needed),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_an_error_that_names_the_folder() {
        let folder = Path::new("/c/target");
        let error = enough(folder, 33_000_000, WITH_BUILDS).unwrap_err();
        let text = error.to_string();
        let expected = "33 MB are free on the disk of /c/target, a run needs 6000 MB;";
        assert!(text.starts_with(expected), "{text}");
        enough(folder, WITH_BUILDS, WITH_BUILDS).unwrap();
    }

    #[test]
    fn df_prints_a_header_and_a_number() {
        assert_eq!(parse("       Avail\n 31949893632\n"), Some(31_949_893_632));
        assert_eq!(parse("df: nothing\n"), None);
    }
}
