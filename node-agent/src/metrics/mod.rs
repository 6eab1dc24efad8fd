//! Metrics (S-207): names and meanings of kube-proxy where they mean the same, ours for the rest. One
//! bounded set: no address and no endpoint is a label, and the name of a Service only where somebody asks
//! for what Services have carried, of so many as they say.

mod counters;
mod snapshot;
mod traffic;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_metrics::Format;
use portolan_plan::Family;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub use counters::{Changes, Counters};

use crate::health::Health;
use crate::http::Answer;
use crate::programmer::{Applied, FlowCounters};
use crate::traffic::Told;

/// What is read when somebody asks.
#[derive(Debug)]
pub struct Sources {
    /// What is told of health.
    pub health: Arc<Health>,
    /// What came of the last pass.
    pub applied: watch::Receiver<Applied>,
    /// What was done about stale flows.
    pub flows: watch::Receiver<FlowCounters>,
    /// The addresses of backends that drain.
    pub draining: watch::Receiver<BTreeSet<IpAddr>>,
    /// What Services have carried, where that is wanted.
    pub traffic: Option<watch::Receiver<Arc<Told>>>,
}

/// All metrics of the program.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Metrics of these.
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::default();
        sources.health.counters.register(&mut registry);
        registry.register_collector(Box::new(sources));
        Self { registry }
    }

    /// All of them as the table of a document.
    ///
    /// # Errors
    /// Never: text takes everything.
    pub fn document(&self) -> Result<String, std::fmt::Error> {
        portolan_metrics::document(&self.registry)
    }

    /// All of them in the older text format.
    ///
    /// # Errors
    /// Never: text takes everything.
    pub fn page(&self) -> Result<String, std::fmt::Error> {
        Format::Text.encode(&self.registry)
    }

    /// All of them, for whoever sent this `Accept`.
    pub(crate) fn answer(&self, accept: Option<&str>) -> Answer {
        let format = Format::wanted(accept);
        match format.encode(&self.registry) {
            Ok(text) => Answer::text(200, text).of_type(format.content_type()),
            Err(error) => Answer::text(500, format!("{error}\n")),
        }
    }
}

/// The label of a family, as kube-proxy spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFamily {
    ip_family: FamilyName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FamilyName(Family);

impl EncodeLabelValue for FamilyName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.as_str().encode(encoder)
    }
}

impl From<Family> for OfFamily {
    fn from(family: Family) -> Self {
        let ip_family = FamilyName(family);
        Self { ip_family }
    }
}
