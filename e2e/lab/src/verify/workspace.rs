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
    /// Names by folder.
    folders: BTreeMap<PathBuf, String>,
}

/// One package.
#[derive(Debug)]
struct Package {
    /// Its folder, relative to the workspace.
    folder: PathBuf,
    /// Packages of the workspace that its library and programs depend on.
    needs: BTreeSet<String>,
    /// Further packages that its tests depend on.
    tests_need: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
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
        let package = |package: MetadataPackage| {
            let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
            let folder = folder.strip_prefix(&metadata.workspace_root)?.to_owned();
            let (mut needs, mut tests_need) = (BTreeSet::new(), BTreeSet::new());
            for dependency in package.dependencies {
                match (dependency.path, dependency.kind.as_deref()) {
                    (None, _) => false,
                    (Some(_), Some("dev")) => tests_need.insert(dependency.name),
                    (Some(_), _) => needs.insert(dependency.name),
                };
            }
            let read = Package {
                folder,
                needs,
                tests_need,
            };
            Ok((package.name, read))
        };
        let packages = metadata.packages.into_iter().map(package);
        let packages: BTreeMap<String, Package> = packages.collect::<Result<_>>()?;
        let by_folder = packages
            .iter()
            .map(|(name, package)| (package.folder.clone(), name.clone()));
        Ok(Self {
            folders: by_folder.collect(),
            packages,
        })
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
                todo.extend(package.needs.iter().map(String::as_str));
            }
        }
        all
    }

    /// The same for the tests of a package.
    pub(super) fn tests_built_from(&self, package: &str) -> BTreeSet<&str> {
        let tests = self
            .packages
            .get(package)
            .map(|package| &package.tests_need);
        let mut roots = vec![package];
        roots.extend(tests.into_iter().flatten().map(String::as_str));
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
