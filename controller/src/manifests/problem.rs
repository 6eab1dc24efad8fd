//! Problems in manifests, and their places.

use std::fmt;

use super::tree::Step;
use portolan_planner::model::ObjectId;

/// A place in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: String,
    /// The number of the document in the file, from 1, and the line it begins at, from 1.
    document: Option<(usize, usize)>,
    /// The number of the item in a list, from 1, and so on for lists in it.
    items: Vec<usize>,
}

impl Place {
    /// A whole file.
    pub fn file(name: &str) -> Self {
        Self {
            file: name.into(),
            document: None,
            items: Vec::new(),
        }
    }

    pub(crate) fn document(name: &str, number: usize, line: usize) -> Self {
        Self {
            document: Some((number, line)),
            ..Self::file(name)
        }
    }

    pub(super) fn item(&self, number: usize) -> Self {
        let mut place = self.clone();
        place.items.push(number);
        place
    }

    /// The path to it in its document.
    pub(super) fn way(&self) -> Vec<Step> {
        let list = || Step::Key("items".into());
        let items = self.items.iter();
        items
            .flat_map(|number| [list(), Step::Item(number - 1)])
            .collect()
    }

    /// The first line of its document.
    pub(super) fn first_line(&self) -> usize {
        self.document.map_or(1, |(_, line)| line)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((number, line)) = self.document {
            write!(f, ": document {number} (line {line})")?;
        }
        self.items
            .iter()
            .try_for_each(|item| write!(f, ": item {item}"))
    }
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object is planned; something in it has no effect.
    Warning,
    /// The object is not planned.
    LeftOut,
    /// A document or file is unreadable: none of its contents is planned.
    Unreadable,
}

/// A skipped value, object, document or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The place.
    pub place: Place,
    /// The object, like `Service shop/cart`.
    pub object: Option<String>,
    /// The field, the problem, and what to check next.
    pub message: String,
}

impl Problem {
    pub(super) fn of(severity: Severity, place: Place, id: &ObjectId, message: String) -> Self {
        Self {
            severity,
            place,
            object: Some(id.to_string()),
            message,
        }
    }

    pub(super) fn at(severity: Severity, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity,
            place,
            object: None,
            message: message.into(),
        }
    }
}

/// The place, the object and the problem in one line. Control characters in manifests are escaped, so they have no
/// effect on a terminal.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}: ", self.place);
        if let Some(object) = &self.object {
            text = text + object + ": ";
        }
        text += &self.message;
        f.write_str(&shown(&text))
    }
}

/// A text of manifests as one line, without effect on a terminal.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match is_for_terminals(letter) {
            true => shown.extend(letter.escape_unicode()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Whether a character moves the cursor, changes colours or the direction, or ends the line.
fn is_for_terminals(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
