//! The number of lists that were requested from the API server. Lists of a large cluster are expensive.

use std::fmt::Error;
use std::sync::Arc;

use portolan_planner::model::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

/// The lists so far, read at scrape time.
#[derive(Debug)]
pub(super) struct Lists(pub(super) Arc<Store>);

impl Collector for Lists {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let marks = self.0.marks();
        let marks = marks.borrow();
        let (name, help) = (
            "portolan_controller_lists",
            "Complete lists of objects read from the API server, by kind",
        );
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for kind in Kind::ALL {
            let of_kind = OfKind { kind: kind.name() };
            let lists = marks.get(&kind).map_or(0, |mark| mark.lists);
            ConstCounter::new(lists).encode(family.encode_family(&of_kind)?)?;
        }
        Ok(())
    }
}
