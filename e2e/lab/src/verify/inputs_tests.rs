//! A change of each kind of input reruns the right units, and no others. Uses the actual project.

use std::sync::OnceLock;

use super::super::copy::read;
use super::super::lab::{BESIDE_UNITS, FOLDER};
use super::*;
use crate::nested;
use crate::packages::Versions;
use crate::tiers::TIERS;

fn project() -> &'static (Files, Workspace) {
    static PROJECT: OnceLock<(Files, Workspace)> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let root = nested::root();
        let names = crate::mirror::files(&root).unwrap();
        (read(&root, names).unwrap(), Workspace::read(&root).unwrap())
    })
}

fn machine() -> Machine {
    Machine {
        compiler: "rustc 1".to_owned(),
        kernel: "6.1".to_owned(),
        packages: Versions::from([("ipset".to_owned(), "7.17".to_owned())]),
        settings: Vec::new(),
        guest_kernel: "6.1".to_owned(),
        go: "go 1".to_owned(),
    }
}

/// The keys of all units, `TIER/NAME`.
fn keys(files: &Files, machine: &Machine, long: bool) -> BTreeMap<String, String> {
    let inputs = Inputs {
        files,
        workspace: &project().1,
        machine,
        long,
    };
    let units = TIERS
        .iter()
        .flat_map(|tier| tier.all().map(move |work| (tier.name, work)));
    let key =
        |(tier, work): (&str, Work)| (format!("{tier}/{}", work.name()), inputs.key(tier, work));
    units.map(key).collect()
}

/// The keys of the actual project.
fn usual() -> &'static BTreeMap<String, String> {
    static KEYS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    KEYS.get_or_init(|| keys(&project().0, &machine(), false))
}

/// The units that rerun.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let units = after.keys();
    let differs = |unit: &&String| before[*unit] != after[*unit];
    units.filter(differs).cloned().collect()
}

/// The units that rerun after a change of these files, which must exist.
fn after_change_of(paths: &[&str]) -> Vec<String> {
    let mut files = project().0.clone();
    for path in paths {
        let file = files.get_mut(Path::new(path));
        file.unwrap_or_else(|| panic!("{path} is not there")).hash ^= 1;
    }
    changed(usual(), &keys(&files, &machine(), false))
}

fn after_change_of_machine(change: impl Fn(&mut Machine)) -> Vec<String> {
    let mut other = machine();
    change(&mut other);
    let files = &project().0;
    changed(usual(), &keys(files, &other, false))
}

fn all() -> Vec<String> {
    usual().keys().cloned().collect()
}

fn of_tiers<'a>(units: &'a [String], tiers: &[&str]) -> Vec<&'a str> {
    let is_of = |unit: &&str| {
        let tier = unit.split('/').next();
        tier.is_some_and(|tier| tiers.contains(&tier))
    };
    units.iter().map(String::as_str).filter(is_of).collect()
}

#[test]
fn documents_run_only_the_tests_of_documents_again() {
    let paths = project().0.keys().filter_map(|path| path.to_str());
    let prose = paths.filter(|path| {
        // Tests compare these with code and with values.
        let is_included = path.ends_with("-metrics.md")
            || *path == "charts/portolan/README.md"
            || path.starts_with("docs/examples/values");
        let is_prose = path.starts_with("docs/") || path.ends_with(".md") || *path == "LICENSE";
        is_prose && !is_included
    });
    let prose: Vec<&str> = prose.collect();
    assert!(prose.len() >= 3, "{prose:?}");
    let again = after_change_of(&prose);
    // Images contain the licence.
    let few = [
        "unit/portolan-e2e documents invariants reference",
        "images/both",
        "shipped/both",
    ];
    assert!(again.iter().any(|unit| unit == few[0]), "{again:?}");
    let is_expected = |unit: &String| few.contains(&unit.as_str());
    assert!(again.iter().all(is_expected), "{again:?}");
}

#[test]
fn a_document_that_code_includes_runs_that_code_again() {
    let again = after_change_of(&["docs/reference/agent-metrics.md"]);
    for unit in ["unit/portolan-agent", "guest/metrics", "unit/portolan-e2e"] {
        assert!(again.iter().any(|other| other == unit), "{unit}: {again:?}");
    }
    let others = of_tiers(&again, &["pure", "mutations", "format"]);
    assert!(others.is_empty(), "{again:?}");
}

#[test]
fn a_test_of_a_crate_runs_that_crate_alone_again() {
    let again = after_change_of(&["node-agent/ipvs-rs/tests/laws.rs"]);
    let expected = [
        "docs/rustdoc",
        "format/rustfmt",
        "guest/ipvs-rs kernel",
        "lint/clippy",
        "pure/ipvs-rs",
        "shipped/tests",
        "unit/portolan-e2e chart_readme dependencies licences module_cycles monitoring",
        "unit/portolan-e2e documents invariants reference",
        "unit/portolan-lab",
    ];
    assert_eq!(again, expected);
}

#[test]
fn a_crate_runs_its_dependents_again_and_no_others() {
    let tiers = ["pure", "mutations", "namespaces"];
    let planner = after_change_of(&["controller/planner/src/selection.rs"]);
    let expected = ["mutations/planner", "pure/portolan-planner"];
    assert_eq!(of_tiers(&planner, &tiers), expected);
    let ipset = after_change_of(&["node-agent/ipset-rs/src/lib.rs"]);
    let expected = [
        "namespaces/ipset-rs kernel",
        "namespaces/portolan-agent namespaces",
        "pure/examples",
        "pure/ipset-rs",
    ];
    assert_eq!(of_tiers(&ipset, &tiers), expected);
    let plan = after_change_of(&["proto/plan/src/lib.rs"]);
    assert!(of_tiers(&plan, &["pure"]).contains(&"pure/portolan-reconcile"));
    assert!(!of_tiers(&plan, &["pure"]).contains(&"pure/ipvs-rs"));
    let tiers = ["cluster", "guest"];
    let all_but_one = of_tiers(&all(), &tiers).len() - 1;
    assert_eq!(of_tiers(&plan, &tiers).len(), all_but_one);
}

#[test]
fn one_scenario_runs_again_alone_and_what_they_share_runs_all() {
    let again = after_change_of(&["e2e/src/scenario/udp/mod.rs"]);
    let tiers = ["guest", "cluster", "pure"];
    assert_eq!(of_tiers(&again, &tiers), ["guest/udp"]);
    let again = after_change_of(&["e2e/src/scenario/cluster/churn.rs"]);
    assert_eq!(of_tiers(&again, &["guest", "cluster"]), ["cluster/churn"]);
    let again = after_change_of(&["e2e/src/waits.rs"]);
    let tiers = ["guest", "cluster"];
    let all_but_one = of_tiers(&all(), &tiers).len() - 1;
    assert_eq!(of_tiers(&again, &tiers).len(), all_but_one);
}

#[test]
fn what_only_nodes_with_kubelets_need_runs_nothing_else_again() {
    let scenarios = ["cluster", "guest", "demo", "operations", "real", "versions"];
    let real = [
        "operations/operations",
        "operations/skew",
        "real/kit",
        "real/portolan",
    ];
    for path in [
        "e2e/real/tests.yaml",
        "e2e/src/real/suite.rs",
        "e2e/tools/nodes/go.mod",
        "e2e/tools/flannel/main.go",
    ] {
        let again = after_change_of(&[path]);
        assert_eq!(of_tiers(&again, &scenarios), real, "{path}");
    }
    let versions = ["versions/newest", "versions/oldest"];
    let again = after_change_of(&["e2e/tools/kubernetes-oldest/go.mod"]);
    assert_eq!(of_tiers(&again, &scenarios), versions);
}

#[test]
fn files_that_are_compiled_into_the_schedules_run_them_again() {
    for path in [
        "e2e/schedules/src/sync.rs",
        "e2e/schedules/Cargo.toml",
        "controller/src/agent_registry.rs",
        "controller/src/agent_registry/in_force.rs",
        "controller/src/stream/written.rs",
        "node-agent/src/plan_watch.rs",
        "proto/plan/src/plan.rs",
    ] {
        let again = after_change_of(&[path]);
        assert!(again.contains(&"schedules/threads".to_owned()), "{path}");
    }
    let again = after_change_of(&["e2e/schedules/src/sync.rs"]);
    assert!(of_tiers(&again, &["guest", "cluster", "pure", "shipped"]).is_empty());
    let again = after_change_of(&["controller/src/admin/mod.rs"]);
    assert!(!again.contains(&"schedules/threads".to_owned()));
}

#[test]
fn only_packages_of_the_unit_of_examples_have_examples() {
    let (files, workspace) = project();
    let works = TIERS.iter().flat_map(|tier| tier.all());
    let packages = works.filter_map(|work| match work {
        Work::Examples(packages) => Some(packages),
        _ => None,
    });
    let packages: Vec<&str> = packages.flatten().copied().collect();
    let root = nested::root();
    let mut found = BTreeSet::new();
    let code = files.keys().filter(|path| {
        let in_library = path.components().any(|part| part.as_os_str() == "src");
        in_library && path.extension().is_some_and(|end| end == "rs")
    });
    for path in code {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let begins = |line: &str| {
            ["/// ```", "//! ```"].iter().any(|fence| {
                let kind = line.trim().strip_prefix(fence);
                kind.is_some_and(|kind| !kind.starts_with("text"))
            })
        };
        if text.lines().any(begins) {
            found.extend(workspace.owner(path));
        }
    }
    assert_eq!(found, packages.into_iter().collect());
}

#[test]
fn every_scenario_has_a_part_that_declares_it() {
    for work in TIERS.iter().flat_map(|tier| tier.all()) {
        if let Work::Scenario(scenario) | Work::Cluster(scenario) = work {
            let others = scenarios::of_others(&project().0, scenario.name);
            assert!(!others.is_empty(), "{} is declared nowhere", scenario.name);
        }
    }
}

#[test]
fn data_settings_and_the_lab_run_what_uses_them_again() {
    let table = after_change_of(&["e2e/tables/matrix.yaml"]);
    assert!(table.contains(&"guest/packet-path".to_owned()), "{table:?}");
    let chart = after_change_of(&["charts/portolan/values.yaml"]);
    for unit in ["images/both", "cluster/install"] {
        assert!(chart.contains(&unit.to_owned()), "{chart:?}");
    }
    assert!(of_tiers(&chart, &["pure"]).is_empty());
    let tools = after_change_of(&["e2e/tools/etcd/go.mod"]);
    let all = all();
    let cluster = of_tiers(&all, &["cluster"]);
    let expected = [&cluster[..], &["guest/bootstrap"]].concat();
    assert_eq!(of_tiers(&tools, &["cluster", "guest"]), expected);
    let init = after_change_of(&["e2e/lab/src/guest/init.sh"]);
    assert_eq!(of_tiers(&init, &["guest"]), of_tiers(&all, &["guest"]));
    assert!(of_tiers(&init, &["cluster", "pure", "mutations"]).is_empty());
    let mutate = after_change_of(&["e2e/lab/src/mutate.rs"]);
    let tiers = ["mutations", "guest", "cluster"];
    assert_eq!(of_tiers(&mutate, &tiers), ["mutations/planner"]);
    let mut own = BESIDE_UNITS.map(|name| format!("{FOLDER}/{name}")).to_vec();
    own.push(format!("{FOLDER}/src/verify/inputs_tests.rs"));
    for path in &own {
        assert!(project().0.contains_key(Path::new(path)), "{path} is gone");
    }
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let beside = after_change_of(&own);
    assert!(beside.contains(&"unit/portolan-lab".to_owned()));
    assert!(of_tiers(&beside, &["guest", "cluster", "pure", "demo"]).is_empty());
    let runs = after_change_of(&["e2e/lab/src/verify/work.rs"]);
    assert_eq!(runs, all, "how units are run");
    for path in EVERY_BUILD {
        assert_eq!(after_change_of(&[path]), all, "{path}");
    }
    let semantics = after_change_of(&["e2e/semantics.yaml"]);
    assert!(of_tiers(&semantics, &["guest", "cluster", "pure"]).is_empty());
    assert_eq!(after_change_of(&["rustfmt.toml"])[0], "format/rustfmt");
    assert!(after_change_of(&["clippy.toml"]).contains(&"lint/clippy".to_owned()));
}

#[test]
fn files_of_installed_packages_count_for_guests_and_images() {
    let again = after_change_of(&["e2e/lab/src/installed/usr_merge.rs"]);
    let (all, tiers) = (all(), ["guest", "images"]);
    assert_eq!(of_tiers(&again, &tiers), of_tiers(&all, &tiers));
    assert!(of_tiers(&again, &["cluster", "pure", "mutations"]).is_empty());
}

#[test]
fn compiler_packages_kernels_and_settings_run_what_depends_on_them_again() {
    let compiler = after_change_of_machine(|machine| machine.compiler += "x");
    assert_eq!(compiler, all());
    let setting = |machine: &mut Machine| machine.settings.push(("RUSTFLAGS".into(), "-g".into()));
    assert_eq!(after_change_of_machine(setting), all());
    let packages = after_change_of_machine(|machine| {
        machine.packages.insert("ipset".into(), "7.18".into());
    });
    assert!(of_tiers(&packages, &["format", "lint", "docs"]).is_empty());
    assert!(packages.contains(&"guest/drift".to_owned()));
    let guest = after_change_of_machine(|machine| machine.guest_kernel += "x");
    let tiers = ["demo", "guest", "kernels", "nftables", "operations", "real"];
    // And `shipped/guest`.
    let expected = of_tiers(&all(), &tiers).len() + 1;
    assert_eq!(guest.len(), expected, "{guest:?}");
    assert!(guest.contains(&"shipped/guest".to_owned()), "{guest:?}");
    let go = after_change_of_machine(|machine| machine.go += "x");
    assert!(go.contains(&"cluster/stores".to_owned()) && !go.contains(&"guest/drift".to_owned()));
    let kernel = after_change_of_machine(|machine| machine.kernel += "x");
    assert!(kernel.contains(&"namespaces/ipset-rs kernel".to_owned()));
}

#[test]
fn a_long_form_is_another_result() {
    let files = &project().0;
    let again = changed(usual(), &keys(files, &machine(), true));
    assert!(again.contains(&"mutations/planner".to_owned()));
    assert!(!again.contains(&"guest/drift".to_owned()));
}

#[test]
fn paths_in_code_lead_to_files_of_other_packages() {
    let inputs = Inputs {
        files: &project().0,
        workspace: &project().1,
        machine: &machine(),
        long: false,
    };
    let of = |package| inputs.files_of(Work::Tests(package, Targets::All));
    let plan = Path::new("node-agent/tests/plans/node-a.json");
    assert!(of("portolan-reconcile").contains(plan));
    assert!(!of("ipvs-rs").contains(plan));
    let crds = Path::new("charts/portolan/charts/crds/crds/proxyplans.yaml");
    assert!(of("portolan-crds").contains(crds));
    // Written with another character, so that this file itself contains no such path.
    let code = r#"join("^^") "^^/x/y" refuses("^^") concat!("^^/", x) "^^/a b""#;
    assert_eq!(mentions(&code.replace('^', ".")), ["..", "../x/y"]);
    assert_eq!(normal(Path::new("a/../b/./c")), Some("b/c".into()));
    assert_eq!(normal(Path::new("../a")), None);
}
