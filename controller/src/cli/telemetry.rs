//! Flags of `run` about logs and traces, and their setup.

use std::io::{self, IsTerminal as _};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use portolan_plan::Period;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::agent_registry::AgentRegistry;
use crate::store::Store;
use crate::telemetry::changes::{
    self, Changes, Endpoint, Figures, NoteReceiver, SPANS, Sampling, Task,
};

#[derive(Debug, Args)]
pub(super) struct TelemetryArguments {
    /// Log filter: error, warn, info, debug, or a directive such as portolan_controller=debug.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "PORTOLAN_LOG"
    )]
    log: String,
    /// Format of log lines.
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        env = "PORTOLAN_LOG_FORMAT"
    )]
    log_format: LogFormat,
    /// OTLP/gRPC endpoint for traces of changes (a collector or Jaeger), such as http://127.0.0.1:4317. Traces cover
    /// the agents, which export nothing themselves.
    #[arg(long, value_name = "URL", env = "PORTOLAN_TRACES")]
    traces: Option<String>,
    /// Share of changes whose traces are kept, 0 to 1. Slow and failed changes are always kept, up to 60 per minute.
    #[arg(
        long,
        value_name = "SHARE",
        env = "PORTOLAN_TRACES_SHARE",
        default_value = "0.1",
        value_parser = share
    )]
    traces_share: f64,
    /// Latency above which a change counts as slow, from its trigger in the cluster to the last node.
    #[arg(
        long,
        value_name = "DURATION",
        env = "PORTOLAN_TRACES_SLOW",
        default_value = "5s"
    )]
    traces_slow: Period,
}

/// Formats of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

/// Senders and settings of telemetry.
#[derive(Debug)]
pub(super) struct Telemetry {
    pub(super) changes: Changes,
    pub(super) figures: Arc<Figures>,
    notes: NoteReceiver,
    traces: Option<(Endpoint, Sampling)>,
}

impl TelemetryArguments {
    /// Sets up logs and traces.
    ///
    /// # Errors
    /// Names the flag, the problem and the expected form.
    pub(super) fn start(self) -> Result<Telemetry, String> {
        let filter = EnvFilter::try_new(&self.log)
            .map_err(|error| format!("--log {:?}: {error}", self.log))?;
        let endpoint = self.traces.filter(|text| !text.is_empty());
        let endpoint = endpoint.map(|text| Endpoint::from_str(&text)).transpose();
        let endpoint = endpoint.map_err(|error| format!("--traces: {error}"))?;
        let figures: Arc<Figures> = Arc::default();
        let (changes, notes) = Changes::new(figures.clone(), endpoint.is_some());
        // Spans of changes are neither log lines nor prefixes of them.
        let no_parts = filter_fn(|of| !(of.is_span() && of.target() == SPANS));
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        let log = lines.with_filter(filter.and(no_parts));
        // Not `Some` or `None` layers: with a `None` layer, callsites that no layer wants are evaluated each time,
        // and HTTP/2 creates several useless spans per message.
        let mut layers = vec![log.boxed()];
        if endpoint.is_some() {
            layers.push(changes::layer(changes.clone()).boxed());
        }
        tracing_subscriber::registry().with(layers).init();
        let sampling = Sampling::new(self.traces_share, self.traces_slow.as_duration());
        Ok(Telemetry {
            changes,
            figures,
            notes,
            traces: endpoint.map(|endpoint| (endpoint, sampling)),
        })
    }
}

impl Telemetry {
    /// Starts following changes under this controller's name. Must be called within the runtime.
    pub(super) fn follow(
        self,
        agent_registry: Arc<AgentRegistry>,
        store: Arc<Store>,
        own_name: &str,
    ) {
        let task = Task::new(self.notes, agent_registry, store, self.figures);
        let task = match self.traces {
            Some((endpoint, sampling)) => task.tracing(endpoint, sampling, own_name),
            None => task,
        };
        // Ends when the last sender of notes is dropped.
        drop(tokio::spawn(task.run()));
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a number from 0 to 1, like 0.1 for every tenth".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_within_their_range() {
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(share("1"), Ok(1.0));
        for wrong in ["-1", "1.1", "NaN", "ten", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
