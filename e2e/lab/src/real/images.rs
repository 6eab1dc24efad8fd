//! The container images for tests: agnhost and pause.
//!
//! Touches: the cache, `cc`, `buildah`. Nothing is downloaded from a registry: both are built from the sources that
//! the tools were built from, and from the packages of the node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::system::System;
use crate::images::buildah::Store;
use crate::{process, tools};

/// Images in archives.
pub(super) struct Images {
    pub(super) archives: Vec<PathBuf>,
    /// Image names, with other names that the tests use for the same image.
    pub(super) tags: Vec<(String, String)>,
}

/// Builds them under the names that the tests of this version use.
///
/// # Errors
/// A build failed, or the tests use no such image.
pub(super) fn make(system: &System, assets: &Path, folder: &Path) -> Result<Images> {
    let store = Store::make()?;
    let wanted = Names::read(assets)?;
    let sources = tools::sources_of_kubernetes()?;
    let pause = folder.join("pause");
    fs::create_dir_all(&pause)?;
    let mut compile = process::program("cc")?;
    compile
        .args(["-Os", "-static", "-o"])
        .arg(pause.join("pause"))
        .arg(sources.join("build/pause/linux/pause.c"));
    process::output(&mut compile).context("compiling the program that holds a pod's namespaces")?;
    let root = agnhost(system, assets, &sources, folder)?;
    let mut archives = Vec::new();
    for (name, contents, settings) in [
        (
            &wanted.pause,
            &pause,
            &[("--entrypoint", "[\"/pause\"]")][..],
        ),
        (
            &wanted.agnhost,
            &root,
            &[("--entrypoint", "[\"/agnhost\"]"), ("--cmd", "pause")][..],
        ),
    ] {
        let archive = folder.join(format!("image-{}.tar", archives.len()));
        store.build_for_tests(contents, settings, &archive, name)?;
        archives.push(archive);
    }
    for used in [&pause, &root] {
        fs::remove_dir_all(used).with_context(|| format!("removing {}", used.display()))?;
    }
    let others = wanted.same.into_iter();
    let tags = others.map(|other| (wanted.agnhost.clone(), other));
    Ok(Images {
        archives,
        tags: tags.collect(),
    })
}

/// The contents of agnhost: its program, CoreDNS, and the Debian of the nodes without what only nodes need.
fn agnhost(system: &System, assets: &Path, sources: &Path, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("agnhost");
    let mut copy = process::program("cp")?;
    process::output(copy.arg("-a").arg(system.root()).arg(&root))?;
    for unneeded in [
        "usr/lib/modules",
        "usr/local/bin",
        "usr/local/sbin",
        "opt/cni",
    ] {
        drop(fs::remove_dir_all(root.join(unneeded)));
    }
    fs::create_dir_all(root.join("uploads"))?;
    for program in ["agnhost", "coredns"] {
        fs::copy(assets.join(program), root.join(program))
            .with_context(|| format!("copying {program}"))?;
    }
    symlink("agnhost", root.join("agnhost-2"))?;
    for name in ["localhost.crt", "localhost.key"] {
        let source = sources.join("test/images/agnhost/porter").join(name);
        fs::copy(&source, root.join(name))
            .with_context(|| format!("copying {}", source.display()))?;
    }
    Ok(root)
}

/// The tests' names of the images.
struct Names {
    agnhost: String,
    /// Other images that it can replace.
    same: Vec<String>,
    pause: String,
}

impl Names {
    fn read(assets: &Path) -> Result<Self> {
        let mut list = process::built(&assets.join("e2e.test"))?;
        Self::of(&process::output(list.arg("--list-images"))?)
    }

    fn of(list: &str) -> Result<Self> {
        let find = |part: &str| {
            let lines = list.lines().map(str::trim);
            lines
                .filter(|line| line.contains(part))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut agnhost = find("/e2e-test-images/agnhost:");
        let pause = find("/pause:").pop();
        let (Some(first), Some(pause)) = (agnhost.pop(), pause) else {
            bail!("`e2e.test --list-images` names no agnhost or no pause image");
        };
        // Tests start Debian programs in these, and this image contains them all.
        agnhost.extend(
            [
                "/distroless-iptables:",
                "/e2e-test-images/busybox:",
                "/e2e-test-images/glibc-dns-testing:",
            ]
            .into_iter()
            .flat_map(find),
        );
        Ok(Self {
            agnhost: first,
            same: agnhost,
            pause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_the_names_that_the_tests_ask_for() {
        let list = "x.example/private/agnhost:1\nr.example/e2e-test-images/agnhost:2.5\n\
                    r.example/pause:3.10\nr.example/e2e-test-images/agnhost:2.6\n";
        let names = Names::of(list).unwrap();
        assert_eq!(names.agnhost, "r.example/e2e-test-images/agnhost:2.6");
        assert_eq!(names.same, ["r.example/e2e-test-images/agnhost:2.5"]);
        assert_eq!(names.pause, "r.example/pause:3.10");
        let error = Names::of("r.example/other:1\n").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("agnhost"), "{error}");
    }
}
