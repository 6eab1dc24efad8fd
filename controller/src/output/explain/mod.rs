//! Explains why a node serves a Service as it does. Pure: values in, text out.

mod document;
mod table;
mod write;

use std::net::IpAddr;

use portolan_planner::explain::Located;

use super::{Format, OutputError, written};
pub use document::*;
pub use write::{not_readable, of_explanation};

/// The client asked about, with its address located.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Every kind of client.
    EveryKind,
    /// The client with this address.
    Address(Located),
    /// A client outside the cluster.
    Outside,
    /// The node itself.
    Node,
}

/// The client asked about, before its address is located.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The client with this address.
    Address(IpAddr),
    /// A client outside the cluster.
    Outside,
    /// The node itself.
    Node,
}

impl std::str::FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "outside" => Ok(Self::Outside),
            "node" => Ok(Self::Node),
            address => address
                .parse()
                .map(Self::Address)
                .map_err(|_| "expected the IP address of a pod, outside, or node".to_owned()),
        }
    }
}

/// Renders the document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] if a value cannot be written in this format.
pub fn render(
    document: &ExplanationDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}
