//! Compares kubectl output with checked-in text. Values that differ between runs (times, generated
//! names, hashes) are replaced.

use anyhow::{Result, bail};

/// Replaces values that differ between runs.
const ANY: &str = "…";
/// Stands for a cell without a value.
const NOTHING: &str = "-";
/// Fields of YAML whose values differ.
const FIELDS: [&str; 8] = [
    "creationTimestamp",
    "generation",
    "heartbeatTime",
    "lag",
    "lastTransitionTime",
    "resourceVersion",
    "since",
    "uid",
];
/// Columns of tables whose values differ.
const COLUMNS: [&str; 2] = ["AGE", "LAG"];
/// The length of a plan hash as text.
const HASH: usize = 32;

/// YAML with variable values replaced.
pub(super) fn yaml(text: &str) -> String {
    let line = |line: &str| {
        let (field, _) = line.split_once(": ").unwrap_or((line, ""));
        let name = field.trim_start().trim_start_matches("- ");
        if FIELDS.contains(&name) {
            return format!("{field}: {ANY}\n");
        }
        without_hashes(line.trim_end()) + "\n"
    };
    text.trim_end().lines().map(line).collect()
}

/// A table with variable values replaced and columns two spaces apart.
pub(super) fn table(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let heads: Vec<&str> = first.split_whitespace().collect();
    // A cell may be empty, so cells are found by column position.
    let starts = heads
        .iter()
        .map(|head| first.find(head).unwrap_or_default());
    let starts: Vec<_> = starts.collect();
    let row = |line: &str| {
        let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
        let cells = starts.iter().zip(ends).zip(&heads);
        let cells = cells.map(|((start, end), head)| {
            let cell = line.get(*start..end.min(line.len())).map(str::trim);
            match cell.unwrap_or_default() {
                _ if COLUMNS.contains(head) => ANY,
                "" => NOTHING,
                cell => cell,
            }
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    heads.join("  ") + "\n" + &lines.map(row).collect::<String>()
}

fn without_hashes(line: &str) -> String {
    let is_hash = |word: &str| word.len() == HASH && word.chars().all(|c| c.is_ascii_hexdigit());
    let words = line.split(' ');
    let words = words.map(|word| {
        if is_hash(word.trim_matches('"')) {
            ANY
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Fails with the first line that differs, and the whole output.
pub(super) fn compare(printed: &str, wanted: &str) -> Result<()> {
    let mut pairs = printed
        .lines()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(wanted.lines().map(Some).chain(std::iter::repeat(None)));
    let longest = printed.lines().count().max(wanted.lines().count());
    match pairs
        .by_ref()
        .take(longest)
        .enumerate()
        .find(|(_, (one, other))| one != other)
    {
        None => Ok(()),
        Some((number, (one, other))) => bail!(
            "line {} is {:?}, wanted {:?}; printed was\n{printed}",
            number + 1,
            one.unwrap_or("missing"),
            other.unwrap_or("nothing"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_replaced_and_nothing_else() {
        let hash = "8c1f0d2e8c1f0d2e8c1f0d2e8c1f0d2e";
        let text = format!("  uid: 17-4\n  - lag: 41ms\n  zone: a\n  appliedHash: {hash}\n");
        assert_eq!(
            yaml(&text),
            "  uid: …\n  - lag: …\n  zone: a\n  appliedHash: …\n"
        );
        let text = "NAME     ZONE   AGE\nnode-1   z      12s\n";
        assert_eq!(table(text), "NAME  ZONE  AGE\nnode-1  z  …\n");
        let text = "NAME     ZONE   AGE\nnode-1          12s\n";
        assert_eq!(table(text), "NAME  ZONE  AGE\nnode-1  -  …\n");
    }

    #[test]
    fn the_first_line_that_differs_is_reported() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        let error = compare("a\nb\n", "a\nc\n").unwrap_err().to_string();
        assert!(error.starts_with(r#"line 2 is "b", wanted "c""#), "{error}");
        assert!(compare("a\n", "a\nc\n").is_err());
        assert!(compare("a\nb\n", "a\n").is_err());
    }
}
