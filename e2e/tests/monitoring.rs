//! The chart's rules and dashboard use only metrics that the programs export. Reads files only.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::BTreeSet;
use std::path::Path;

/// The documents of metrics; tests of both programs verify them.
const DOCUMENTS: [&str; 2] = [
    "docs/reference/controller-metrics.md",
    "docs/reference/agent-metrics.md",
];
const ASKING: [&str; 3] = [
    "charts/portolan/monitoring/rules.yaml",
    "charts/portolan/monitoring/dashboard.json",
    "e2e/api/alerts.yaml",
];
/// Prefixes of our metrics.
const OURS: [&str; 2] = ["portolan_", "kubeproxy_"];
/// Suffixes of a histogram's series.
const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of all series.
fn exported() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for document in DOCUMENTS {
        for row in read(document).lines() {
            let Some((name, rest)) = row
                .strip_prefix("| `")
                .and_then(|row| row.split_once("` | "))
            else {
                continue;
            };
            if rest.starts_with("histogram") {
                names.extend(PARTS.map(|part| format!("{name}{part}")));
            } else {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Names of metrics in a text, except those of recording rules (`level:metric:operations`).
fn asked(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_of_name(c));
    let names = words.filter(|word| OURS.iter().any(|start| word.starts_with(start)));
    // Parts of the names of jobs and programs are not metrics.
    let names = names.filter(|word| !word.ends_with(['_', ':']) && !word.contains(':'));
    names.map(str::to_owned).collect()
}

#[test]
fn rules_and_panels_use_metrics_that_the_programs_export() {
    let exported = exported();
    assert!(
        exported.len() > 40,
        "only {} series are documented",
        exported.len()
    );
    for file in ASKING {
        let asked = asked(&read(file));
        assert!(asked.len() > 10, "{file} asks for {asked:?} only");
        let unknown: Vec<_> = asked.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file}: no program exports {unknown:?}");
    }
}

#[test]
fn names_are_found_in_expressions_and_not_in_words_that_look_like_them() {
    let text = "max(portolan_a_total{job=\"portolan-agent\"}) by kubeproxy_b; kubeproxy_ is; a:portolan_c:d";
    assert_eq!(
        asked(text),
        ["kubeproxy_b", "portolan_a_total"]
            .map(str::to_owned)
            .into()
    );
}
