//! Results of several runs side by side, as a Markdown table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::suite::{Outcome, Verdict};

/// Prints a line for each test and a column for each file, which is named after its proxy.
pub(super) fn table(files: &[PathBuf]) -> Result<String> {
    let mut rows: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
    for (column, file) in files.iter().enumerate() {
        let reading = || format!("read {}", file.display());
        let text = fs::read_to_string(file).with_context(reading)?;
        let outcomes: Vec<Outcome> = serde_json::from_str(&text).with_context(reading)?;
        for outcome in outcomes {
            let cell = cell(&outcome);
            rows.entry(outcome.name).or_default().insert(column, cell);
        }
    }
    let names: Vec<String> = files.iter().map(|file| title(file)).collect();
    let mut text = format!(
        "| test | {} |\n| --- |{}\n",
        names.join(" | "),
        " --- |".repeat(names.len())
    );
    for (name, cells) in rows {
        let cells = (0..files.len()).map(|column| cells.get(&column).map_or("–", String::as_str));
        let cells: Vec<&str> = cells.collect();
        let name = name
            .trim_start_matches("[sig-network] ")
            .replace('|', "\\|");
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    Ok(text)
}

fn title(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn cell(outcome: &Outcome) -> String {
    let seconds = outcome.seconds;
    match &outcome.verdict {
        Verdict::Passed if outcome.runs > 1 => format!("passed when run again, {seconds} s"),
        Verdict::Passed => format!("passed, {seconds} s"),
        Verdict::Failed(_) => format!("**failed**, {seconds} s"),
        Verdict::Skipped(_) => "skips itself".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_one_run_lacks_has_a_dash_there() {
        let folder = crate::work_folder::WorkFolder::private().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let one = r#"[{"name": "[sig-network] A", "verdict": "passed", "seconds": 5}]"#;
        let two = r#"[{"name": "[sig-network] A", "verdict": {"failed": "x"}, "seconds": 6},
            {"name": "B", "verdict": {"skipped": "y"}, "seconds": 1}]"#;
        let files = [write("portolan.json", one), write("ipvs.json", two)];
        assert_eq!(
            table(&files).unwrap(),
            "| test | portolan | ipvs |\n| --- | --- | --- |\n| B | – | skips itself |\n\
             | A | passed, 5 s | **failed**, 6 s |\n"
        );
    }
}
