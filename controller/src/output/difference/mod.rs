//! Differences between plans for people and tools. Pure: values in, text out.

mod document;
mod table;
mod words;
mod write;

use portolan_planner::compare::Lost;

use super::{Format, OutputError, written};

pub use document::{
    ChangeKind, DifferenceDocument, EndpointsDocument, ExtentDocument, FieldDocument,
    FrontendsDocument, NodeChangeDocument, PortFamilyDocument, PortFrontendDocument,
    ServedChangeDocument, ServedDocument, ServiceChangeDocument, SomeEndpointsDocument,
    SummaryDocument, TermDocument, ZoneShareDocument,
};
pub use write::document;

/// The question that a difference answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// The manifests compared with, as named by the user.
    pub diff: Option<String>,
    /// Zones and nodes assumed to be lost.
    pub lost: Lost,
    /// The node asked about; `None` for the whole cluster.
    pub node: Option<String>,
}

/// Renders the document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] if a value cannot be written in this format.
pub fn render(
    document: &DifferenceDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}
