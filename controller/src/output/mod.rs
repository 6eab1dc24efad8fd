//! Plans, explanations and differences for people and tools. Pure: values in, text out.

pub mod difference;
pub mod explain;
mod table;
pub(crate) mod text;

use clap::ValueEnum;
use portolan_plan::{EntryHash, NodePlan, PlanDocument};
use portolan_planner::Planner;
use portolan_proto::encode_entry;
use serde::Serialize;
use thiserror::Error;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// JSON for tools: every key always present, arrays sorted.
    Json,
    /// YAML with the same content as JSON.
    Yaml,
}

/// An answer cannot be serialized.
#[derive(Debug, Error)]
#[error("write it as {format}: {reason}")]
pub struct OutputError {
    format: &'static str,
    reason: String,
}

/// The document of a node's plan as it is streamed; `None` for an unknown node.
pub fn plan_document(planner: &Planner, node: &str) -> Option<PlanDocument> {
    let node = planner.node(node)?;
    let entries = planner.entries_for(node).map(|(key, entry)| {
        let hash = EntryHash::of(&key, &encode_entry(&entry));
        (key, hash, entry)
    });
    let plan = NodePlan::from_entries(entries);
    let warnings = planner
        .warnings(node)
        .iter()
        .map(|warning| warning.document())
        .collect();
    PlanDocument::from_plan(&plan, warnings)
}

/// Renders the document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] if a value cannot be written in this format.
pub fn render(
    document: &PlanDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}

/// Renders a document as a table, or serialized for tools.
fn written(
    document: &impl Serialize,
    format: Format,
    table: impl FnOnce() -> String,
) -> Result<String, OutputError> {
    match format {
        Format::Table => Ok(table()),
        Format::Json => serde_json::to_string_pretty(document)
            .map(|text| text + "\n")
            .map_err(|error| OutputError {
                format: "JSON",
                reason: error.to_string(),
            }),
        Format::Yaml => serde_saphyr::to_string(document).map_err(|error| OutputError {
            format: "YAML",
            reason: error.to_string(),
        }),
    }
}
