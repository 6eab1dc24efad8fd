//! A node's plan for people and tools, why it is so, and what would change it. Pure: values in, text out.

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

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For tools: every key always present, arrays sorted.
    Json,
    /// The same as JSON, in YAML.
    Yaml,
}

/// The answer cannot be written.
#[derive(Debug, Error)]
#[error("write it as {format}: {reason}")]
pub struct OutputError {
    format: &'static str,
    reason: String,
}

/// The plan of a node as it is streamed, in words; `None` when there is no such node.
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

/// The document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] when a value cannot be written in this format.
pub fn render(
    document: &PlanDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}

/// A document in words of its own, or in those of tools.
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
