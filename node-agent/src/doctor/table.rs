//! Renders a diagnosis as text: problems first, each with a remedy on one line for copying, then the passed
//! checks in few lines. At most 100 columns wide, except for remedies.

use super::{Diagnosis, Finding, Level};

/// Style of the output.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Colours, for terminals only.
    pub colour: bool,
    /// Include the findings of passed checks.
    pub all: bool,
}

const WIDTH: usize = 100;
/// Column of the text, after level and check.
const INDENT: usize = 24;

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// The name of a level, as wide as the widest.
    fn level(self, level: Level) -> String {
        match level {
            Level::Ok => self.paint("32", "ok  "),
            Level::Warn => self.paint("33", "warn"),
            Level::Fail => self.paint("1;31", "FAIL"),
        }
    }
}

/// Renders the diagnosis as text.
pub fn render(diagnosis: &Diagnosis, style: Style) -> String {
    let mut text = String::new();
    let node = diagnosis.node.as_deref();
    let node = node.map_or_else(|| "This node".to_owned(), |node| format!("Node {node}"));
    let title = style.paint("1", &node);
    line(&mut text, &format!("{title}: {}", counts(diagnosis)));
    let of = |level: Level| {
        let findings = diagnosis.findings.iter();
        findings.filter(move |finding| finding.level == level)
    };
    for level in [Level::Fail, Level::Warn] {
        for finding in of(level) {
            text.push('\n');
            block(&mut text, finding, style);
        }
    }
    if of(Level::Ok).next().is_some() {
        text.push('\n');
    }
    if style.all {
        of(Level::Ok).for_each(|finding| block(&mut text, finding, style));
    } else {
        group(&mut text, of(Level::Ok), style);
    }
    text
}

fn counts(diagnosis: &Diagnosis) -> String {
    let count = |level| diagnosis.count(level);
    let warnings = match count(Level::Warn) {
        1 => "1 warning".to_owned(),
        count => format!("{count} warnings"),
    };
    let (fail, ok) = (count(Level::Fail), count(Level::Ok));
    format!("{fail} failed, {warnings}, {ok} passed")
}

fn block(text: &mut String, finding: &Finding, style: Style) {
    let mut start = format!(
        "{}  {:<17} ",
        style.level(finding.level),
        finding.check.as_str()
    );
    for part in wrapped(&finding.message) {
        line(text, &format!("{start}{part}"));
        start = " ".repeat(INDENT);
    }
    if let Some(remedy) = &finding.remedy {
        let arrow = style.paint("36", "->");
        line(text, &format!("{:INDENT$}{arrow} {remedy}", ""));
    }
}

/// Lists the passed checks by name only.
fn group<'a>(text: &mut String, findings: impl Iterator<Item = &'a Finding>, style: Style) {
    let names: Vec<_> = findings.map(|finding| finding.check.as_str()).collect();
    let mut start = format!("{}  ", style.level(Level::Ok));
    for part in wrapped(&names.join(", ")) {
        line(text, &format!("{start}{part}"));
        start = " ".repeat(6);
    }
}

/// Wraps a text; a word longer than a line gets a line of its own.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn line(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}
