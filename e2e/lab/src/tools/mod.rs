//! The tools of a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl; kwok, helm and
//! Jaeger; Prometheus.
//!
//! Each is taken from the folder that `KUBEBUILDER_ASSETS` names, else from PATH, in both cases
//! only if it is of the minor version that `e2e/tools` names, else built from there once. What was
//! chosen is linked in one folder, which scenarios get as their `KUBEBUILDER_ASSETS`.

mod go;
mod unpacked;
pub mod version;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::progress::say;
use crate::{cache, process};
use go::Source;
use version::Version;

/// What [`beside_nodes`] links.
pub const BESIDE_NODES: [&str; 2] = ["prometheus", "promtool"];
/// Where Kubernetes developers keep such programs, and where scenarios look for them.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Folder of the cache.
const CACHE: &str = "tools";
/// Older builds that stay: another clone may be on other versions.
const KEPT: usize = 8;
/// A younger one may be in the making this moment.
const IN_USE: Duration = Duration::from_secs(3600);

/// A Go module in `e2e/tools`.
#[derive(Debug)]
pub struct Module {
    /// Its folder there.
    pub folder: &'static str,
    /// For people.
    pub title: &'static str,
    /// The module whose version is that of its programs.
    pub requires: &'static str,
    /// The package whose variables hold the version that its programs tell, if they are not told.
    pub version_package: Option<&'static str>,
    /// Its programs.
    pub tools: &'static [Tool],
}

/// A program of a module.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its package.
    pub package: &'static str,
    /// How it is asked for its version.
    pub version: &'static [&'static str],
    /// How long its build takes the first time, for people.
    pub takes: &'static str,
}

/// All of them.
pub const MODULES: &[Module] = &[
    Module {
        folder: "etcd",
        title: "etcd",
        requires: "go.etcd.io/etcd/server/v3",
        version_package: None,
        tools: &[Tool {
            name: "etcd",
            package: "go.etcd.io/etcd/server/v3",
            version: &["--version"],
            takes: "about half a minute on 2 cores",
        }],
    },
    Module {
        folder: "kubernetes",
        title: "Kubernetes",
        requires: "k8s.io/kubernetes",
        version_package: Some("k8s.io/component-base/version"),
        tools: &[
            Tool {
                name: "kube-apiserver",
                package: "k8s.io/kubernetes/cmd/kube-apiserver",
                version: &["--version"],
                takes: "about three minutes on 2 cores",
            },
            Tool {
                name: "kube-controller-manager",
                package: "k8s.io/kubernetes/cmd/kube-controller-manager",
                version: &["--version"],
                takes: "about one minute on 2 cores",
            },
            Tool {
                name: "kubectl",
                package: "k8s.io/kubernetes/cmd/kubectl",
                version: &["version", "--client"],
                takes: "below a minute on 2 cores",
            },
            Tool {
                name: "kube-scheduler",
                package: "k8s.io/kubernetes/cmd/kube-scheduler",
                version: &["--version"],
                takes: "below a minute on 2 cores",
            },
        ],
    },
    Module {
        folder: "kwok",
        title: "kwok",
        requires: "sigs.k8s.io/kwok",
        version_package: None,
        tools: &[Tool {
            name: "kwok",
            package: "sigs.k8s.io/kwok/cmd/kwok",
            version: &["--version"],
            takes: "about a minute on 2 cores",
        }],
    },
    Module {
        folder: "helm",
        title: "helm",
        requires: "helm.sh/helm/v4",
        version_package: None,
        tools: &[Tool {
            name: "helm",
            package: "helm.sh/helm/v4/cmd/helm",
            version: &["version", "--short"],
            takes: "about two minutes on 2 cores",
        }],
    },
    Module {
        folder: "jaeger",
        title: "Jaeger",
        requires: "github.com/jaegertracing/jaeger",
        version_package: None,
        tools: &[Tool {
            name: "jaeger-all-in-one",
            package: "github.com/jaegertracing/jaeger/cmd/all-in-one",
            version: &["version"],
            takes: "about two minutes on 2 cores",
        }],
    },
];

/// Names under which scenarios find them.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let built = MODULES.iter().flat_map(|module| module.tools);
    built
        .map(|tool| tool.name)
        .chain(unpacked::ALL.iter().map(|one| one.name))
        .collect()
}

/// Those of them that look at nodes from within, in a folder that links them.
///
/// # Errors
/// As [`ensure`].
pub fn beside_nodes() -> Result<PathBuf> {
    let given = unpacked::ALL
        .iter()
        .filter(|one| BESIDE_NODES.contains(&one.name));
    let chosen = given.map(|one| Ok((one.name, one.ensure()?)));
    link(&cache::folder(CACHE)?, &chosen.collect::<Result<Vec<_>>>()?)
}

/// Finds or builds all of them and returns the folder that links them.
///
/// # Errors
/// There is no Go that is new enough, or a build or a download failed.
pub fn ensure() -> Result<PathBuf> {
    let mut chosen: Vec<(&str, PathBuf)> = Vec::new();
    for module in MODULES {
        let source = Source::read(module)?;
        let mut missing = Vec::new();
        for tool in module.tools {
            match find(tool, &source.version) {
                Some(path) => chosen.push((tool.name, path)),
                None => missing.push(tool),
            }
        }
        if !missing.is_empty() {
            let folder = source.tools(&missing)?;
            let built = missing
                .iter()
                .map(|tool| (tool.name, folder.join(tool.name)));
            chosen.extend(built);
        }
    }
    for one in unpacked::ALL {
        chosen.push((one.name, one.ensure()?));
    }
    let folder = link(&cache::folder(CACHE)?, &chosen)?;
    let in_use = |path: &Path, age| {
        let holds_one = chosen.iter().any(|(_, tool)| tool.starts_with(path));
        holds_one || path == folder || age < IN_USE
    };
    cache::keep_newest(&cache::folder(CACHE)?, KEPT, &in_use)?;
    Ok(folder)
}

/// A finished one on this machine, if its version serves.
fn find(tool: &Tool, wanted: &Version) -> Option<PathBuf> {
    let assets = assets().map(|folder| folder.join(tool.name));
    if let Some(path) = assets.filter(|path| path.is_file()) {
        match ask(&path, tool.version) {
            Some(version) if version.serves_as(wanted) => return Some(path),
            other => say(&format!(
                "{} in {ASSETS} is {}; {}.{} is needed, so it is not used",
                tool.name,
                other.map_or("of no released version".to_owned(), |v| v.to_string()),
                wanted.major,
                wanted.minor
            )),
        }
    }
    in_path(tool.name)
        .find(|path| ask(path, tool.version).is_some_and(|version| version.serves_as(wanted)))
}

/// Absolute paths only: the folder that links them is elsewhere.
fn assets() -> Option<PathBuf> {
    let folder = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty())?;
    fs::canonicalize(folder).ok()
}

fn in_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect();
    let name = name.to_owned();
    folders
        .into_iter()
        .map(move |folder| folder.join(&name))
        .filter(|path| path.is_file())
}

/// What a program says of its version; one that says nothing useful has none.
fn ask(path: &Path, words: &[&str]) -> Option<Version> {
    let said = process::output(process::found(path).args(words)).ok()?;
    Version::find(&said)
}

/// A folder with these links. Its name follows from them, so the same choice has the same folder.
fn link(cache: &Path, chosen: &[(&str, PathBuf)]) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    chosen.hash(&mut hasher);
    let folder = cache.join(format!("assets-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for (name, path) in chosen {
        let link = folder.join(name);
        match symlink(path, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("linking {}", link.display()));
            }
            _ => {}
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_choice_is_linked_in_the_same_folder_and_another_in_another() {
        let cache = std::env::temp_dir().join(format!("portolan-links-{}", std::process::id()));
        let etcd = |path: &str| [("etcd", PathBuf::from(path))];
        let first = link(&cache, &etcd("/a/etcd")).unwrap();
        assert_eq!(link(&cache, &etcd("/a/etcd")).unwrap(), first);
        assert_ne!(link(&cache, &etcd("/b/etcd")).unwrap(), first);
        let target = fs::read_link(first.join("etcd")).unwrap();
        assert_eq!(target, Path::new("/a/etcd"));
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn a_program_that_tells_no_version_is_of_none() {
        assert_eq!(ask(Path::new("/bin/true"), &["--version-of-nothing"]), None);
        assert_eq!(ask(Path::new("/nonexistent/etcd"), &["--version"]), None);
    }

    #[test]
    fn scenarios_find_eleven_programs_under_eleven_names() {
        let mut all = names();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11, "{all:?}");
    }
}
