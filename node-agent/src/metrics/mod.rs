//! Metrics (S-207): kube-proxy's names where the meaning is the same, own names for the rest. The number of series
//! is bounded: addresses and endpoints are never labels, and Service names only with `--service-metrics`, up to the
//! number given there.

mod snapshot;
mod traffic;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_metrics::Format;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::health::Health;
use crate::page::Answer;
use crate::programmer::{Applied, FlowCounters};
use crate::traffic::TrafficTotals;

/// The sources of metrics that are read at scrape time.
#[derive(Debug)]
pub struct Sources {
    /// Health of the node.
    pub health: Arc<Health>,
    /// Result of the last pass.
    pub applied: watch::Receiver<Applied>,
    /// Counters of the cleanup of stale flows.
    pub flows: watch::Receiver<FlowCounters>,
    /// Addresses of draining backends.
    pub draining: watch::Receiver<BTreeSet<IpAddr>>,
    /// Traffic of Services, if enabled.
    pub traffic: Option<watch::Receiver<Arc<TrafficTotals>>>,
}

/// All metrics of the program.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Metrics from these sources.
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::default();
        sources.health.counters.register(&mut registry);
        registry.register_collector(Box::new(sources));
        Self { registry }
    }

    /// All metrics as a Markdown table.
    ///
    /// # Errors
    /// Never: writing to a string does not fail.
    pub fn document(&self) -> Result<String, std::fmt::Error> {
        portolan_metrics::document(&self.registry)
    }

    /// All metrics in the Prometheus text format.
    ///
    /// # Errors
    /// Never: writing to a string does not fail.
    pub fn page(&self) -> Result<String, std::fmt::Error> {
        Format::Text.encode(&self.registry)
    }

    /// All metrics in the format that the `Accept` header selects.
    pub(crate) fn answer(&self, accept: Option<&str>) -> Answer {
        let format = Format::wanted(accept);
        match format.encode(&self.registry) {
            Ok(text) => Answer::text(200, text).of_type(format.content_type()),
            Err(error) => Answer::text(500, format!("{error}\n")),
        }
    }
}
