//! Gauges of the age of the objects, and of the engine's present turn. They take no lock.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use crate::freshness::Freshness;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

/// The gauges.
#[derive(Debug)]
pub(super) struct Ages(pub(super) Arc<Freshness>);

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut ages = encoder.encode_descriptor(
            "portolan_controller_objects_age_seconds",
            "Time since the API server last sent anything about objects of a kind; up to 75 s if nothing changes",
            None,
            MetricType::Gauge,
        )?;
        for (kind, age) in self.0.ages() {
            let of_kind = OfKind { kind: kind.name() };
            ages.encode_family(&of_kind)?.encode_gauge(&age.as_secs())?;
        }
        let mut turn = encoder.encode_descriptor(
            "portolan_controller_planning_seconds",
            "Duration of the present work of the planner; 0 while it waits for changes",
            None,
            MetricType::Gauge,
        )?;
        turn.encode_gauge(&self.0.turn_age().as_secs())
    }
}
