//! The container images for tests: pause, agnhost, the server of a conntrack test, and CoreDNS.
//!
//! Touches: the cache, `cc`, `buildah`. Nothing is downloaded from a registry: they are built from the sources that
//! the tools were built from, and from the packages of the node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::system::System;
use crate::images::buildah::Store;
use crate::{process, tools};

/// The built tools in these images.
pub(super) const PROGRAMS: [&str; 3] = ["agnhost", CONNTRACK_SERVER, "coredns"];
/// Sends packets that connection tracking regards as invalid.
const CONNTRACK_SERVER: &str = "regression-issue-74839";
/// The image of the cluster's DNS in `e2e/real/coredns.yaml`; no such registry exists.
const COREDNS: &str = "lab.example/coredns:lab";

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
    let single = |program: &str| single(program, assets, folder);
    let mut archives = Vec::new();
    for (name, root, program, arguments) in [
        (
            wanted.pause.as_str(),
            pause(&sources, folder)?,
            "pause",
            None,
        ),
        (
            wanted.agnhost.as_str(),
            agnhost(system, assets, &sources, folder)?,
            "agnhost",
            Some("pause"),
        ),
        (
            wanted.conntrack.as_str(),
            single(CONNTRACK_SERVER)?,
            CONNTRACK_SERVER,
            None,
        ),
        (COREDNS, single("coredns")?, "coredns", None),
    ] {
        let archive = folder.join(format!("image-{}.tar", archives.len()));
        let entry = entry(program);
        let mut settings = vec![("--entrypoint", &*entry)];
        settings.extend(arguments.map(|text| ("--cmd", text)));
        store.build_for_tests(&root, &settings, &archive, name)?;
        archives.push(archive);
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    let others = wanted.same.into_iter();
    let tags = others.map(|other| (wanted.agnhost.clone(), other));
    Ok(Images {
        archives,
        tags: tags.collect(),
    })
}

/// The entry point of an image with this program at its root, as JSON.
fn entry(program: &str) -> String {
    format!("[\"/{program}\"]")
}

/// The contents of an image with nothing but this tool.
fn single(program: &str, assets: &Path, folder: &Path) -> Result<PathBuf> {
    let root = empty(folder, program)?;
    let copied = fs::copy(assets.join(program), root.join(program));
    copied.with_context(|| format!("copying {program}"))?;
    Ok(root)
}

/// A new folder for the contents of an image.
fn empty(folder: &Path, name: &str) -> Result<PathBuf> {
    let root = folder.join(format!("contents-{name}"));
    fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
    Ok(root)
}

/// The contents of pause: its program.
fn pause(sources: &Path, folder: &Path) -> Result<PathBuf> {
    let root = empty(folder, "pause")?;
    let mut compile = process::program("cc")?;
    compile
        .args(["-Os", "-static", "-o"])
        .arg(root.join("pause"))
        .arg(sources.join("build/pause/linux/pause.c"));
    process::output(&mut compile).context("compiling the program that holds a pod's namespaces")?;
    Ok(root)
}

/// The contents of agnhost: its program, CoreDNS, and the Debian of the nodes without what only nodes need.
fn agnhost(system: &System, assets: &Path, sources: &Path, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("contents-agnhost");
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
    conntrack: String,
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
        let conntrack = find(&format!("/e2e-test-images/{CONNTRACK_SERVER}:")).pop();
        let pause = find("/pause:").pop();
        let (Some(first), Some(conntrack), Some(pause)) = (agnhost.pop(), conntrack, pause) else {
            bail!("`e2e.test --list-images` names no image agnhost, {CONNTRACK_SERVER} or pause");
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
            conntrack,
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
                    r.example/pause:3.10\nr.example/e2e-test-images/agnhost:2.6\n\
                    r.example/e2e-test-images/regression-issue-74839:1.4\n";
        let names = Names::of(list).unwrap();
        assert_eq!(names.agnhost, "r.example/e2e-test-images/agnhost:2.6");
        assert_eq!(names.same, ["r.example/e2e-test-images/agnhost:2.5"]);
        assert_eq!(
            names.conntrack,
            "r.example/e2e-test-images/regression-issue-74839:1.4"
        );
        assert_eq!(names.pause, "r.example/pause:3.10");
        let error = Names::of("r.example/other:1\n").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("agnhost"), "{error}");
        let (list, _) = list.split_once("r.example/e2e-test-images/reg").unwrap();
        let error = Names::of(list).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(CONNTRACK_SERVER), "{error}");
    }

    #[test]
    fn the_clusters_dns_runs_this_image_and_its_tools_are_built() {
        let objects = include_str!("../../../real/coredns.yaml");
        assert!(objects.contains(&format!("image: {COREDNS}\n")));
        let tools = tools::NODE_MODULES.iter().flat_map(|module| module.tools);
        let built: Vec<&str> = tools.map(|tool| tool.name).collect();
        assert!(
            PROGRAMS.iter().all(|name| built.contains(name)),
            "{built:?}"
        );
        assert_eq!(entry("coredns"), "[\"/coredns\"]");
    }

    #[test]
    fn every_plugin_of_the_clusters_dns_and_of_tests_is_compiled_in() {
        let program = include_str!("../../../tools/coredns/main.go");
        let objects = include_str!("../../../real/coredns.yaml");
        let (_, corefile) = objects.split_once("Corefile: |\n").unwrap();
        let (corefile, _) = corefile.split_once("\n---\n").unwrap();
        // Directives are two steps deep; deeper lines are their options.
        let directives = corefile.lines().filter_map(|line| {
            let line = line.strip_prefix("        ")?;
            let word = line.split(' ').next()?;
            (!word.is_empty() && word != "}").then_some(word)
        });
        let directives: Vec<&str> = directives.collect();
        assert!(directives.contains(&"kubernetes") && directives.contains(&"reload"));
        // The nameserver outside of the cluster, and the Corefiles that tests bring.
        let others = [
            "file",
            "forward",
            "health",
            "hosts",
            "kubernetes",
            "log",
            "ready",
        ];
        for directive in directives.iter().chain(&others) {
            // One has a package of another name.
            let package = directive.replace("prometheus", "metrics");
            for part in [format!("{directive:?},"), format!("/plugin/{package}\"\n")] {
                assert!(program.contains(&part), "{part}");
            }
        }
    }
}
