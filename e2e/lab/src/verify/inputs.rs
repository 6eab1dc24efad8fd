//! The inputs of a unit's result, and the key derived from them.
//!
//! Rule: counting an irrelevant input only costs a run; a relevant one is never omitted. Files are included by
//! folder, and excluded by name with the reason beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};

use super::lab;
use super::machine::Machine;
use super::scenarios::{self, Uses};
use super::workspace::Workspace;
use crate::tiers::{DOCUMENTS, Targets, Work};
use crate::{fuzz, tools};

/// The programs that scenarios and demos start.
const PROGRAMS: &[&str] = &["portolan-controller", "portolan-agent", "portolan-e2e"];
/// Inputs of every build.
const EVERY_BUILD: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
const LAB_PACKAGE: &str = "portolan-lab";
/// What the fuzzer runs.
const FUZZ_TARGETS: &str = "portolan-fuzz-targets";
/// The fuzzer.
const FUZZ: &str = "e2e/fuzz";
/// The tests that try orders of threads, and a folder of a file that they include.
const SCHEDULES: &[&str] = &["e2e/schedules", "controller/src/agent_registry"];
/// Sources of scenarios and demos outside the packages.
const CHART: &str = "charts";
/// Modules of tools.
const TOOLS: &str = "e2e/tools";
/// Inputs of machines with kubelets only.
const REAL: [&str; 2] = ["e2e/real", "e2e/src/real"];

/// Files of a clone by their path below it.
pub(super) type Files = BTreeMap<PathBuf, File>;

/// The relevant properties of a file.
#[derive(Debug, Clone)]
pub(super) struct File {
    /// Hash of its content.
    pub(super) hash: u64,
    /// Relative paths in string literals: files that it may include or read.
    pub(super) mentions: Vec<String>,
    /// Names of modules that it uses, for code of scenarios.
    pub(super) uses: Uses,
}

impl File {
    /// A file with this content.
    pub(super) fn new(path: &Path, content: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let text = match path.extension() {
            Some(end) if end == "rs" => String::from_utf8_lossy(content),
            _ => "".into(),
        };
        let is_scenario = path.starts_with(scenarios::SOURCES);
        Self {
            hash: hasher.finish(),
            mentions: mentions(&text),
            uses: if is_scenario {
                Uses::read(&text)
            } else {
                Uses::default()
            },
        }
    }
}

/// String literals that lead out of a folder. If no file matches, a literal refers to a whole folder, but only if it
/// is joined to a path; otherwise it is not a path.
fn mentions(code: &str) -> Vec<String> {
    let mut all = BTreeSet::new();
    let mut before = "";
    for text in code.split('"') {
        let mut parts = Path::new(text).components();
        let leads_out = parts.next() == Some(Component::ParentDir) && !text.contains(['\n', ' ']);
        let names_something = parts.any(|part| matches!(part, Component::Normal(_)));
        if leads_out && (names_something || before.ends_with("join(")) {
            all.insert(text.to_owned());
        }
        before = text;
    }
    all.into_iter().collect()
}

/// How far paths in code are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// To files, which a compiler may include.
    Included,
    /// To folders too, which a program may read.
    Read,
}

/// All inputs of results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) files: &'a Files,
    pub(super) workspace: &'a Workspace,
    pub(super) machine: &'a Machine,
    /// Whether long forms run.
    pub(super) long: bool,
}

impl Inputs<'_> {
    /// The key of a unit, unchanged as long as none of its inputs has changed.
    pub(super) fn key(&self, tier: &str, work: Work) -> String {
        let mut hasher = DefaultHasher::new();
        (tier, format!("{work:?}")).hash(&mut hasher);
        (self.long && work.has_long_form()).hash(&mut hasher);
        for path in self.files_of(work) {
            let hash = self.files.get(path).map(|file| file.hash);
            (path, hash).hash(&mut hasher);
        }
        for part in self.machine.parts_for(work) {
            part.hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// The input files of a unit.
    pub(super) fn files_of(&self, work: Work) -> BTreeSet<&Path> {
        let mut found = match work {
            Work::Check(name, _) => self.checked(name),
            Work::Tests(package, targets) | Work::IpvsTest(package, targets, _) => {
                self.tests(package, targets)
            }
            Work::Examples(packages) => self.tests_of(packages, Targets::Library),
            Work::ShippedTests(packages) => self.tests_of(packages, Targets::All),
            Work::Mutations(subject) => {
                let mut found = self.tests(subject.facts().package, Targets::All);
                found.extend(self.below(subject.facts().table));
                found
            }
            Work::Fuzz => {
                let mut found = self.tests(FUZZ_TARGETS, Targets::All);
                let folders = fuzz::seeds::folders().chain([FUZZ]);
                found.extend(folders.flat_map(|path| self.below(path)));
                found
            }
            Work::Schedules => {
                let mut found = self.built(&["portolan-plan", "portolan-proto"]);
                found.extend(SCHEDULES.iter().flat_map(|path| self.below(path)));
                self.add_mentioned(&mut found, Reach::Included);
                found
            }
            Work::Images(_) => {
                let mut found = self.built(&["portolan-controller", "portolan-agent"]);
                found.extend(self.chart());
                found.extend(self.below("LICENSE"));
                found
            }
            _ => self.programs(work),
        };
        found.extend(EVERY_BUILD.iter().flat_map(|path| self.below(path)));
        found.extend(self.lab(work));
        found
    }

    /// The inputs of rustfmt, clippy and rustdoc: all code, and the files it includes.
    fn checked(&self, name: &str) -> BTreeSet<&Path> {
        let is_code = |path: &&Path| {
            let end = path.extension();
            end.is_some_and(|end| end == "rs" || end == "proto")
        };
        let code = self.below("").filter(is_code);
        let settings = match name {
            "rustfmt" => return code.chain(self.below("rustfmt.toml")).collect(),
            _ => ["clippy.toml", "Cargo.toml"],
        };
        let is_setting = |path: &&Path| {
            path.file_name()
                .is_some_and(|name| settings.iter().any(|setting| name == *setting))
        };
        let settings = self.below("").filter(is_setting);
        let mut found: BTreeSet<&Path> = code.chain(settings).collect();
        self.add_mentioned(&mut found, Reach::Included);
        found
    }

    fn tests(&self, package: &str, targets: Targets) -> BTreeSet<&Path> {
        if package == LAB_PACKAGE {
            // Its tests read manifests, tables and tests of the whole project.
            return self.below("").filter(|path| !is_prose(path)).collect();
        }
        let mut found = BTreeSet::new();
        for name in self.workspace.tests_built_from(package) {
            found.extend(self.package(name));
        }
        let folder = self.workspace.folder(package).unwrap_or(Path::new(""));
        if targets != Targets::Library {
            let own = self.below(folder.join("tests"));
            found.extend(own.filter(|path| match targets {
                Targets::Named(tests) if package == "portolan-e2e" => {
                    tests.iter().any(|test| is_part_of(path, folder, test))
                }
                _ => true,
            }));
        }
        self.add_mentioned(&mut found, Reach::Read);
        if package == "portolan-e2e" && targets == DOCUMENTS {
            // They compare words, names and links of all files.
            found.extend(self.below(""));
        }
        found
    }

    /// The same for several packages.
    fn tests_of(&self, packages: &[&str], targets: Targets) -> BTreeSet<&Path> {
        let tests = |package: &&str| self.tests(package, targets);
        packages.iter().flat_map(tests).collect()
    }

    /// The build inputs of these packages, without their tests.
    fn built(&self, packages: &[&str]) -> BTreeSet<&Path> {
        let names = self.workspace.built_from(packages).into_iter();
        let mut found = names.flat_map(|name| self.package(name)).collect();
        self.add_mentioned(&mut found, Reach::Read);
        found
    }

    /// The chart without its README, which is not executed.
    fn chart(&self) -> impl Iterator<Item = &Path> {
        self.below(CHART).filter(|path| !is_prose(path))
    }

    /// The programs of scenarios and demos, and the files they read.
    fn programs(&self, work: Work) -> BTreeSet<&Path> {
        let mut found = self.built(PROGRAMS);
        found.extend(self.chart());
        if work.needs_api_server() {
            let is_real = work.is_real();
            let is_other = matches!(work, Work::Kubernetes(_));
            found.extend(self.below(TOOLS).filter(|path| {
                let module = path.strip_prefix(TOOLS).unwrap_or(path).iter().next();
                let module = module.unwrap_or_default().to_string_lossy();
                (is_real || !tools::are_of_nodes(&module))
                    && (is_other || !tools::are_of_other_kubernetes(&module))
            }));
        }
        if !work.is_real() {
            // Only for nodes with kubelets.
            found.retain(|path| !REAL.iter().any(|part| path.starts_with(part)));
        }
        if let Work::Scenario(scenario) | Work::Cluster(scenario) = work {
            let others = scenarios::of_others(self.files, scenario.name);
            found.retain(|path| !others.contains(*path));
        }
        found
    }

    /// The files of a package, without its tests and without prose that no code includes.
    fn package(&self, name: &str) -> impl Iterator<Item = &Path> {
        let folder = self.workspace.folder(name).unwrap_or(Path::new("none"));
        let beside: &[&str] = match name {
            // Measurements, tables of the lab, Go modules and other workspaces are not part of a build.
            "portolan-e2e" => &[
                "tests",
                "benchmarks",
                "fuzz",
                "schedules",
                "tools",
                "semantics.yaml",
            ],
            _ => &["tests", "benches"],
        };
        let own = self.below(folder).filter(move |path| {
            let is_own = self.workspace.owner(path) == Some(name);
            let is_beside = first_below(path, folder)
                .is_some_and(|first| beside.iter().any(|name| first == *name));
            is_own && !is_beside && !is_prose(path)
        });
        own.collect::<Vec<_>>().into_iter()
    }

    /// The parts of the lab that run a unit.
    fn lab(&self, work: Work) -> impl Iterator<Item = &Path> {
        self.below(lab::FOLDER)
            .filter(move |path| lab::runs(path, work))
    }

    /// Adds the files that the code in a set includes or reads from elsewhere.
    fn add_mentioned<'s>(&'s self, found: &mut BTreeSet<&'s Path>, reach: Reach) {
        let mut todo: Vec<&Path> = found.iter().copied().collect();
        while let Some(path) = todo.pop() {
            for target in self.mentioned(path, reach) {
                if found.insert(target) {
                    todo.push(target);
                }
            }
        }
    }

    /// A path is relative to the file, as in `include_str!`, or to the folder of its package.
    fn mentioned(&self, path: &Path, reach: Reach) -> Vec<&Path> {
        let owner = self
            .workspace
            .owner(path)
            .and_then(|name| self.workspace.folder(name));
        let folders: Vec<&Path> = path.parent().into_iter().chain(owner).collect();
        let file = self.files.get(path);
        let texts = file.map_or(&[][..], |file| &file.mentions);
        let targets = texts.iter().flat_map(|text| {
            let target = |folder: &&Path| normal(&folder.join(text));
            folders.iter().filter_map(target).collect::<Vec<_>>()
        });
        let found = targets.flat_map(|target| {
            let exact = self.files.get_key_value(&target);
            let exact = exact.map(|(path, _)| path.as_path()).into_iter();
            if reach == Reach::Included {
                return exact.collect();
            }
            exact
                .chain(self.below(&target).filter(|path| !is_prose(path)))
                .collect::<Vec<_>>()
        });
        found.collect()
    }

    /// A file, or all files below a folder; the empty path is the whole clone.
    fn below(&self, path: impl Into<PathBuf>) -> impl Iterator<Item = &Path> {
        let path: PathBuf = path.into();
        let from = self.files.range(path.clone()..);
        from.map(|(file, _)| file.as_path())
            .take_while(move |file| file.starts_with(&path))
    }
}

/// The first part of a path below a folder.
fn first_below<'p>(path: &'p Path, folder: &Path) -> Option<&'p OsStr> {
    path.strip_prefix(folder).ok()?.iter().next()
}

/// Whether a file below `tests/` belongs to an integration test, or is shared.
fn is_part_of(path: &Path, folder: &Path, test: &str) -> bool {
    let first = first_below(path, &folder.join("tests"));
    let stem = first.and_then(|first| Path::new(first).file_stem());
    stem.is_some_and(|stem| stem == test)
}

/// Documents. Those that code includes are found by the paths in the code.
fn is_prose(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "md")
        || path.starts_with("docs")
        || path == Path::new("LICENSE")
}

/// Resolves `.` and `..`; `None` if it leads out of the clone.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if !normal.pop() => return None,
            _ => {}
        }
    }
    Some(normal)
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
