//! The packages of the workspace and their dependencies, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// The packages by name.
#[derive(Debug)]
pub(super) struct Workspace {
    packages: BTreeMap<String, Package>,
    /// Names by folder, relative to the workspace.
    folders: BTreeMap<PathBuf, String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    /// Its folder, relative to the workspace.
    #[serde(skip)]
    folder: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    /// Set for packages of the workspace.
    path: Option<PathBuf>,
}

impl Package {
    /// Packages of the workspace that it depends on: for its tests only, or for everything else.
    fn needs(&self, for_tests: bool) -> impl Iterator<Item = &str> {
        let dependencies = self.dependencies.iter().filter(move |dependency| {
            let is_for_tests = dependency.kind.as_deref() == Some("dev");
            dependency.path.is_some() && is_for_tests == for_tests
        });
        dependencies.map(|dependency| &*dependency.name)
    }
}

impl Workspace {
    /// Queries cargo about the workspace in a folder.
    ///
    /// # Errors
    /// A manifest is invalid; cargo's message has the place.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut command = process::cargo()?;
        command
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root);
        Self::parse(&process::output(&mut command)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let metadata: Metadata =
            serde_json::from_str(text).context("reading what `cargo metadata` prints")?;
        let (mut packages, mut folders) = (BTreeMap::new(), BTreeMap::new());
        for mut package in metadata.packages {
            let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
            package.folder = folder.strip_prefix(&metadata.workspace_root)?.to_owned();
            folders.insert(package.folder.clone(), package.name.clone());
            packages.insert(package.name.clone(), package);
        }
        Ok(Self { packages, folders })
    }

    /// The folder of a package, relative to the workspace.
    pub(super) fn folder(&self, package: &str) -> Option<&Path> {
        Some(&self.packages.get(package)?.folder)
    }

    /// The package of a file: the one in the innermost folder.
    pub(super) fn owner(&self, file: &Path) -> Option<&str> {
        file.ancestors()
            .find_map(|folder| self.folders.get(folder))
            .map(String::as_str)
    }

    /// These packages and all packages of the workspace that they depend on.
    pub(super) fn built_from(&self, packages: &[&str]) -> BTreeSet<&str> {
        let mut all = BTreeSet::new();
        let mut todo: Vec<&str> = packages.to_vec();
        while let Some(name) = todo.pop() {
            let Some((name, package)) = self.packages.get_key_value(name) else {
                continue;
            };
            if all.insert(name.as_str()) {
                todo.extend(package.needs(false));
            }
        }
        all
    }

    /// The same for the tests of a package.
    pub(super) fn tests_built_from(&self, package: &str) -> BTreeSet<&str> {
        let tests = self.packages.get(package).into_iter();
        let mut roots = vec![package];
        roots.extend(tests.flat_map(|package| package.needs(true)));
        self.built_from(&roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_built_from_its_dependencies_and_its_tests_from_more() {
        let text = r#"{"workspace_root": "/w", "packages": [
            {"name": "plan", "manifest_path": "/w/proto/plan/Cargo.toml", "dependencies": [
                {"name": "serde", "kind": null},
                {"name": "plan", "kind": "dev", "path": "/w/proto/plan"}]},
            {"name": "proto", "manifest_path": "/w/proto/Cargo.toml", "dependencies": [
                {"name": "plan", "kind": null, "path": "/w/proto/plan"}]},
            {"name": "agent", "manifest_path": "/w/agent/Cargo.toml", "dependencies": [
                {"name": "proto", "kind": null, "path": "/w/proto"},
                {"name": "fake", "kind": "dev", "path": "/w/fake"}]},
            {"name": "fake", "manifest_path": "/w/fake/Cargo.toml", "dependencies": []}]}"#;
        let workspace = Workspace::parse(text).unwrap();
        let names = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names(workspace.built_from(&["agent"])), "agent plan proto");
        assert_eq!(
            names(workspace.tests_built_from("agent")),
            "agent fake plan proto"
        );
        assert_eq!(
            workspace.owner(Path::new("proto/plan/src/a.rs")),
            Some("plan")
        );
        assert_eq!(workspace.owner(Path::new("proto/src/a.rs")), Some("proto"));
        assert_eq!(workspace.owner(Path::new("README.md")), None);
    }
}
