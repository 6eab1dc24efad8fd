//! What would change, for people and tools. Pure: values in, text out.

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

/// What was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// What is compared with, as it was named.
    pub diff: Option<String>,
    /// What is imagined to be lost.
    pub lost: Lost,
    /// The node it is about; `None` for the whole cluster.
    pub node: Option<String>,
}

/// The document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] when a value cannot be written in this format.
pub fn render(
    document: &DifferenceDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}
