//! Metrics of changes. No label names an object; the exemplar of the histogram refers to a kept trace.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::track::Ended;

/// The label of an exemplar: the ID of a kept trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Example {
    trace_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kept {
    kept: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// The metrics of changes.
#[derive(Debug)]
pub struct Figures {
    changes: HistogramWithExemplars<Example>,
    nodes: Histogram,
    unfinished: Counter,
    left_out: Counter,
    traces: Family<Kept, Counter>,
    exports: Family<Result, Counter>,
}

impl Default for Figures {
    /// Every series exists from the start, so the first count is an increase.
    fn default() -> Self {
        // 14 buckets from 5 ms to 41 s, each twice the one before.
        let buckets = || exponential_buckets(0.005, 2.0, 14);
        let figures = Self {
            changes: HistogramWithExemplars::new(buckets()),
            nodes: Histogram::new(buckets()),
            unfinished: Counter::default(),
            left_out: Counter::default(),
            traces: Family::default(),
            exports: Family::default(),
        };
        for kept in ["yes", "no"] {
            drop(figures.traces.get_or_create(&Kept { kept }));
        }
        for result in ["sent", "failed"] {
            drop(figures.exports.get_or_create(&Result { result }));
        }
        figures
    }
}

impl Figures {
    pub(super) fn left_out(&self) {
        self.left_out.inc();
    }

    /// Records the time from the trigger of a change until one node has it in force.
    pub(super) fn node(&self, took: Duration) {
        self.nodes.observe(took.as_secs_f64());
    }

    /// Records a change that has ended, with its trace as exemplar if that is kept.
    pub(super) fn ended(&self, ended: &Ended, kept: bool) {
        if ended.missing.count > 0 {
            // The duration is unknown.
            self.unfinished.inc();
            return;
        }
        let example = kept.then(|| Example {
            trace_id: ended.cause.trace.to_string(),
        });
        let took = ended.took().as_secs_f64();
        self.changes.observe(took, example, Some(ended.end));
    }

    /// Counts a trace that was kept or not.
    pub(super) fn trace(&self, kept: bool) {
        let kept = if kept { "yes" } else { "no" };
        self.traces.get_or_create(&Kept { kept }).inc();
    }

    /// Counts traces that were sent to the collector, or could not be sent.
    pub(super) fn exported(&self, traces: u64, sent: bool) {
        let result = if sent { "sent" } else { "failed" };
        let counter = self.exports.get_or_create(&Result { result });
        counter.inc_by(traces);
    }

    /// Registers all of them.
    #[rustfmt::skip]
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("portolan_controller_change_duration_seconds", "Time from the cause of a change in the cluster until the last node had applied it; without changes counted as unfinished", self.changes.clone());
        registry.register("portolan_controller_node_programming_duration_seconds", "Time from the cause of a change in the cluster until one node had applied it", self.nodes.clone());
        registry.register("portolan_controller_changes_unfinished", "Changes that at least one connected node had not applied after 30 seconds", self.unfinished.clone());
        registry.register("portolan_controller_change_records_dropped", "Progress records of changes dropped because the queue was full", self.left_out.clone());
        registry.register("portolan_controller_traces", "Traces of changes, by whether sampling kept them", self.traces.clone());
        registry.register("portolan_controller_trace_exports", "Traces exported to the collector, by result", self.exports.clone());
    }
}
