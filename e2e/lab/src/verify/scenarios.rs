//! The sources of each scenario, so that a change in one scenario reruns only that one.
//!
//! A *part* is a module below `scenario/` (or `scenario/cluster/`): a file, a folder, or both. A scenario depends on
//! the part that declares it, on every part that those use, and on all sources outside of parts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::inputs::Files;

/// The folder of scenarios.
pub(super) const SOURCES: &str = "e2e/src/scenario";
const CLUSTER: &str = "e2e/src/scenario/cluster";

/// The scenario-related contents of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    /// Words before `::` or in a `use` declaration, which include all used modules.
    words: BTreeSet<String>,
    /// Names of the scenarios declared in it.
    declares: BTreeSet<String>,
    /// Aliases by `use MODULE::NAME;`: `NAME` → `MODULE`.
    renames: BTreeMap<String, String>,
}

impl Uses {
    /// Parses the code of a file.
    pub(super) fn read(code: &str) -> Self {
        let mut uses = Self::default();
        for (before, _) in split_at_each(code, "::") {
            uses.words.extend(last_word(before).map(str::to_owned));
        }
        for (before, after) in split_at_each(code, "use ") {
            let starts_word = !before.ends_with(|sign: char| sign.is_alphanumeric() || sign == '_');
            let declaration = after.split(';').next().unwrap_or_default();
            if starts_word && declaration.starts_with(|sign: char| sign.is_ascii_lowercase()) {
                uses.words.extend(words(declaration).map(str::to_owned));
                if let Some((module, name)) = declaration.split_once("::")
                    && words(name).eq([name])
                {
                    uses.renames.insert(name.to_owned(), module.to_owned());
                }
            }
        }
        for (_, after) in split_at_each(code, "name: \"") {
            uses.declares
                .extend(after.split('"').next().map(str::to_owned));
        }
        uses
    }
}

/// The text before and after each occurrence.
fn split_at_each<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.match_indices(mark)
        .map(move |(at, _)| (&text[..at], &text[at + mark.len()..]))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let all = text.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    all.filter(|word| !word.is_empty())
}

fn last_word(text: &str) -> Option<&str> {
    let mut words = text.rsplit(|sign: char| !sign.is_alphanumeric() && sign != '_');
    words.next().filter(|word| !word.is_empty())
}

/// The part of a file; `None` for files shared by all scenarios.
fn part_of(path: &Path) -> Option<PathBuf> {
    let folder = match path.strip_prefix(CLUSTER) {
        Ok(_) => CLUSTER,
        Err(_) => SOURCES,
    };
    let first = path.strip_prefix(folder).ok()?.iter().next()?;
    let stem = Path::new(first).file_stem()?;
    (stem != "mod").then(|| Path::new(folder).join(stem))
}

/// The files that only other scenarios depend on.
pub(super) fn of_others(files: &Files, scenario: &str) -> BTreeSet<PathBuf> {
    let mut parts: BTreeMap<PathBuf, Vec<&Path>> = BTreeMap::new();
    let mut aliases = BTreeMap::new();
    for (path, file) in files.range(PathBuf::from(SOURCES)..) {
        if !path.starts_with(SOURCES) {
            break;
        }
        match part_of(path) {
            Some(part) => parts.entry(part).or_default().push(path),
            None => aliases.extend(&file.uses.renames),
        }
    }
    let uses = |path: &Path| files.get(path).map(|file| &file.uses);
    let declares = |path: &&Path| uses(path).is_some_and(|uses| uses.declares.contains(scenario));
    let home = parts.iter().find(|(_, own)| own.iter().any(&declares));
    // A scenario that is not found may depend on all of them.
    let Some((home, _)) = home else {
        return BTreeSet::new();
    };
    let mut needed = BTreeSet::new();
    let mut todo = vec![home.clone()];
    while let Some(part) = todo.pop() {
        if !needed.insert(part.clone()) {
            continue;
        }
        let own = parts.get(&part).into_iter().flatten();
        let words: BTreeSet<&String> = own
            .filter_map(|path| uses(path))
            .flat_map(|uses| &uses.words)
            .collect();
        let aliased = |word: &&String| aliases.get(*word).copied();
        let aliased: BTreeSet<&String> = words.iter().filter_map(aliased).collect();
        let names = |part: &&PathBuf| {
            let stem = part.file_name().unwrap_or_default().to_string_lossy();
            words.iter().chain(&aliased).any(|word| **word == *stem)
        };
        todo.extend(parts.keys().filter(names).cloned());
    }
    let others = parts.into_iter().filter(|(part, _)| !needed.contains(part));
    others
        .flat_map(|(_, own)| own.into_iter().map(Path::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::inputs::File;
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |(path, code): &(&str, &str)| {
            let path = Path::new(SOURCES).join(path);
            let file = File::new(&path, code.as_bytes());
            (path, file)
        };
        list.iter().map(file).collect()
    }

    #[test]
    fn a_scenario_depends_on_its_own_part_and_on_those_it_uses() {
        let files = files(&[
            ("mod.rs", "mod drift; mod udp;"),
            (
                "drift/mod.rs",
                "use super::{Checks, extra};\nname: \"drift\",",
            ),
            ("drift/hand.rs", "udp is only a word here"),
            ("extra.rs", "fn x() { super::packet_path::cell() }"),
            ("packet_path/mod.rs", "name: \"packet-path\","),
            ("packet_path/cell.rs", ""),
            ("udp/mod.rs", "name: \"udp\","),
            (
                "cluster/mod.rs",
                "pub(super) use trust::agents;\nuse memory::SCENARIO as MEMORY;",
            ),
            ("cluster/trust/mod.rs", "name: \"trust\","),
            (
                "cluster/install.rs",
                "let a = super::agents::issue();\nname: \"install\",",
            ),
        ]);
        let others = |scenario| {
            let others = of_others(&files, scenario);
            let short = |path: PathBuf| path.strip_prefix(SOURCES).unwrap().display().to_string();
            others.into_iter().map(short).collect::<Vec<_>>()
        };
        let cluster = ["cluster/install.rs", "cluster/trust/mod.rs"];
        assert_eq!(others("drift"), [&cluster[..], &["udp/mod.rs"]].concat());
        let guest = ["drift/hand.rs", "drift/mod.rs", "extra.rs"];
        assert_eq!(others("udp").len(), 7);
        let path = ["packet_path/cell.rs", "packet_path/mod.rs", "udp/mod.rs"];
        assert_eq!(others("install"), [&guest[..], &path].concat());
        assert!(others("unknown").is_empty());
    }
}
