//! The rows of `e2e/semantics.yaml`. Touches nothing.

use anyhow::Result;
use serde::Deserialize;

/// One row.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Its number.
    #[serde(rename = "row")]
    pub(super) number: u32,
    /// The behaviour of Portolan.
    pub(super) says: Option<String>,
    /// Names of the tests that prove it.
    pub(super) proof: Option<Vec<String>>,
    /// Names of further tests, which only `cargo verify --long` runs.
    pub(super) long: Option<Vec<String>>,
    /// Why there is no test.
    pub(super) later: Option<String>,
}

/// All rows.
///
/// # Errors
/// It is not a list of rows; the message has the line.
pub(super) fn read(text: &str) -> Result<Vec<Row>> {
    Ok(serde_saphyr::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_in_their_order() {
        let text = "# head\n- row: 2\n  says: 'One, it is: plain.'\n  proof: [pure/a::b::c]\n  long: [cluster/churn]\n- row: 1\n  later: Not yet.\n";
        let first = Row {
            number: 2,
            says: Some("One, it is: plain.".into()),
            proof: Some(vec!["pure/a::b::c".into()]),
            long: Some(vec!["cluster/churn".into()]),
            later: None,
        };
        let second = Row {
            number: 1,
            says: None,
            proof: None,
            long: None,
            later: Some("Not yet.".into()),
        };
        assert_eq!(read(text).unwrap(), [first, second]);
    }

    #[test]
    fn what_is_no_row_is_refused_with_its_line() {
        for (line, text) in [
            (2, "- row: 1\n  prof: [pure/a]\n"),
            (2, "- row: 1\n  row: 1\n"),
            (1, "- row: one\n"),
            (3, "- row: 1\n  proof: [pure/a]\n  proof: [pure/b]\n"),
            (2, "- row: 1\n  proof: pure/a\n"),
            (2, "- row: 1\n  says: a: b\n"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}")), "{text:?}: {error}");
        }
        assert!(read("rows: []").is_err());
    }
}
