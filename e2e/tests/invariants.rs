//! Every invariant of docs/architecture/README.md is cited by a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Text of every Rust file in a folder named `tests`, by path.
fn tests_below(folder: &Path, inside: bool, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let built = name == "target" || name.to_string_lossy().starts_with('.');
        if entry.file_type().unwrap().is_dir() && !built {
            tests_below(&path, inside || name == "tests", found);
        } else if inside && path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Numbers like `I-7` in a text, as whole words.
fn citations(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let number = |word: &&str| {
        word.strip_prefix("I-")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    words.filter(number).map(str::to_owned).collect()
}

#[test]
fn every_invariant_is_cited_by_a_test_and_no_other_number_is() {
    let text = std::fs::read_to_string(root().join("docs/architecture/README.md")).unwrap();
    let rows: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split_once(" |"))
        .map(|(cell, _)| cell.to_owned())
        .filter(|cell| citations(cell).contains(cell))
        .collect();
    let listed: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(listed.len(), rows.len(), "a number has two rows: {rows:?}");
    assert!(listed.len() >= 9, "the list was not found: {listed:?}");
    let mut tests = BTreeMap::new();
    tests_below(&root(), false, &mut tests);
    let own = Path::new(file!()).file_name().unwrap();
    let cited: BTreeSet<String> = tests
        .iter()
        .filter(|(path, _)| path.file_name() != Some(own))
        .flat_map(|(_, text)| citations(text))
        .collect();
    assert_eq!(listed, cited);
}
