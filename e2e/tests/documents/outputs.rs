//! What documents show as output of our programs is what snapshots and other expectations of tests contain.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{documents, root};

/// Pages that show output.
const PAGES: [&str; 2] = ["docs/operate", "docs/migrate"];
/// Commands whose output is checked.
const PROGRAMS: [&str; 4] = [
    "kubectl proxyplan",
    "portolan-controller ",
    "portolan-agent ",
    "kubectl get proxy",
];
/// Beginnings of lines with values of a cluster that no test has.
const OF_CLUSTERS: [&str; 5] = [
    "node-# zone-# #",
    "default True #",
    "shop/cart is in force on all nodes: # nodes are done",
    "standard input: document #",
    "iptables.masqueradeBit",
];

/// A line without differences that do not matter: spaces, numbers, values of fields.
fn normalized(line: &str) -> String {
    let words = line.trim_start_matches(['│', ' ']).split_whitespace();
    let words = words.map(|word| word.split_once('=').map_or(word, |(name, _)| name));
    let line = words.collect::<Vec<_>>().join(" ");
    let mut result = String::new();
    for letter in line.chars() {
        match letter.is_ascii_digit() {
            true if result.ends_with('#') => {}
            true => result.push('#'),
            false => result.push(letter),
        }
    }
    result
}

/// All lines of files that contain expectations.
fn expected() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for folder in ["controller", "node-agent", "e2e"] {
        collect(&root().join(folder), &mut lines);
    }
    assert!(lines.len() > 10_000, "{} lines", lines.len());
    lines
}

fn collect(folder: &Path, lines: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, lines);
        } else if path.extension().is_some_and(|end| {
            ["snap", "txt", "yaml", "rs"]
                .iter()
                .any(|known| end == *known)
        }) {
            let text = std::fs::read_to_string(&path).unwrap();
            lines.extend(text.lines().map(normalized));
        }
    }
}

/// Lines of output of our programs, with their line numbers.
fn outputs(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut block, mut continues, mut ours) = (Vec::new(), false, false, false);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            block = line == "```console";
            ours = false;
        } else if block && (line.starts_with("$ ") || continues) {
            let names_ours = PROGRAMS.iter().any(|program| line.contains(program));
            ours = names_ours || (continues && ours);
            continues = line.ends_with('\\');
        } else if block && ours && !line.trim().is_empty() && line.trim() != "…" {
            found.push((number + 1, normalized(line)));
        }
    }
    found
}

#[test]
fn shown_output_is_that_of_tests() {
    let (expected, mut checked, mut unknown) = (expected(), 0, Vec::new());
    for (path, text) in documents() {
        if !PAGES.iter().any(|page| path.starts_with(page)) {
            continue;
        }
        for (number, line) in outputs(&text) {
            checked += 1;
            let is_of_cluster = OF_CLUSTERS.iter().any(|start| line.starts_with(start));
            if !is_of_cluster && !expected.contains(&line) {
                unknown.push(format!("{}:{number}: {line}", path.display()));
            }
        }
    }
    assert!(checked > 50, "only {checked} lines of output");
    assert!(
        unknown.is_empty(),
        "no test expects this output:\n{}",
        unknown.join("\n")
    );
}

#[test]
fn output_is_what_follows_a_command_of_ours() {
    let page = "```console\n$ ls\nfile\n$ kubectl get x \\\n    | portolan-controller plan\nnode-1 12\n```\nProse\n";
    let found = outputs(page);
    assert_eq!(found, [(6, "node-# #".to_owned())]);
}
