//! Jaeger as a program: starts it, queries its API, and draws traces as text and as a picture.

mod check;
mod draw;
#[cfg(test)]
mod fixture;
mod picture;
mod query;
pub mod show;
mod trace;

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub use draw::lines;
pub use picture::picture;
pub use query::Query;
pub use trace::{Span, Trace};

use crate::program::{Program, Running};
use crate::waits::{LATER, Waits};

/// Its other listeners; any free port of loopback will do.
const UNUSED: [&str; 9] = [
    "admin.http",
    "collector.grpc-server",
    "collector.http-server",
    "collector.otlp.http",
    "http-server",
    "query.grpc-server",
    "processor.jaeger-binary.server",
    "processor.jaeger-compact.server",
    "processor.zipkin-compact.server",
];

/// Where it serves, on 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Takes traces: OTLP over gRPC.
    pub otlp: u16,
    /// Shows them, to programs and to people.
    pub query: u16,
}

/// Runs, with its store in memory, until it is dropped.
#[derive(Debug)]
pub struct Jaeger {
    running: Running,
    ports: Ports,
}

impl Jaeger {
    /// Starts it, and waits until it answers. What it prints goes to `log`.
    ///
    /// # Errors
    /// When it is not there, ends, or does not answer in time; with its output.
    pub fn start(waits: Waits, ports: Ports, log: &Path) -> Result<Self> {
        let mut words = vec![
            format!("--collector.otlp.grpc.host-port=127.0.0.1:{}", ports.otlp),
            format!("--query.http-server.host-port=127.0.0.1:{}", ports.query),
        ];
        words.extend(UNUSED.map(|what| {
            format!("--{what}.host-port=127.0.0.1:0")
                .replace(".server.host-port", ".server-host-port")
        }));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let log_file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let jaeger = Self {
            running: Program::Jaeger.start(&words, &log_file)?,
            ports,
        };
        let query = jaeger.query();
        let said = || std::fs::read_to_string(log).unwrap_or_default();
        let runs = || jaeger.check_running().with_context(said);
        waits.eventually_while("Jaeger", LATER, runs, || {
            query.answers().then_some(()).with_context(said)
        })?;
        Ok(jaeger)
    }

    /// Asks it.
    #[must_use]
    pub fn query(&self) -> Query {
        Query::on_loopback(self.ports.query)
    }

    /// Where it serves.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// With its exit status.
    pub fn check_running(&self) -> Result<()> {
        match self.running.ended()? {
            Some(status) => bail!("Jaeger ended with {status}"),
            None => Ok(()),
        }
    }
}
