//! HTTP/1.1 server for health checks, `/healthz` and metrics. Request bodies are never read.
//!
//! Touches: the network.

mod connection_limiter;
mod sockets;

pub use sockets::serve;
