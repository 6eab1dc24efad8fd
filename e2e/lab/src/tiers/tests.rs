//! The list of tiers is complete.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::nested;

/// Name and manifest of every package of the workspace.
fn packages() -> BTreeMap<String, String> {
    let read = |folder: &str| {
        let path = nested::root().join(folder).join("Cargo.toml");
        std::fs::read_to_string(path).unwrap()
    };
    let workspace = read("");
    let members = workspace.split("members = [").nth(1).unwrap();
    let members = members.split(']').next().unwrap();
    let folders = members
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"'));
    folders
        .map(|folder| {
            let manifest = read(folder.trim_end_matches("\","));
            (name(&manifest), manifest)
        })
        .collect()
}

fn name(table: &str) -> String {
    let value = table.lines().find_map(|line| line.strip_prefix("name = "));
    value.unwrap().trim_matches('"').to_owned()
}

fn work() -> impl Iterator<Item = Work> {
    TIERS.iter().flat_map(Tier::all)
}

#[test]
fn every_package_of_the_workspace_is_tested_by_a_tier() {
    let whole = |work| match work {
        Work::Tests(package, Targets::All | Targets::Library) => Some(package.to_owned()),
        _ => None,
    };
    let tested: BTreeSet<String> = work().filter_map(whole).collect();
    let all: BTreeSet<String> = packages().into_keys().collect();
    assert_eq!(tested, all);
}

#[test]
fn a_test_that_cargo_does_not_run_by_itself_is_run_by_a_tier() {
    let mut checked = 0;
    for (package, manifest) in packages() {
        for table in manifest.split("[[test]]").skip(1) {
            let table = table.split("\n[").next().unwrap();
            if table.contains("test = false") {
                checked += 1;
                let test = name(table);
                assert!(
                    run_by_name(&package, &test),
                    "no tier runs test `{test}` of {package}"
                );
            }
        }
    }
    assert!(checked >= 3, "only {checked} such tests were found");
}

/// They are listed explicitly, so one could be missing.
#[test]
fn every_test_of_the_whole_is_run_by_a_tier() {
    let folder = nested::root().join("e2e/tests");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let test = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            run_by_name("portolan-e2e", test),
            "no tier runs {}",
            path.display()
        );
        found += 1;
    }
    assert!(found >= 6, "only {found} were found");
}

#[test]
fn tiers_and_the_units_of_each_have_different_names() {
    let names: BTreeSet<&str> = TIERS.iter().map(|tier| tier.name).collect();
    assert_eq!(names.len(), TIERS.len());
    for tier in TIERS {
        let names: BTreeSet<String> = tier.all().map(Work::name).collect();
        assert_eq!(names.len(), tier.all().count(), "{}", tier.name);
    }
}

/// They are listed again.
#[test]
fn what_runs_as_shipped_is_also_run_as_built_for_tests() {
    let of_tier = |name: &str| -> BTreeSet<String> {
        let tier = TIERS.iter().find(|tier| tier.name == name).unwrap();
        tier.all().map(Work::name).collect()
    };
    let (pure, guest, cluster) = (of_tier("pure"), of_tier("guest"), of_tier("cluster"));
    let mut found = 0;
    for work in work() {
        let (names, tier) = match work {
            Work::ShippedTests(names) => (names, &pure),
            Work::ShippedScenarios(names) => (names, &guest),
            Work::ShippedCluster(names) => (names, &cluster),
            _ => continue,
        };
        found += 1;
        for name in names {
            assert!(tier.contains(*name), "{name}");
        }
        // The tier also has the unit of examples.
        assert!(!matches!(work, Work::ShippedTests(_)) || names.len() + 1 == pure.len());
    }
    assert_eq!(found, 3);
}

#[test]
fn scenarios_that_measure_times_have_the_machine_to_themselves() {
    for name in TIMED {
        let all = work().filter(|work| matches!(work, Work::Cluster(_)) && work.name() == *name);
        let resources: Vec<Resource> = all.map(Work::resource).collect();
        assert_eq!(resources, [Resource::Whole], "{name}");
    }
}

#[test]
fn a_long_form_is_that_of_a_scenario_that_is_run() {
    for (name, _) in LONG {
        let is_run = work().any(|work| {
            matches!(work, Work::Scenario(_) | Work::Cluster(_)) && work.name() == *name
        });
        assert!(is_run, "no tier runs {name}");
    }
}
