//! Why a node serves a Service as it does, for people and tools. Pure: values in, text out.

mod document;
mod table;
mod write;

use std::net::IpAddr;

use portolan_planner::explain::Located;

use super::{Format, OutputError, written};
pub use document::*;
pub use write::{not_readable, of_explanation};

/// The client that was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Every kind of client.
    Everybody,
    /// Whoever has this address.
    Address(Located),
    /// Somebody outside the cluster.
    Outside,
    /// The node itself.
    Node,
}

/// Which client somebody asks about, before the address is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Whoever has this address.
    Address(IpAddr),
    /// Somebody outside the cluster.
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
                .map_err(|_| "write the IP address of a pod, outside or node".to_owned()),
        }
    }
}

/// The document as text that ends with a line break.
///
/// # Errors
/// [`OutputError`] when a value cannot be written in this format.
pub fn render(
    document: &ExplanationDocument,
    format: Format,
    colour: bool,
) -> Result<String, OutputError> {
    written(document, format, || table::render(document, colour))
}
