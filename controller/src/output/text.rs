//! Lines, paragraphs and colours of tables.

use std::fmt::Display;

/// Maximum width of a line, columns.
pub(super) const WIDTH: usize = 100;

/// Colours, for terminals only.
pub(super) struct Style {
    pub(super) colour: bool,
}

impl Style {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(super) fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(super) fn yellow(&self, text: &str) -> String {
        self.paint("33", text)
    }
}

pub(crate) fn line(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}

/// Writes a paragraph with a hanging indent.
pub(super) fn wrap(text: &mut String, paragraph: &str) {
    hang(text, "  ", 4, paragraph);
}

/// Writes a paragraph that begins after `start`; its other lines are indented by `indent` columns.
pub(crate) fn hang(text: &mut String, start: &str, indent: usize, paragraph: &str) {
    let mut current = start.to_owned();
    let mut is_empty = true;
    for word in paragraph.split_whitespace() {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > WIDTH {
            line(text, &current);
            current = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
        is_empty = false;
    }
    line(text, &current);
}

pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

pub(super) fn joined(values: &[impl Display]) -> String {
    if values.is_empty() {
        return "none".into();
    }
    values
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
