//! The page of limits names constants that exist, with their values.

use std::collections::BTreeSet;

use crate::root;

/// A row: what it says, the file and the constant.
struct Row {
    value: String,
    file: String,
    constant: String,
}

fn rows(page: &str) -> Vec<Row> {
    let cells = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
        let [_, value, place] = cells.as_slice() else {
            return None;
        };
        let mut code = place.split('`').skip(1).step_by(2);
        let (file, constant) = (code.next()?.to_owned(), code.next()?.to_owned());
        Some(Row {
            value: (*value).to_owned(),
            file,
            constant,
        })
    });
    cells.collect()
}

/// The numbers in a text, without separators of thousands.
fn numbers(text: &str) -> BTreeSet<String> {
    let digits = text.replace([',', '_'], "");
    let parts = digits.split(|c: char| !c.is_ascii_digit());
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// What is wrong with a row.
fn problem(row: &Row) -> Option<String> {
    let Row {
        value,
        file,
        constant,
    } = row;
    let Ok(text) = std::fs::read_to_string(root().join(file)) else {
        return Some(format!("{file} does not exist"));
    };
    let start = format!("const {constant}: ");
    let Some((_, rest)) = text.split_once(&start) else {
        return Some(format!("{file} has no {constant}"));
    };
    let (_, definition) = rest.split_once('=')?;
    let definition = definition.split(';').next()?;
    let (said, defined) = (numbers(value), numbers(definition));
    let missing = said.iter().find(|number| !defined.contains(*number));
    let is_empty = said.is_empty();
    (is_empty || missing.is_some()).then(|| format!("{constant} is{definition}, not {value}"))
}

#[test]
fn the_limits_in_the_document_are_those_in_the_code() {
    let page = std::fs::read_to_string(root().join("docs/reference/limits.md")).unwrap();
    let rows = rows(&page);
    assert!(rows.len() > 40, "only {} rows", rows.len());
    let wrong: Vec<_> = rows.iter().filter_map(problem).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_limit_is_found() {
    let file = "controller/src/lib.rs";
    for (value, file, constant) in [
        ("1 s", "controller/src/none.rs", "MAX"),
        ("1 s", file, "NO_SUCH_CONSTANT"),
        ("17,000 tokens", "e2e/tests/reference/limits.rs", "EXAMPLE"),
    ] {
        let [value, file, constant] = [value, file, constant].map(str::to_owned);
        assert!(
            problem(&Row {
                value,
                file,
                constant
            })
            .is_some()
        );
    }
    let row = Row {
        value: "16,384 tokens".into(),
        file: "e2e/tests/reference/limits.rs".into(),
        constant: "EXAMPLE".into(),
    };
    assert_eq!(problem(&row), None);
    assert_eq!(EXAMPLE, 16_384);
}

/// A constant as in the code.
const EXAMPLE: usize = 16_384;
