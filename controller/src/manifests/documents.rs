//! Splits a file into documents, which are parsed separately, so that a broken one does not affect the others.

use std::borrow::Cow;

use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Budget, Options};

use super::problem::{Place, Problem, Severity};
use super::tree::{self, Tree};

/// A document of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    /// Its number in the file, from 1; empty ones do not count.
    pub(crate) number: usize,
    /// The line of the file it begins at, from 1.
    pub(crate) line: usize,
    text: &'a str,
    /// Whether it is JSON, or looks like it.
    json: bool,
}

/// An unreadable document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The line within the document, from 1.
    line: usize,
    reason: String,
}

impl Unreadable {
    pub(crate) fn into_problem(self, place: Place) -> Problem {
        let line = place.first_line() + self.line - 1;
        let message = format!("line {line}: {}; check the text there", self.reason);
        Problem::at(Severity::Unreadable, place, message)
    }
}

/// Splits a file. A line that begins with `---` ends a document: YAML allows it nowhere else, not even in quotes.
pub(crate) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{')
        && let Some(documents) = split_json(text)
    {
        return documents;
    }
    let mut documents = Vec::new();
    let mut push = |start: usize, line: usize, end: usize| {
        let text = &text[start..end];
        let content = |line: &str| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            !(line.is_empty() || line.starts_with('#') || line == "...")
        };
        // Report the line of the content, not of the separator.
        if let Some(skipped) = text.lines().position(content) {
            let (number, line) = (documents.len() + 1, line + skipped);
            let offset: usize = text.split_inclusive('\n').take(skipped).map(str::len).sum();
            documents.push(Document {
                number,
                line,
                text: &text[offset..],
                json: false,
            });
        }
    };
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if is_separator(line) && offset > start {
            push(start, first_line, offset);
            (start, first_line) = (offset, index + 1);
        }
        offset += line.len();
    }
    push(start, first_line, offset);
    documents
}

fn is_separator(line: &str) -> bool {
    let rest = line.strip_prefix("---");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Splits consecutive JSON objects; `None` if the text is something else, like YAML in braces.
fn split_json(text: &str) -> Option<Vec<Document<'_>>> {
    let mut documents = Vec::new();
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let mut start = 0;
    while let Some(object) = objects.next() {
        object.ok()?;
        let end = objects.byte_offset();
        let skipped = text[start..end].len() - text[start..end].trim_start().len();
        let line = 1 + text[..start + skipped].matches('\n').count();
        let number = documents.len() + 1;
        documents.push(Document {
            number,
            line,
            text: &text[start + skipped..end],
            json: true,
        });
        start = end;
    }
    Some(documents)
}

/// Parses the document to a tree of plain values.
pub(crate) fn tree(document: &Document<'_>) -> Result<Tree, Unreadable> {
    if document.json {
        let mut reader = serde_json::Deserializer::from_str(document.text);
        return tree::read(&mut reader).map_err(|error| Unreadable {
            line: error.line().max(1),
            reason: error.to_string(),
        });
    }
    let text = with_breaks_of_kubectl(document.text);
    serde_saphyr::with_deserializer_from_str_with_options(&text, options(), |reader| {
        tree::read(reader)
    })
    .map_err(|error| unreadable(&error, &text, document.text))
}

/// kubectl writes YAML 1.1, in which these characters end a line in a block scalar. The parser implements YAML 1.2,
/// in which they do not, so the next line would be indented wrongly.
const BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

fn with_breaks_of_kubectl(text: &str) -> Cow<'_, str> {
    match text.contains(BREAKS) {
        true => text.replace(BREAKS, "\n").into(),
        false => text.into(),
    }
}

/// Converts the parser's error to the line in the user's file.
fn unreadable(error: &serde_saphyr::Error, parsed: &str, own: &str) -> Unreadable {
    let error = error.without_snippet();
    let place = error.location();
    let line = place.and_then(|place| usize::try_from(place.line()).ok());
    let mut reason = error.to_string();
    if let Some(place) = place {
        // A line of the document would be misleading: the user looks at the file.
        let own = format!(" at line {}, column {}", place.line(), place.column());
        reason = reason.replace(&own, "");
    }
    let mut reason = reason.lines().next().unwrap_or_default().to_owned();
    if reason.starts_with("budget breached") {
        reason = "aliases or nesting make it larger than any manifest".into();
    }
    let line = line.unwrap_or(1).max(1);
    let before: usize = parsed
        .split_inclusive('\n')
        .take(line - 1)
        .map(|line| line.chars().count())
        .sum();
    let added = own
        .chars()
        .take(before)
        .filter(|letter| BREAKS.contains(letter))
        .count();
    Unreadable {
        line: line - added,
        reason,
    }
}

/// Limits of the parser. A list of all objects of a large cluster is one document: allows 10,000 Services with their
/// endpoints, and rejects alias bombs.
fn options() -> Options {
    let budget: Option<Budget> = serde_saphyr::budget! {
        max_events: 100_000_000,
        max_nodes: 50_000_000,
        max_total_scalar_bytes: 512 * 1024 * 1024,
        max_depth: 64,
        max_aliases: 10_000,
        max_anchors: 10_000,
    };
    let alias_limits = serde_saphyr::alias_limits! {
        max_total_replayed_events: 1_000_000,
        max_replay_stack_depth: 16,
        max_alias_expansions_per_anchor: 10_000,
    };
    serde_saphyr::options! {
        budget: budget,
        alias_limits: alias_limits,
        emit_comments: false,
        with_snippet: false,
        // Duplicate keys are found by the tree.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // kubectl prints the texts oN and nO without quotes, but quotes on and no.
        strict_booleans: true,
        // kubectl prints 12e4567 without quotes, perhaps a commit hash in a label: no number is that large, so it
        // means text. No planned field looks like that.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<(usize, usize)> {
        split(text)
            .iter()
            .map(|document| (document.number, document.line))
            .collect()
    }

    #[test]
    fn documents_are_numbered_from_one_and_know_their_line() {
        assert_eq!(places("a: 1\n---\nb: 2\n"), [(1, 1), (2, 3)]);
        assert_eq!(
            places("# head\n\n---\n\na: 1\n---\n# nothing\n---\nb: 2"),
            [(1, 5), (2, 9)]
        );
        assert_eq!(places("--- {a: 1}\n--- {b: 2}\n"), [(1, 1), (2, 2)]);
        assert_eq!(
            places("a: |\n  ---\n  text\n---\r\nb: 1\r\n"),
            [(1, 1), (2, 5)]
        );
        assert_eq!(places(""), []);
        assert_eq!(places("# only words\n---\n...\n"), []);
    }

    #[test]
    fn json_objects_stand_one_after_another() {
        assert_eq!(places("{\"a\": 1}\n\n {\"b\":\n 2}"), [(1, 1), (2, 3)]);
        assert_eq!(
            places("{a: 1}\n---\n{b: 2}"),
            [(1, 1), (2, 3)],
            "braces are YAML too"
        );
    }

    #[test]
    fn a_broken_document_is_named_by_its_line_and_affects_no_other() {
        let text = "a: 1\n---\nb: 2\nc: [1,\n---\nd: 3\n";
        let documents = split(text);
        assert!(tree(&documents[0]).is_ok());
        assert!(tree(&documents[1]).is_err());
        assert_eq!(tree(&documents[2]).unwrap().value["d"], 3);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let inner = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{}]\n", inner.trim_end_matches(", "));
        }
        let error = tree(&split(&text)[0]).unwrap_err();
        assert!(error.reason.contains("aliases"), "{}", error.reason);
    }

    #[test]
    fn many_comments_are_no_obstacle() {
        let text = format!("a:\n{}  b: 1\n", "  # words\n".repeat(500));
        assert_eq!(tree(&split(&text)[0]).unwrap().value["a"]["b"], 1);
    }
}
