//! The table of mutations, with the test that must fail for each. Touches nothing.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// One mutation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Description in a sentence.
    pub(super) name: String,
    /// The file; in the table, relative to the sources of the subject.
    file: PathBuf,
    /// A text that occurs exactly once in the file …
    pub(super) find: String,
    /// … and its replacement.
    pub(super) replace: String,
    /// The test that must fail, as libtest prints its name.
    pub(super) fails: String,
}

/// Parses the rows of a table, with all checks that do not need the code. Files are relative to `sources`.
///
/// # Errors
/// It is not such a table, a field is empty or without effect, or a name occurs twice.
pub(super) fn parse(text: &str, sources: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = serde_saphyr::from_str(text)?;
    let mut names = BTreeSet::new();
    for row in &rows {
        let name = &row.name;
        ensure!(!name.trim().is_empty(), "a row has an empty `name`");
        ensure!(names.insert(name), "{name:?} is there twice");
        ensure!(!row.find.is_empty(), "{name:?}: `find` is empty");
        ensure!(
            row.find != row.replace,
            "{name:?}: `replace` is the same as `find`"
        );
        let inside = |part| matches!(part, Component::Normal(_));
        ensure!(
            row.file.components().all(inside),
            "{name:?}: `file` must lie below the sources"
        );
    }
    for row in &mut rows {
        row.file = Path::new(sources).join(&row.file);
    }
    Ok(rows)
}

/// The rows whose name contains `only`, case-insensitive; all rows without it.
///
/// # Errors
/// No row matches.
pub(super) fn choose(mut rows: Vec<Row>, only: Option<&str>) -> Result<Vec<Row>> {
    let part = only.unwrap_or_default().to_lowercase();
    let count = rows.len();
    rows.retain(|row| row.name.to_lowercase().contains(&part));
    if rows.is_empty() {
        bail!("none of {count} mutations has {part:?} in its name");
    }
    Ok(rows)
}

impl Row {
    /// The file, below the clone.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// The broken file.
    ///
    /// # Errors
    /// `find` does not occur exactly once.
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        let path = self.path();
        let missing = || {
            format!(
                "{} has no {:?}; update it to the current code",
                path.display(),
                self.find
            )
        };
        let at = text.find(&self.find).with_context(missing)?;
        // Continue at the next character, so that overlapping matches count as two.
        let next = at + self.find.chars().next().map_or(0, char::len_utf8);
        ensure!(
            !text[next..].contains(&self.find),
            "{} has {:?} more than once; take more of the line",
            path.display(),
            self.find
        );
        let (before, after) = (&text[..at], &text[at + self.find.len()..]);
        Ok(format!("{before}{}{after}", self.replace))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;
    use crate::nested;

    fn row(find: &str, replace: &str) -> Row {
        Row {
            name: "readiness is not looked at".into(),
            file: "controller/planner/src/selection.rs".into(),
            find: find.into(),
            replace: replace.into(),
            fails: "cases::endpoints".into(),
        }
    }

    #[test]
    fn a_text_that_is_there_exactly_once_is_replaced() {
        let broken = row("e.ready", "!e.ready").apply("if e.ready {}");
        assert_eq!(broken.unwrap(), "if !e.ready {}");
    }

    #[test]
    fn a_text_that_is_not_there_or_there_twice_is_refused_with_its_file() {
        for (text, problem) in [
            ("if ready {}", "has no \"e.ready\""),
            ("e.ready && e.ready", "more than once"),
        ] {
            let error = row("e.ready", "true").apply(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert!(error.contains("controller/planner/src/selection.rs"));
        }
        assert!(row("aa", "b").apply("aaa").is_err(), "they overlap");
    }

    #[test]
    fn rows_without_effect_or_outside_the_sources_are_refused() {
        let table = |file: &str, replace: &str| {
            format!("- {{name: n, file: {file}, find: a, replace: {replace}, fails: t}}\n")
        };
        let rows = parse(&table("a.rs", "b"), "sources").unwrap();
        assert_eq!(rows[0].path(), Path::new("sources/a.rs"));
        for (text, problem) in [
            (table("a.rs", "a"), "the same as `find`"),
            (table("../a.rs", "b"), "must lie below"),
            (table("/a.rs", "b"), "must lie below"),
            (table("a.rs", "b").repeat(2), "there twice"),
            ("- {name: n}\n".to_owned(), "missing field"),
            (table("a.rs", "b, why: x"), "unknown field"),
        ] {
            let error = format!("{:#}", parse(&text, "sources").unwrap_err());
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn rows_are_chosen_by_a_part_of_their_name() {
        let rows = vec![row("a", "b")];
        assert_eq!(choose(rows.clone(), None).unwrap(), rows);
        assert_eq!(choose(rows.clone(), Some("READINESS")).unwrap(), rows);
        let error = choose(rows, Some("zone")).unwrap_err().to_string();
        assert!(error.contains("zone"), "{error}");
    }

    /// The texts of rows change with the code; this finds outdated ones without compiling.
    #[test]
    fn every_row_fits_the_code_as_it_is() {
        let mut wrong = Vec::new();
        for subject in Subject::ALL {
            let text = std::fs::read_to_string(nested::root().join(subject.facts().table)).unwrap();
            let rows = parse(&text, subject.facts().sources).unwrap();
            assert!(rows.len() >= 7, "only {} rows", rows.len());
            for row in rows {
                let path = nested::root().join(row.path());
                let applied = std::fs::read_to_string(path)
                    .map_err(Into::into)
                    .and_then(|text| row.apply(&text));
                wrong.extend(applied.err().map(|error| format!("{}: {error}", row.name)));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
