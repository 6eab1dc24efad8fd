//! Documents: every link has a target, the README names every page, sentences are short, and words of a private idiom
//! are rare ([`words`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "documents/outputs.rs"]
mod outputs;
#[path = "documents/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

/// Words in a sentence of the median length.
const SENTENCE_LIMIT: usize = 17;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// All documents of the project, by their paths from its root.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    collect(&root(), Path::new(""), &["md"], &mut found);
    assert!(found.len() > 60, "{} documents", found.len());
    found
}

/// Reads the files below a folder with one of these ends, without hidden ones and build output.
fn collect(root: &Path, folder: &Path, ends: &[&str], found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(root.join(folder))
        .unwrap()
        .map(Result::unwrap)
    {
        let name = entry.file_name();
        let path = folder.join(&name);
        let hidden = name == "target" || name.to_string_lossy().starts_with('.');
        if entry.file_type().unwrap().is_dir() && !hidden {
            collect(root, &path, ends, found);
        } else if path
            .extension()
            .is_some_and(|end| ends.iter().any(|wanted| end == *wanted))
        {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            found.insert(path, text);
        }
    }
}

/// The lines outside of code blocks.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The targets of links.
fn links(text: &str) -> Vec<&str> {
    let targets = lines(text).flat_map(|line| line.split("](").skip(1));
    targets
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// The anchors of headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in lines(text).filter_map(|line| line.strip_prefix('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(repeated);
        let free = names.find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part),
            _ => {}
        }
    }
    parts.iter().collect()
}

/// The target of a link in a document: a path from the root, and an anchor.
fn leads_to<'t>(document: &Path, target: &'t str) -> (PathBuf, Option<&'t str>) {
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let folder = document.parent().unwrap();
    let path = match path {
        "" => document.to_owned(),
        path => normal(&folder.join(path)),
    };
    (path, anchor)
}

#[test]
fn every_link_leads_somewhere() {
    let documents = documents();
    let mut broken = Vec::new();
    let mut checked = 0;
    for (document, text) in &documents {
        for target in links(text) {
            checked += 1;
            let (path, anchor) = leads_to(document, target);
            let there = root().join(&path).exists();
            let heading = anchor.is_none_or(|anchor| {
                documents
                    .get(&path)
                    .is_some_and(|text| anchors(text).contains(anchor))
            });
            if !there || !heading {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(checked > 150, "only {checked} links");
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn the_readme_or_an_index_below_it_names_every_page() {
    let documents = documents();
    let mut named = BTreeSet::new();
    let indexes = documents
        .iter()
        .filter(|(path, _)| path.ends_with("README.md"));
    for (document, text) in indexes {
        named.extend(
            links(text)
                .into_iter()
                .map(|target| leads_to(document, target).0),
        );
    }
    let pages = documents.keys().filter(|path| path.starts_with("docs"));
    let unnamed: Vec<_> = pages.filter(|path| !named.contains(*path)).collect();
    assert_eq!(unnamed, Vec::<&PathBuf>::new());
}

#[test]
fn the_readme_is_a_page() {
    let length = documents()[Path::new("README.md")].len();
    assert!(length <= 8 * 1024, "{length} bytes");
}

/// Paragraphs and items of lists, without tables, headings and code.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in lines(text) {
        let line = line.trim();
        let apart = line.is_empty() || line.starts_with(['|', '#', '-', '*']);
        if apart || line.starts_with(|c: char| c.is_ascii_digit()) {
            all.push(String::new());
        }
        if !line.starts_with(['|', '#']) {
            let last = all.last_mut().expect("there is always one");
            last.push(' ');
            last.push_str(line);
        }
    }
    all
}

#[test]
fn sentences_are_short() {
    let mut lengths = Vec::new();
    let read = |path: &&PathBuf| path.starts_with("docs") || path.parent() == Some(Path::new(""));
    let documents = documents();
    for path in documents.keys().filter(read) {
        for paragraph in paragraphs(&documents[path]) {
            let ends = [". ", ": ", "? ", "! "];
            let mut rest = paragraph.as_str();
            loop {
                let end = ends.iter().filter_map(|end| rest.find(end)).min();
                let (sentence, after) = match end {
                    Some(end) => rest.split_at(end + 1),
                    None => (rest, ""),
                };
                lengths.push(sentence.split_whitespace().count());
                if after.is_empty() {
                    break;
                }
                rest = after;
            }
        }
    }
    lengths.retain(|length| *length > 2);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    let said = format!(
        "{} sentences, the median one has {median} words",
        lengths.len()
    );
    writeln!(std::io::stdout(), "{said}").unwrap();
    assert!(lengths.len() > 1000 && median <= SENTENCE_LIMIT, "{said}");
}

#[test]
fn anchors_are_those_of_headings() {
    let text =
        "# The `raw` table\n\n```\n# no heading\n```\n## F1: what, why?\n## F1: what, why?\n";
    let expected = ["the-raw-table", "f1-what-why", "f1-what-why-1"];
    assert_eq!(anchors(text), expected.map(str::to_owned).into());
    assert_eq!(
        leads_to(Path::new("docs/install/kind.md"), "../adr/README.md#index"),
        (PathBuf::from("docs/adr/README.md"), Some("index"))
    );
}
