//! Metrics of the controller: counters, and gauges that are read at scrape time.
//!
//! Label values are a fixed set: no names of nodes or Services, and no addresses.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use portolan_metrics::Format;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::ages::Ages;
use crate::agent_registry::AgentRegistry;
use crate::cluster_state::Shared;
use crate::freshness::Freshness;
use crate::refusal::Reason;
use crate::store::Store;
use crate::telemetry::changes::Figures;
use crate::telemetry::lists::Lists;
use crate::telemetry::load::Load;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAnswer {
    answered: &'static str,
}

/// The counters of the controller.
#[derive(Debug)]
pub struct Counters {
    refusals: Family<OfReason, Counter>,
    reviews: Family<OfAnswer, Counter>,
    keys: Gauge,
    streams: Counter,
    batches: Counter,
    bytes: Counter,
    broken: Counter,
    waited: Gauge,
    load: Load,
}

impl Default for Counters {
    /// Every series exists from the start, so the first count is an increase.
    fn default() -> Self {
        let counters = Self {
            refusals: Family::default(),
            reviews: Family::default(),
            keys: Gauge::default(),
            streams: Counter::default(),
            batches: Counter::default(),
            bytes: Counter::default(),
            broken: Counter::default(),
            waited: Gauge::default(),
            load: Load::default(),
        };
        for reason in Reason::ALL {
            drop(counters.refusals.get_or_create(&OfReason { reason }));
        }
        for answered in ["yes", "no"] {
            drop(counters.reviews.get_or_create(&OfAnswer { answered }));
        }
        counters
    }
}

impl Counters {
    /// Counts a refused stream, or a connection that was refused before its stream.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refusals.get_or_create(&OfReason { reason }).inc();
    }

    /// Counts a token review, and whether the API server answered.
    pub(crate) fn reviewed(&self, answered: bool) {
        let answered = if answered { "yes" } else { "no" };
        self.reviews.get_or_create(&OfAnswer { answered }).inc();
    }

    /// Records the number of keys that verify tokens.
    pub(crate) fn token_keys(&self, keys: usize) {
        self.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// Counts an opened stream.
    pub(crate) fn opened(&self) {
        self.streams.inc();
    }

    /// Counts a sent batch.
    pub(crate) fn batch(&self) {
        self.batches.inc();
    }

    /// The counter of bytes written to agents, for the code that writes them.
    pub(crate) fn bytes(&self) -> Counter {
        self.bytes.clone()
    }

    /// Counts a stream that was closed because its agent violated the protocol.
    pub(crate) fn broken(&self) {
        self.broken.inc();
    }

    /// Records the bytes that wait for one agent; the maximum is kept.
    pub(crate) fn waits(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.waited.inner().fetch_max(bytes, Ordering::Relaxed);
    }

    /// The counters of a controller at its limits.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    fn register(&self, registry: &mut Registry) {
        self.load.register(registry);
        registry.register(
            "portolan_controller_stream_refusals",
            "Refused streams and connections of agents, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "portolan_controller_token_reviews",
            "TokenReviews requested from the API server, by whether it answered",
            self.reviews.clone(),
        );
        registry.register(
            "portolan_controller_token_keys",
            "Keys of the API server with which this controller verifies the signatures of tokens; without any, tokens are reviewed at a lower rate",
            self.keys.clone(),
        );
        registry.register(
            "portolan_controller_streams",
            "Streams opened",
            self.streams.clone(),
        );
        registry.register(
            "portolan_controller_batches",
            "Batches of plan changes sent to agents",
            self.batches.clone(),
        );
        registry.register(
            "portolan_controller_stream_bytes",
            "Bytes written to agents, before TLS",
            self.bytes.clone(),
        );
        registry.register(
            "portolan_controller_stream_protocol_errors",
            "Streams closed because the agent violated the protocol",
            self.broken.clone(),
        );
        registry.register(
            "portolan_controller_stream_waiting_bytes_max",
            "Maximum number of bytes that were queued for one agent since the start",
            self.waited.clone(),
        );
    }
}

/// Sources of the gauges that are read at scrape time.
#[derive(Debug)]
struct Sources {
    agent_registry: Arc<AgentRegistry>,
    store: Arc<Store>,
}

impl Sources {
    /// Number of connected nodes that have the newest version of their plan in force, and number of those that do not.
    fn convergence(&self) -> (usize, usize) {
        let version = *self.store.changes().borrow();
        let is_node = |node: &str| self.store.has_node(node);
        self.agent_registry.convergence(version, is_node)
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let total = self.store.nodes();
        let (in_force, behind) = self.convergence();
        let is_node = |node: &str| self.store.has_node(node);
        let (troubled, most) = self.agent_registry.failing_services(is_node);
        let gauges = [
            (
                "portolan_controller_connected_agents",
                "Agents with an open stream to this controller",
                self.agent_registry.connected_agents(),
            ),
            ("portolan_controller_plans", "Nodes with a plan", total),
            (
                "portolan_controller_nodes_in_force",
                "Nodes with a stream to this controller that have applied the newest version of their plan",
                in_force,
            ),
            (
                "portolan_controller_nodes_behind",
                "Nodes with a stream to this controller that have not applied the newest version of their plan",
                behind,
            ),
            (
                "portolan_controller_nodes_disconnected",
                "Nodes with a plan but without a stream to this controller",
                total.saturating_sub(in_force + behind),
            ),
            (
                "portolan_controller_nodes_with_failing_services",
                "Nodes with a stream to this controller on which some Services are not in force, although the rest of the plan may be",
                troubled,
            ),
            (
                "portolan_controller_failing_services_max",
                "Largest number of Services that are not in force on one node with a stream to this controller",
                usize::try_from(most).unwrap_or(usize::MAX),
            ),
        ];
        encode_gauges(&gauges, &mut encoder)
    }
}

/// Gauges of the endpoint loss guard.
#[derive(Debug)]
struct Losses(Shared);

impl Collector for Losses {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let known = self.0.read();
        let (loss, waits) = (known.planner.model().loss(), known.waits);
        drop(known);
        let gauges = [
            (
                "portolan_controller_endpoints_vanished",
                "Ready endpoints that disappeared in a mass loss while their nodes are ready, and have not returned",
                loss.map_or(0, |loss| loss.lost),
            ),
            (
                "portolan_controller_endpoints_held",
                "Endpoints of a mass loss that nodes keep because the guard holds them",
                loss.map_or(0, |loss| loss.held),
            ),
            (
                "portolan_controller_waiting_for_guard",
                "1 while this controller makes no plans, because other controllers hold endpoints that disappeared before it started",
                usize::from(waits),
            ),
        ];
        encode_gauges(&gauges, &mut encoder)
    }
}

fn encode_gauges(
    gauges: &[(&str, &str, usize)],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    for (name, help, value) in gauges {
        let gauge = ConstGauge::new(i64::try_from(*value).unwrap_or(i64::MAX));
        let kind = gauge.metric_type();
        gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
    }
    Ok(())
}

/// All metrics of the controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// The counters, and gauges of the agent_registry and the store.
    pub fn new(counters: &Counters, agent_registry: Arc<AgentRegistry>, store: Arc<Store>) -> Self {
        let mut registry = Registry::default();
        counters.register(&mut registry);
        registry.register_collector(Box::new(Lists(store.clone())));
        registry.register_collector(Box::new(Sources {
            agent_registry,
            store,
        }));
        Self { registry }
    }

    /// Adds the metrics of changes.
    pub fn add(&mut self, figures: &Figures) {
        figures.register(&mut self.registry);
    }

    /// Adds the gauges of the endpoint loss guard.
    pub fn add_endpoints(&mut self, known: Shared) {
        self.registry.register_collector(Box::new(Losses(known)));
    }

    /// Adds the gauges of the age of the objects.
    pub fn add_freshness(&mut self, freshness: Arc<Freshness>) {
        self.registry.register_collector(Box::new(Ages(freshness)));
    }

    /// The table of all metrics for its document.
    ///
    /// # Errors
    /// Never: writing to a `String` does not fail.
    pub fn document(&self) -> Result<String, Error> {
        portolan_metrics::document(&self.registry)
    }

    /// The page that a scrape returns.
    ///
    /// # Errors
    /// Never: writing to a `String` does not fail.
    pub fn page(&self, format: Format) -> Result<String, Error> {
        format.encode(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use portolan_planner::model::Kind;
    use tokio::time::Instant;

    use super::*;

    fn freshness() -> Arc<Freshness> {
        Arc::new(Freshness::watching(Kind::ALL, Instant::now()))
    }

    #[test]
    fn the_document_lists_every_metric() {
        let mut metrics = Metrics::new(&Counters::default(), Arc::default(), Arc::default());
        metrics.add(&Figures::default());
        metrics.add_endpoints(Shared::default());
        metrics.add_freshness(freshness());
        let table = metrics.document().unwrap();
        let document = include_str!("../../../docs/reference/controller-metrics.md");
        let is_current = document.ends_with(&table);
        assert!(
            is_current,
            "docs/reference/controller-metrics.md should end with:\n{table}"
        );
    }

    #[test]
    fn every_series_is_there_before_anything_happens() {
        let counters = Counters::default();
        let mut metrics = Metrics::new(&counters, Arc::default(), Arc::default());
        metrics.add(&Figures::default());
        metrics.add_endpoints(Shared::default());
        metrics.add_freshness(freshness());
        counters.refused(Reason::other_node);
        counters.reviewed(true);
        counters.batch();
        let text = metrics.page(Format::OpenMetrics).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        // Only the last of the buckets of each histogram: the others are alike.
        let samples = samples.filter(|line| !line.contains("le=") || line.contains("+Inf"));
        let mut samples: Vec<_> = samples.collect();
        samples.sort_unstable();
        insta::assert_snapshot!(samples.join("\n"));
    }
}
