//! Modules of a crate import each other in one direction: a reader who follows imports ends somewhere. Reads the
//! sources of the workspace; touches nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates, with the number of their top-level modules that are part of an import cycle. The numbers may only fall.
const CRATES: [(&str, usize); 17] = [
    ("proto/plan", 0),
    ("proto/metrics", 0),
    ("proto", 0),
    ("crds", 0),
    ("controller/rollout-policy", 0),
    ("controller/planner", 0),
    ("controller", 0),
    ("node-agent/netlink", 0),
    ("node-agent/ipvs-rs", 0),
    ("node-agent/ipset-rs", 0),
    ("node-agent/nft-rs", 0),
    ("node-agent/reconcile", 0),
    ("node-agent", 0),
    ("e2e", 0),
    ("e2e/lab", 0),
    ("e2e/simulation", 0),
    ("e2e/fuzz-targets", 0),
];

type Imports = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Source files below a folder, by their paths from there.
fn sources(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder.join(below)).unwrap() {
        let name = below.join(entry.unwrap().file_name());
        let path = folder.join(&name);
        if path.is_dir() {
            // Binaries have no modules that others import.
            if name != Path::new("bin") {
                sources(folder, &name, found);
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.insert(name, text);
        }
    }
}

/// Whether a file contains only tests.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_string_lossy();
    stem.ends_with("_tests") || stem == "tests"
}

/// The program text of a file: without comments, texts and tests.
fn program(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let mut program = String::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap();
        // A text may contain braces and colons; whole lines of texts have no imports.
        let code: String = code.split('"').step_by(2).collect();
        program.push_str(&code);
        program.push('\n');
    }
    program
}

/// The module of a file, from the root of the crate.
fn module_of(path: &Path) -> Vec<String> {
    let mut parts: Vec<String> = path
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

/// The paths of a `use` tree.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        return vec![path.trim().to_owned()];
    };
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let (mut found, mut depth, mut part) = (Vec::new(), 0, String::new());
    for c in inside.chars().chain([',']) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = std::mem::take(&mut part);
                if !part.trim().is_empty() {
                    found.extend(paths(&part).iter().map(|path| format!("{before}{path}")));
                }
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    found
}

/// All paths in a program text that begin with `crate` or `super`.
fn local_paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(place) = rest.find("use ") {
        let is_word = rest[..place]
            .chars()
            .last()
            .is_none_or(|c| c.is_whitespace() || c == ')');
        rest = &rest[place + 4..];
        if is_word && let Some(end) = rest.find(';') {
            found.extend(paths(&rest[..end]));
        }
    }
    for start in ["crate::", "super::"] {
        for (place, _) in text.match_indices(start) {
            let path = text[place..].chars();
            let path: String = path
                .take_while(|c| c.is_alphanumeric() || "_:".contains(*c))
                .collect();
            found.push(path);
        }
    }
    let split = |path: String| {
        path.split("::")
            .map(|part| part.trim().to_owned())
            .collect()
    };
    let local = |path: &Vec<String>| path[0] == "crate" || path[0] == "super";
    found.into_iter().map(split).filter(local).collect()
}

/// The path from the root of the crate.
fn from_root(path: &[String], module: &[String]) -> Vec<String> {
    if path[0] == "crate" {
        return path[1..].to_vec();
    }
    let up = path.iter().take_while(|part| *part == "super").count();
    let kept = module.len().saturating_sub(up);
    [&module[..kept], &path[up..]].concat()
}

/// The imports of each top-level module from the others.
fn imports(folder: &Path) -> Imports {
    let mut files = BTreeMap::new();
    sources(folder, Path::new(""), &mut files);
    let files: Vec<_> = files
        .iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (module_of(path), program(text)))
        .collect();
    let mut imports: Imports = files
        .iter()
        .filter_map(|(module, _)| Some((module.first()?.clone(), BTreeSet::new())))
        .collect();
    // Names that the root of the crate re-exports stand for their modules.
    let mut reexported = BTreeMap::new();
    for (_, text) in files.iter().filter(|(module, _)| module.is_empty()) {
        for line in text.split(';').filter(|line| line.contains("pub use ")) {
            let tree = line.split("pub use ").last().unwrap();
            for path in paths(tree) {
                let parts: Vec<_> = path.split("::").map(str::to_owned).collect();
                let name = parts.last().unwrap().clone();
                reexported.insert(name, parts[0].clone());
            }
        }
    }
    for (module, text) in &files {
        let Some(own) = module.first() else { continue };
        for path in local_paths(text) {
            let path = from_root(&path, module);
            let Some(first) = path.first() else { continue };
            let other = match imports.contains_key(first) {
                true => Some(first),
                false => reexported.get(first),
            };
            if let Some(other) = other.filter(|other| *other != own) {
                let other = other.clone();
                imports.get_mut(own).unwrap().insert(other);
            }
        }
    }
    imports
}

/// Modules that are part of an import cycle.
fn cyclic(imports: &Imports) -> BTreeSet<String> {
    let reaches = |start: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            for other in imports.get(module).into_iter().flatten() {
                if seen.insert(other) {
                    next.push(other);
                }
            }
        }
        seen.contains(start)
    };
    imports
        .keys()
        .filter(|module| reaches(module))
        .cloned()
        .collect()
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut problems = Vec::new();
    for (name, most) in CRATES {
        let imports = imports(&root().join(name).join("src"));
        assert!(imports.len() > 1, "{name}: {imports:?}");
        let cyclic = cyclic(&imports);
        if cyclic.len() > most {
            let within = cyclic.iter().map(|module| {
                let others: Vec<_> = imports[module].intersection(&cyclic).collect();
                format!("  {module} imports {others:?}")
            });
            let within: Vec<_> = within.collect();
            problems.push(format!(
                "{name}: {} modules are part of import cycles, at most {most} may be:\n{}",
                cyclic.len(),
                within.join("\n")
            ));
        } else if cyclic.len() < most {
            problems.push(format!(
                "{name}: {} modules are part of import cycles, fewer than {most}: lower the number",
                cyclic.len()
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_cycle_is_found_and_a_chain_is_none() {
    let graph = |edges: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in edges {
            let own = imports.entry((*from).to_owned()).or_default();
            own.insert((*to).to_owned());
        }
        cyclic(&imports).into_iter().collect::<Vec<_>>()
    };
    assert!(graph(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    assert_eq!(
        graph(&[("a", "b"), ("b", "c"), ("c", "b")]),
        ["b", "c"],
        "a is in no cycle"
    );
}

#[test]
fn imports_are_read_from_trees_and_from_paths() {
    let text = "use crate::{a, b::{self, C}};\npub(crate) use super::d::E as F;\nfn f() { crate::g::h() }\n";
    let module = ["m".to_owned(), "n".to_owned()];
    let read: BTreeSet<String> = local_paths(text)
        .iter()
        .map(|path| from_root(path, &module).join("::"))
        .filter(|path| !path.is_empty())
        .collect();
    for expected in ["a", "b::self", "b::C", "m::d::E", "g::h"] {
        assert!(read.contains(expected), "{expected} is not in {read:?}");
    }
}
