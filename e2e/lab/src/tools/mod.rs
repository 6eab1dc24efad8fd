//! The tools of a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl; kwok, helm
//! and Jaeger; Prometheus.
//!
//! Each tool is taken from the folder in `KUBEBUILDER_ASSETS`, else from PATH, in both cases only with the minor
//! version in `e2e/tools`; else it is built from there once. The chosen tools are linked in one folder, which
//! scenarios get as their `KUBEBUILDER_ASSETS`.

mod go;
mod list;
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
use list::OTHER_KUBERNETES;
pub use list::{
    ALL, Kind, MODULES, Module, NODE_MODULES, Release, Tool, are_of_nodes, are_of_other_kubernetes,
};
use version::Version;

/// The tools linked by [`beside_nodes`].
pub const BESIDE_NODES: [&str; 2] = ["prometheus", "promtool"];
/// The variable with the folder of such programs, also used by Kubernetes developers and scenarios.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Folder of the cache.
const CACHE: &str = "tools";
/// Number of older builds kept: another clone may use other versions.
const KEPT: usize = 20;
/// A younger build may be in progress right now.
const IN_USE: Duration = Duration::from_secs(3600);

/// Names by which scenarios find them.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let built = MODULES.iter().flat_map(|module| module.tools);
    built
        .map(|tool| tool.name)
        .chain(unpacked::ALL.iter().map(|one| one.name))
        .collect()
}

/// The tools for use beside nodes, linked in a folder.
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

/// Finds or builds all tools and returns the folder of their links.
///
/// # Errors
/// Go is missing or too old, or a build or a download failed.
pub fn ensure() -> Result<PathBuf> {
    ensure_for(Release::Usual, ALL)
}

/// The same with the control plane of this Kubernetes release, and without tools that only other scenarios use.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_for(release: Release, words: &[&str]) -> Result<PathBuf> {
    let mut chosen: Vec<(&str, PathBuf)> = Vec::new();
    for module in MODULES.iter().filter(|module| module.serves(words)) {
        let is_of_release = |(other, _): &&(Release, Module)| *other == release;
        let module = match OTHER_KUBERNETES.iter().find(is_of_release) {
            Some((_, other)) if other.requires == module.requires => other,
            _ => module,
        };
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
    linked(&chosen)
}

/// The same with the programs of nodes and Kubernetes' own tests.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_with_nodes() -> Result<PathBuf> {
    let assets = ensure()?;
    let mut chosen: Vec<(&str, PathBuf)> = names()
        .into_iter()
        .filter_map(|name| Some((name, fs::read_link(assets.join(name)).ok()?)))
        .collect();
    for module in NODE_MODULES {
        let tools: Vec<&Tool> = module.tools.iter().collect();
        let folder = Source::read(module)?.tools(&tools)?;
        chosen.extend(tools.iter().map(|tool| (tool.name, folder.join(tool.name))));
    }
    linked(&chosen)
}

/// The folder of the Kubernetes sources of the nodes' programs.
///
/// # Errors
/// They were never downloaded: nothing was built from them on this machine.
pub fn sources_of_kubernetes() -> Result<PathBuf> {
    let module = NODE_MODULES.iter().find(|module| module.folder == "nodes");
    Source::read(module.context("the list of tools has no `nodes`")?)?.sources()
}

/// Links these tools in one folder, and removes older ones.
fn linked(chosen: &[(&str, PathBuf)]) -> Result<PathBuf> {
    let folder = link(&cache::folder(CACHE)?, chosen)?;
    let in_use = |path: &Path, age| {
        let holds_one = chosen.iter().any(|(_, tool)| tool.starts_with(path));
        holds_one || path == folder || age < IN_USE
    };
    cache::keep_newest(&cache::folder(CACHE)?, KEPT, &in_use)?;
    Ok(folder)
}

/// An existing program on this machine, if its version is suitable.
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

/// Absolute paths only, since the folder of the links is elsewhere.
fn assets() -> Option<PathBuf> {
    let folder = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty())?;
    fs::canonicalize(folder).ok()
}

fn in_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let paths: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
    paths.into_iter().filter(|path| path.is_file())
}

/// The version in a program's output; `None` if there is none.
fn ask(path: &Path, words: &[&str]) -> Option<Version> {
    let said = process::output(process::found(path).args(words)).ok()?;
    Version::find(&said)
}

/// A folder with these links. Its name is derived from them, so the same choice has the same folder.
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
    fn a_program_without_version_output_has_no_version() {
        assert_eq!(ask(Path::new("/bin/true"), &["--version-of-nothing"]), None);
        assert_eq!(ask(Path::new("/nonexistent/etcd"), &["--version"]), None);
    }

    #[test]
    fn a_scenario_gets_the_tools_that_it_uses() {
        let of = |words: &[&str]| -> Vec<&str> {
            let used = MODULES.iter().filter(|module| module.serves(words));
            used.map(|module| module.folder).collect()
        };
        assert_eq!(of(&["rules"]), ["etcd", "kubernetes", "helm"]);
        assert!(of(&["rules", "agents"]).contains(&"kwok"));
        assert!(of(&["traces"]).contains(&"jaeger"));
        assert_eq!(of(ALL).len(), MODULES.len());
    }

    #[test]
    fn scenarios_find_eleven_programs_under_eleven_names() {
        let mut all = names();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11, "{all:?}");
    }
}
