//! The manifests enforce the architecture: which crate may depend on which. Reads `cargo tree` and
//! the manifests; touches nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use portolan_e2e::program::Program;
use toml::Table;

/// Crates that must not be dependencies of a crate in normal builds; `*` at the end matches any suffix.
/// Features that only tests enable do not count. A crate of the workspace without a row fails the test.
#[rustfmt::skip]
const NEVER: &[(&str, &[&str])] = &[
    ("portolan-plan",       &[KUBE, K8S, WIRE, GRPC, ASYNC, NETLINK, CLOCK, CHANCE, "portolan-*"]),
    ("portolan-metrics",    &[KUBE, K8S, WIRE, GRPC, ASYNC, NETLINK, SOCKETS, CLOCK, CHANCE, "portolan-*"]),
    ("portolan-proto",      &[KUBE, K8S, NETLINK, "portolan-planner", "portolan-crds", "portolan-reconcile"]),
    ("portolan-crds",       &[ASYNC, GRPC, NETLINK, "portolan-*"]),
    ("portolan-rollout-policy",    &[KUBE, K8S, WIRE, GRPC, ASYNC, NETLINK, SOCKETS, CLOCK, CHANCE, "portolan-*"]),
    ("portolan-planner",    &[KUBE, K8S, GRPC, ASYNC, NETLINK, CLOCK, CHANCE, "portolan-proto", "portolan-crds"]),
    ("portolan-controller", &[NETLINK, "ipvs-rs", "ipset-rs", "nft-rs", "portolan-agent", "portolan-reconcile"]),
    ("netlink-blocking",    &[KUBE, K8S, GRPC, ASYNC, WIRE, "portolan-*", "ipvs-rs", "ipset-rs", "nft-rs"]),
    ("ipvs-rs",             &[KUBE, K8S, GRPC, ASYNC, WIRE, "portolan-*", "ipset-rs", "nft-rs"]),
    ("ipset-rs",            &[KUBE, K8S, GRPC, ASYNC, WIRE, "portolan-*", "ipvs-rs", "nft-rs"]),
    ("nft-rs",              &[KUBE, K8S, GRPC, ASYNC, WIRE, "portolan-*", "ipvs-rs", "ipset-rs"]),
    ("portolan-reconcile",  &[KUBE, K8S, GRPC, ASYNC, WIRE, "netlink-sys|netlink-packet-route|netlink-packet-generic|rtnetlink", SOCKETS, CLOCK, CHANCE, "portolan-proto", "portolan-planner", "portolan-crds", "ipvs-rs", "ipset-rs"]),
    ("portolan-agent",      &[KUBE, K8S, "portolan-crds", "portolan-planner", "portolan-controller"]),
    ("portolan-lab",        &[KUBE, K8S, GRPC, ASYNC, NETLINK, "portolan-*", "ipvs-rs", "ipset-rs", "nft-rs"]),
    ("portolan-simulation", &[]),
    ("portolan-fuzz-targets", &[]),
    ("portolan-e2e",        &[]),
];

const KUBE: &str = "kube*";
const K8S: &str = "k8s-openapi";
const WIRE: &str = "prost*";
const GRPC: &str = "tonic*";
const ASYNC: &str = "tokio*";
const NETLINK: &str = "netlink-*|rtnetlink";
const SOCKETS: &str = "socket2|mio|nix|rustix";
const CLOCK: &str = "chrono|time|jiff";
const CHANCE: &str = "rand|rand_*|getrandom|fastrand";

/// No crate may depend on those that only test.
const NO_DEPENDENTS: [&str; 4] = [
    "portolan-e2e",
    "portolan-fuzz-targets",
    "portolan-lab",
    "portolan-simulation",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifest(path: &Path) -> Table {
    read(path)
        .parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names and manifests of all crates of the workspace.
fn members() -> BTreeMap<String, Table> {
    let workspace = manifest(&root().join("Cargo.toml"));
    let folders = workspace["workspace"]["members"].as_array().unwrap();
    let crates = folders.iter().map(|folder| {
        let path = root().join(folder.as_str().unwrap()).join("Cargo.toml");
        let manifest = manifest(&path);
        (
            manifest["package"]["name"].as_str().unwrap().to_owned(),
            manifest,
        )
    });
    crates.collect()
}

/// All dependencies of a crate in a normal build, direct and indirect.
fn below(name: &str) -> BTreeSet<String> {
    let tree = Program::Cargo
        .run(&[
            "tree",
            "--offline",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .unwrap();
    let names = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|found| *found != name)
        .map(str::to_owned)
        .collect()
}

/// Every crate of the workspace's build with its features, along edges of these kinds.
fn with_features(edges: &str) -> BTreeSet<String> {
    let words = [
        "tree",
        "--offline",
        "--workspace",
        "--edges",
        edges,
        "--prefix",
        "none",
    ];
    let tree = Program::Cargo
        .run(&[&words[..], &["--format", "{p} {f}"]].concat())
        .unwrap();
    let lines = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned());
    lines.collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.split('|').any(|one| match one.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == one,
    })
}

#[test]
fn no_crate_has_a_forbidden_one_below_it() {
    let mut wrong = Vec::new();
    for (name, never) in NEVER {
        for found in below(name) {
            let forbidden = never.iter().any(|pattern| matches(pattern, &found));
            let hidden = NO_DEPENDENTS.contains(&found.as_str());
            if forbidden || hidden {
                wrong.push(format!("{name} has {found} below it"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "see docs/architecture/README.md; `cargo tree -p A -i B` shows how:\n{wrong:#?}"
    );
}

#[test]
fn every_crate_of_the_workspace_has_a_row_in_the_table() {
    let rows: BTreeSet<&str> = NEVER.iter().map(|row| row.0).collect();
    let members = members();
    let names: BTreeSet<&str> = members.keys().map(String::as_str).collect();
    assert_eq!(rows, names);
}

#[test]
fn every_dependency_that_comes_in_has_its_reason_beside_it() {
    let text = read(&root().join("Cargo.toml"));
    let section = text.split("[workspace.dependencies]").nth(1).unwrap();
    let mut seen = 0;
    for line in section.lines().take_while(|line| !line.starts_with('[')) {
        // Crates of the workspace are declared by path and need no reason.
        if line.contains('=') && !line.contains("path = ") {
            let reason = line.split_once('#').map_or("", |(_, reason)| reason.trim());
            assert!(!reason.is_empty(), "no reason beside: {line}");
            seen += 1;
        }
    }
    assert!(
        seen > 20,
        "only {seen} dependencies were found: has the section moved?"
    );
}

#[test]
fn every_crate_inherits_the_lints_and_names_versions_nowhere_else() {
    for (name, manifest) in members() {
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        assert_eq!(
            lints.and_then(toml::Value::as_bool),
            Some(true),
            "{name}: [lints] workspace"
        );
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else {
                continue;
            };
            for (dependency, how) in dependencies {
                // A crate depends on itself to enable a feature for its tests.
                if how.get("path").and_then(toml::Value::as_str) == Some(".") {
                    continue;
                }
                let inherited = how.get("workspace").and_then(toml::Value::as_bool);
                assert_eq!(
                    inherited,
                    Some(true),
                    "{name}: {dependency} must be `workspace = true`"
                );
            }
        }
    }
}

/// The substitute for miri, which this machine's registries do not provide.
#[test]
fn no_library_contains_unsafe_code() {
    let workspace = manifest(&root().join("Cargo.toml"));
    let folders = workspace["workspace"]["members"].as_array().unwrap();
    for folder in folders {
        let path = root().join(folder.as_str().unwrap()).join("src/lib.rs");
        let forbids = read(&path).contains("\n#![forbid(unsafe_code)]\n");
        assert!(forbids, "{}: #![forbid(unsafe_code)]", path.display());
    }
}

#[test]
fn programs_are_started_in_one_file_of_the_scenarios() {
    let mut files = vec![root().join("e2e/src")];
    let mut starting = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if read(&path).contains("Command::new") {
            starting.push(path.file_name().unwrap().to_owned());
        }
    }
    assert_eq!(starting, ["program.rs"]);
}

#[test]
fn a_pattern_matches_whole_names_or_what_begins_like_it() {
    assert!(matches(KUBE, "kube") && matches(KUBE, "kube-core"));
    assert!(matches(CLOCK, "time") && !matches(CLOCK, "timeout"));
    assert!(matches(NETLINK, "netlink-sys") && matches(NETLINK, "rtnetlink"));
}

/// Fakes and generators of values are for tests.
#[test]
fn programs_as_they_are_shipped_have_no_feature_for_tests() {
    for (program, part) in [
        ("portolan-agent", "portolan-reconcile v"),
        ("portolan-controller", "portolan-plan v"),
    ] {
        let words = [
            "tree",
            "--offline",
            "--package",
            program,
            "--edges",
            "normal,build",
        ];
        let format = ["--prefix", "none", "--format", "{p} {f}"];
        let tree = Program::Cargo.run(&[&words[..], &format].concat()).unwrap();
        assert!(tree.lines().any(|line| line.starts_with(part)), "{tree}");
        let for_tests = |line: &&str| {
            let features = line.trim_end_matches(" (*)").rsplit(' ').next();
            let mut features = features.unwrap_or_default().split(',');
            features.any(|feature| matches!(feature, "testing" | "strategies"))
        };
        let found: Vec<_> = tree.lines().filter(for_tests).collect();
        assert_eq!(found, Vec::<&str>::new(), "{program}");
    }
}

/// Otherwise cargo would compile most of the tree twice: once for tests, once for the programs that scenarios start.
#[test]
fn programs_and_tests_need_the_same_features() {
    let (programs, tests) = (
        with_features("normal,build"),
        with_features("normal,build,dev"),
    );
    let only_programs: Vec<&String> = programs.difference(&tests).collect();
    assert!(programs.len() > 100, "{programs:?}");
    assert!(
        only_programs.is_empty(),
        "tests need other features of these; add them to [dependencies] of e2e/Cargo.toml: {only_programs:#?}"
    );
}
