//! The report on each field, for people and for tools.

use serde::Serialize;

use super::{Conversion, Finding, Outcome};
use crate::output::text::{counted, hang, line};

/// The column in which results begin.
const INDENT: usize = 48;

/// A conversion as JSON.
#[derive(Serialize)]
struct Document<'a> {
    /// The place of the configuration.
    place: &'a str,
    /// kube-proxy's mode.
    mode: &'a str,
    /// Whether nodes behave as before.
    exact: bool,
    findings: &'a [Finding],
}

impl Conversion {
    /// The report as JSON.
    ///
    /// # Errors
    /// None known: all values serialize to JSON.
    pub fn report_json(&self) -> serde_json::Result<String> {
        let document = Document {
            place: &self.place,
            mode: self.mode,
            exact: self.is_exact(),
            findings: &self.findings,
        };
        serde_json::to_string_pretty(&document).map(|text| text + "\n")
    }

    /// The report as text.
    pub fn report(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            &format!("{}: kube-proxy in mode {}", self.place, self.mode),
        );
        for outcome in Outcome::ALL {
            let group = self
                .findings
                .iter()
                .filter(|finding| finding.outcome == outcome);
            let group: Vec<_> = group.collect();
            if group.is_empty() {
                continue;
            }
            line(&mut text, "");
            line(
                &mut text,
                &format!("{} ({})", heading(outcome), group.len()),
            );
            rows(&mut text, &group);
        }
        line(&mut text, "");
        let open = self
            .findings
            .iter()
            .filter(|finding| !finding.outcome.is_exact());
        let end = match open.count() {
            0 => "Nodes behave as before.".to_owned(),
            open => format!(
                "{} to check; the others behave as before.",
                counted(open, "field")
            ),
        };
        line(&mut text, &end);
        text
    }
}

fn heading(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::ChangesMeaning => "Changes its meaning",
        Outcome::NoEqual => "Has no equivalent",
        Outcome::Unknown => "Not a known field",
        Outcome::CarriedOver => "Carried over",
        Outcome::FilledIn => "Not set, and kube-proxy's default is not Portolan's",
        Outcome::Same => "The same by default, so not written",
        Outcome::NotNeeded => "Not needed",
    }
}

/// Writes the fields with the same outcome; fields with the same note share a row.
fn rows(text: &mut String, findings: &[&Finding]) {
    let mut rows: Vec<(Vec<String>, String)> = Vec::new();
    for finding in findings {
        let name = match &finding.value {
            Some(value) => format!("{}={value}", finding.field),
            None => finding.field.clone(),
        };
        let parts = [
            finding.becomes.as_deref().unwrap_or_default(),
            &finding.note,
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let note = parts.collect::<Vec<_>>().join("; ");
        match rows.iter_mut().find(|(_, other)| *other == note) {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], note)),
        }
    }
    // Fields without a note come last.
    rows.sort_by_key(|(_, note)| note.is_empty());
    for (names, note) in rows {
        match names.as_slice() {
            names if note.is_empty() => hang(text, "  ", 2, &names.join(", ")),
            [name] if name.chars().count() + 4 <= INDENT => {
                let width = INDENT - 4;
                hang(text, &format!("  {name:<width$}  "), INDENT, &note);
            }
            names => {
                hang(text, "  ", 2, &names.join(", "));
                hang(text, &" ".repeat(INDENT), INDENT, &note);
            }
        }
    }
}
