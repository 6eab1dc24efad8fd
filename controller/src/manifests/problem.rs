//! What stands in the way, and where.

use std::fmt;

use crate::object::ObjectId;

/// A place in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: String,
    /// The number of the document in the file, from 1, and the line it begins at, from 1.
    document: Option<(usize, usize)>,
    /// The number of the item in a list, from 1.
    item: Option<usize>,
}

impl Place {
    /// A whole file.
    pub fn file(name: &str) -> Self {
        Self {
            file: name.into(),
            document: None,
            item: None,
        }
    }

    pub(crate) fn document(name: &str, number: usize, line: usize) -> Self {
        Self {
            document: Some((number, line)),
            ..Self::file(name)
        }
    }

    pub(super) fn item(&self, number: usize) -> Self {
        Self {
            item: Some(number),
            ..self.clone()
        }
    }

    /// The line that its document begins at.
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
        self.item.map_or(Ok(()), |item| write!(f, ": item {item}"))
    }
}

/// How much a problem takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object is planned; something in it has no effect.
    Warning,
    /// The object is not planned.
    LeftOut,
    /// A document or file cannot be read: whatever is in it is not planned.
    Unreadable,
}

/// Something that was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How much it takes away.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// Which object, like `Service shop/cart`.
    pub object: Option<String>,
    /// The field, what is wrong with it, and what to check next.
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

/// Where, which object, and what is wrong.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.message)
    }
}
