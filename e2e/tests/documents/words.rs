//! Words of a private idiom, for which the field has standard terms, are rare in code, data and documents, and no
//! message contains them. Covers names, which are split at underscores and capitals.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The words and phrases.
const WORDS: [&str; 10] = [
    "told",
    "heard",
    "whoever",
    "nobody",
    "somebody",
    "everybody",
    "anew",
    "so many",
    "what of",
    "is meant to",
];
/// Maximum number of uses of each of them in the whole repository.
const LIMIT: usize = 10;
/// Ends of the files that count.
const ENDS: [&str; 11] = [
    "go", "json", "md", "proto", "rs", "sh", "snap", "toml", "tpl", "txt", "yaml",
];
/// Folders with the code of programs, whose string literals are messages.
const PROGRAMS: [&str; 4] = ["controller", "crds", "node-agent", "proto"];
/// All texts in the chart are for users.
const CHARTS: &str = "charts";

/// The words of a text in lower case, each with its line. An empty word stands for punctuation between words, except
/// for characters that begin or continue a line.
fn words(text: &str) -> Vec<(String, usize)> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut word = String::new();
        let mut was_lower = false;
        for c in line.chars().chain([' ']) {
            if (c.is_uppercase() && was_lower) || !c.is_alphanumeric() {
                words.extend((!word.is_empty()).then(|| (std::mem::take(&mut word), number + 1)));
            }
            was_lower = c.is_lowercase();
            if c.is_alphanumeric() {
                word.extend(c.to_lowercase());
            } else if !c.is_whitespace() && !"_/!#*\\".contains(c) {
                words.push((String::new(), number + 1));
            }
        }
    }
    words
}

/// The lines on which a word or phrase starts.
fn uses(words: &[(String, usize)], phrase: &str) -> Vec<usize> {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let starts = words
        .windows(phrase.len())
        .filter(|found| found.iter().map(|(word, _)| word).eq(&phrase));
    starts.map(|found| found[0].1).collect()
}

/// The length of the first token of Rust code, and whether it is a string literal.
fn token(code: &str) -> (usize, bool) {
    let until = |end: &str, from: usize| {
        let at = code.get(from..).and_then(|rest| rest.find(end));
        at.map_or(code.len(), |at| from + at + end.len())
    };
    let name = code
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(code.len());
    let after = &code[name..];
    let quote = after.trim_start_matches('#');
    let hashes = after.len() - quote.len();
    if matches!(&code[..name], "r" | "br" | "cr") && quote.starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        return (until(&end, name + hashes + 1), true);
    }
    match code.as_bytes() {
        _ if name > 0 => (name, false),
        [b'/', b'/', ..] => (code.find('\n').unwrap_or(code.len()), false),
        [b'/', b'*', ..] => (until("*/", 2), false),
        [b'"', ..] => (quoted(code), true),
        // A character; otherwise a lifetime.
        [b'\'', b'\\', ..] => (until("'", 3), false),
        [b'\'', ..] => match code.char_indices().nth(2) {
            Some((at, '\'')) => (at + 1, false),
            _ => (1, false),
        },
        _ => (code.chars().next().map_or(1, char::len_utf8), false),
    }
}

/// The length of a string literal.
fn quoted(code: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in code.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The string literals of Rust code on their lines. Everything else is blank.
fn literals(code: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(code.len()), code);
    while !rest.is_empty() {
        let (length, is_literal) = token(rest);
        let (text, after) = rest.split_at(length);
        rest = after;
        let mut was_backslash = false;
        for c in text.chars() {
            // The letter of an escape sequence is no part of a word.
            let is_text = is_literal && !was_backslash && c != '\\';
            kept.push(if is_text || c == '\n' { c } else { ' ' });
            was_backslash = c == '\\' && !was_backslash;
        }
    }
    kept
}

/// The messages in a file on their lines: string literals of programs without their tests, help of the command line,
/// and the chart.
fn messages(path: &Path, text: &str) -> String {
    if path.starts_with(CHARTS) {
        return text.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_program = PROGRAMS.iter().any(|folder| path.starts_with(folder))
        && path.iter().any(|part| part == "src")
        && path.extension().is_some_and(|end| end == "rs")
        && !stem.ends_with("tests");
    if !is_program {
        return String::new();
    }
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let has_help = code.contains("clap::");
    let mut found = literals(code);
    if has_help {
        let lines = found.lines().zip(code.lines());
        let lines: Vec<_> = lines
            .map(|(texts, line)| {
                let help = line.trim_start().strip_prefix("///");
                format!("{texts}{}", help.unwrap_or_default())
            })
            .collect();
        found = lines.join("\n");
    }
    found
}

#[test]
fn words_of_a_private_idiom_are_rare_and_in_no_message() {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    super::collect(&super::root(), Path::new(""), &ENDS, &mut files);
    assert!(files.len() > 1000, "{} files", files.len());
    let all: Vec<_> = files
        .iter()
        .map(|(path, text)| (path, words(text), words(&messages(path, text))))
        .collect();
    let mut problems = Vec::new();
    for word in WORDS {
        let (mut places, mut in_messages) = (Vec::new(), Vec::new());
        for (path, text, messages) in &all {
            let place = |line| format!("{}:{line}", path.display());
            places.extend(uses(text, word).into_iter().map(place));
            in_messages.extend(uses(messages, word).into_iter().map(place));
        }
        let count = format!(
            "{word:?}: {} of at most {LIMIT} uses, {} in messages",
            places.len(),
            in_messages.len()
        );
        writeln!(std::io::stdout(), "{count}").unwrap();
        if places.len() > LIMIT || !in_messages.is_empty() {
            problems.push(format!(
                "{count}\n  all: {places:?}\n  in messages: {in_messages:?}"
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn words_are_split_in_names_and_phrases_end_at_punctuation() {
    let text =
        "/// One\n/// two.\nfn one_two() -> OneTwo {\n    // one, two\n    \"{one} two\"\n}\n";
    assert_eq!(uses(&words(text), "one two"), [1, 3, 3]);
    assert_eq!(uses(&words(text), "two"), [2, 3, 3, 4, 5]);
}

#[test]
fn messages_are_literals_and_help_without_comments_and_tests() {
    let code = concat!(
        "// word\nfn f<'a>(word: char) {\n",
        "    g('\"', '\\'', b\"a\\nword\", \"a \\\n    word\", r#\"a \"word\"\"#);\n}\n",
        "#[cfg(test)]\nmod tests {\n    const A: &str = \"word\";\n}\n"
    );
    let lines = |path, code: &str| uses(&words(&messages(Path::new(path), code)), "word");
    assert_eq!(lines("controller/src/a.rs", code), [3, 4, 4]);
    assert_eq!(lines("controller/src/a_tests.rs", code), [0; 0]);
    assert_eq!(lines("controller/tests/a.rs", code), [0; 0]);
    assert_eq!(lines("charts/a.yaml", "# word\n"), [1]);
    let help = "use clap::Args;\n/// Word.\n// word\nstruct Word;\n";
    assert_eq!(lines("node-agent/src/a.rs", help), [2]);
}
