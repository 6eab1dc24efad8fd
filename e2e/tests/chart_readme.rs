//! The chart's README lists every value with its default and the comment above it. With
//! `PORTOLAN_WRITE_README=1` the list is written, otherwise compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

const BEGIN: &str = "<!-- values: made of values.yaml by `PORTOLAN_WRITE_README=1 cargo test -p portolan-e2e --test chart_readme` -->\n";
const END: &str = "<!-- end of values -->\n";

/// A key of values.yaml, with the comment above it.
#[derive(Debug, Default)]
struct Key {
    path: Vec<String>,
    comment: String,
}

/// All keys outside of lists, in their order.
fn keys(text: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let (mut comment, mut open) = (Vec::new(), Vec::<(usize, String)>::new());
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim().to_owned());
            continue;
        }
        match content.split_once(':') {
            Some((name, _)) if !content.starts_with('-') => {
                open.retain(|(depth, _)| *depth < indent);
                open.push((indent, name.to_owned()));
                let path = open.iter().map(|(_, name)| name.clone()).collect();
                let comment = comment.join(" ");
                keys.push(Key { path, comment });
            }
            _ => {}
        }
        comment.clear();
    }
    keys
}

/// Keys with a comment, and keys that share the comment of the previous key. Nested keys are part of their default.
fn described(keys: Vec<Key>) -> Vec<Key> {
    let mut all: Vec<Key> = Vec::new();
    for mut key in keys {
        if key.comment.is_empty() {
            // The first nested key belongs to the default of its parent, and so do its siblings.
            let parent = &key.path[..key.path.len() - 1];
            let Some(before) = all
                .iter()
                .rfind(|other| other.path[..other.path.len() - 1] == *parent)
            else {
                continue;
            };
            key.comment.clone_from(&before.comment);
        }
        all.push(key);
    }
    all
}

fn default_of(values: &Value, path: &[String]) -> Value {
    path.iter()
        .fold(values.clone(), |value, name| value[name].clone())
}

fn table(text: &str) -> String {
    let values: Value = serde_saphyr::from_str(text).unwrap();
    let keys = described(keys(text));
    let is_section = |key: &Key| {
        keys.iter()
            .any(|other| other.path.len() > key.path.len() && other.path.starts_with(&key.path))
    };
    let mut out = String::new();
    for key in &keys {
        let section = is_section(key);
        let default = match default_of(&values, &key.path) {
            _ if section => String::new(),
            default => format!("`{default}`"),
        };
        if let [name] = key.path.as_slice() {
            write!(out, "\n### `{name}`\n\n{}\n", key.comment).unwrap();
            out += &match section {
                true => "\n| value | default | what it is |\n| --- | --- | --- |\n".to_owned(),
                false => format!("\nDefault: {default}\n"),
            };
            continue;
        }
        let says = key.comment.replace('|', "\\|");
        writeln!(out, "| `{}` | {default} | {says} |", key.path.join(".")).unwrap();
    }
    out
}

#[test]
fn the_readme_of_the_chart_lists_every_value() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let values = std::fs::read_to_string(here.join("../charts/portolan/values.yaml")).unwrap();
    let path = here.join("../charts/portolan/README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("no begin of values");
    let (found, after) = rest.split_once(END).expect("no end of values");
    let wanted = table(&values) + "\n";
    if std::env::var_os("PORTOLAN_WRITE_README").is_some() {
        let text = [before, BEGIN, &wanted, END, after].concat();
        std::fs::write(path, text).unwrap();
        return;
    }
    assert_eq!(
        found, wanted,
        "generate it again: the line above it says how"
    );
}

#[test]
fn comments_describe_keys_and_defaults_need_none() {
    let text = "# Of a.\na:\n  # Of b,\n  # in two lines | cells.\n  b: 1\n  c: {d: 2}\n  # Of e.\n  e:\n    f:\n    - g: 3\n";
    let expected = "\n### `a`\n\nOf a.\n\n| value | default | what it is |\n| --- | --- | --- |\n\
        | `a.b` | `1` | Of b, in two lines \\| cells. |\n\
        | `a.c` | `{\"d\":2}` | Of b, in two lines \\| cells. |\n\
        | `a.e` | `{\"f\":[{\"g\":3}]}` | Of e. |\n";
    assert_eq!(table(text), expected);
}
