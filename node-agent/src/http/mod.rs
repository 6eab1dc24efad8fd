//! HTTP/1.1 server for health checks, `/healthz` and metrics. Request bodies are never read.
//!
//! Touches: the network.

mod guests;
mod sockets;

pub use sockets::serve;
