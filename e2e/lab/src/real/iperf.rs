//! iperf 2.2 for the container images of tests, from Debian 13 with the libraries that it needs.
//!
//! Touches: the package lists of that release in the cache; the given folder. Kubernetes' test parses the columns of
//! 2.2, and Debian 12 has 2.1, which prints others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::packages::Index;
use crate::{cache, process};

/// The first Debian release with iperf 2.2.
const RELEASE: &str = "trixie";
/// The program, and libraries newer than those of Debian 12.
const PACKAGES: [&str; 4] = ["iperf", "libc6", "libstdc++6", "libgcc-s1"];
/// Where they are in the images.
const PLACE: &str = "opt/iperf";
/// Starts the program with its own libraries.
const STARTER: &str = "#!/bin/sh
from=/opt/iperf/usr
exec $from/lib64/ld-linux-x86-64.so.2 --library-path $from/lib/x86_64-linux-gnu $from/bin/iperf \"$@\"
";

/// Adds the command `iperf` to the system in `root`. `folder` is for temporary files.
///
/// # Errors
/// A package cannot be fetched, or a folder cannot be written.
pub(super) fn add(root: &Path, folder: &Path) -> Result<()> {
    let index = Index::of_release(RELEASE, &cache::folder("packages")?.join(RELEASE))?;
    index.refresh()?;
    let mut unpacked = folder.to_owned();
    for package in PACKAGES {
        unpacked = index.unpack(package, folder)?;
    }
    // Documentation and message catalogues.
    drop(fs::remove_dir_all(unpacked.join("usr/share")));
    place(&unpacked, root)?;
    answers(&root.join(PLACE))
}

/// Whether it runs with these libraries: otherwise only the test would show that one is missing.
fn answers(place: &Path) -> Result<()> {
    let mut loader = process::built(&place.join("usr/lib64/ld-linux-x86-64.so.2"))?;
    loader
        .arg("--library-path")
        .arg(place.join("usr/lib/x86_64-linux-gnu"))
        .arg(place.join("usr/bin/iperf"))
        .arg("-v");
    let shown = process::output(&mut loader)?;
    ensure!(
        is_suitable(&shown),
        "iperf of Debian {RELEASE} answers {shown:?} and not with version 2.2; look at {}",
        place.display()
    );
    Ok(())
}

fn is_suitable(shown: &str) -> bool {
    shown.starts_with("iperf version 2.2.")
}

fn place(unpacked: &Path, root: &Path) -> Result<()> {
    let mut copy = process::program("cp")?;
    process::output(copy.arg("-a").arg(unpacked).arg(root.join(PLACE)))?;
    let starter = root.join("usr/bin/iperf");
    fs::write(&starter, STARTER).with_context(|| format!("writing {}", starter.display()))?;
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} executable", starter.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_is_executable_and_names_what_is_placed() {
        let folder = std::env::temp_dir().join(format!("portolan-iperf-{}", std::process::id()));
        let (unpacked, root) = (folder.join("unpacked"), folder.join("root"));
        let program = "usr/bin/iperf";
        for below in [&unpacked, &root] {
            fs::create_dir_all(below.join("usr/bin")).unwrap();
        }
        fs::create_dir_all(root.join("opt")).unwrap();
        fs::write(unpacked.join(program), "program").unwrap();
        place(&unpacked, &root).unwrap();
        let starter = root.join(program);
        let mode = fs::metadata(&starter).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let text = fs::read_to_string(&starter).unwrap();
        assert!(text.contains(&format!("from=/{PLACE}/usr\n")), "{text}");
        let placed = fs::read_to_string(root.join(PLACE).join(program));
        assert_eq!(placed.unwrap(), "program");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_the_version_with_the_parsed_columns_is_suitable() {
        assert!(is_suitable("iperf version 2.2.1 (4 Nov 2024) pthreads\n"));
        assert!(!is_suitable(
            "iperf version 2.1.8 (12 August 2022) pthreads\n"
        ));
        assert!(!is_suitable(""));
    }
}
