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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    stage: &'static str,
}

type Stages = Family<Stage, Histogram, fn() -> Histogram>;

/// The metrics of changes.
#[derive(Debug)]
pub struct Figures {
    changes: HistogramWithExemplars<Example>,
    stages: Stages,
    nodes: Histogram,
    unfinished: Counter,
    left_out: Counter,
    traces: Family<Kept, Counter>,
    exports: Family<Result, Counter>,
}

/// 14 buckets from 5 ms to 41 s, each twice the one before.
fn buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.005, 2.0, 14)
}

/// Stages of a change after its publication.
const SENT: &str = "sent";
const IN_FORCE: &str = "in_force";

impl Default for Figures {
    /// Every series exists from the start, so the first count is an increase.
    fn default() -> Self {
        let figures = Self {
            changes: HistogramWithExemplars::new(buckets()),
            stages: Family::new_with_constructor(|| Histogram::new(buckets())),
            nodes: Histogram::new(buckets()),
            unfinished: Counter::default(),
            left_out: Counter::default(),
            traces: Family::default(),
            exports: Family::default(),
        };
        for stage in [SENT, IN_FORCE] {
            drop(figures.stages.get_or_create(&Stage { stage }));
        }
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
        if ended.answered > 0 {
            for (stage, end) in [(SENT, ended.handed), (IN_FORCE, ended.end)] {
                let took = end.duration_since(ended.published.at).unwrap_or_default();
                let histogram = self.stages.get_or_create(&Stage { stage });
                histogram.observe(took.as_secs_f64());
            }
        }
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
        registry.register("portolan_controller_change_stage_duration_seconds", "Time from the publication of a change until it was handed to the network for the last node (sent), and until the last node had applied it (in_force); without changes counted as unfinished", self.stages.clone());
        registry.register("portolan_controller_node_programming_duration_seconds", "Time from the cause of a change in the cluster until one node had applied it", self.nodes.clone());
        registry.register("portolan_controller_changes_unfinished", "Changes that at least one connected node had not applied after 30 seconds", self.unfinished.clone());
        registry.register("portolan_controller_change_records_dropped", "Progress records of changes dropped because the queue was full", self.left_out.clone());
        registry.register("portolan_controller_traces", "Traces of changes, by whether sampling kept them", self.traces.clone());
        registry.register("portolan_controller_trace_exports", "Traces exported to the collector, by result", self.exports.clone());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::super::track::Track;
    use super::super::track::tests::{at, cause, delivered, published};
    use super::super::{Note, track::Waiting};
    use super::*;

    /// From the publication at 20 ms: handed to the network for the last node at 91 ms, in force there at 100 ms.
    #[test]
    fn stages_of_a_change_end_with_the_last_node() {
        let one = cause(1, 0);
        let mut track = Track::only_counting();
        let answers = [("b", 100), ("a", 50)].map(|(node, milliseconds)| {
            Note::Delivered(Box::new(delivered(node, &[&one], milliseconds)))
        });
        let notes = [Note::Begun(one), published(1, 7, 20)];
        for note in notes.into_iter().chain(answers) {
            track.take(note, at(0));
        }
        let complete = track.complete(at(900), None, |_| Waiting::default());
        let figures = Figures::default();
        for ended in track.end(complete) {
            figures.ended(&ended, false);
        }
        let mut registry = Registry::default();
        figures.register(&mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        let name = "portolan_controller_change_stage_duration_seconds_sum";
        for line in ["{stage=\"sent\"} 0.071", "{stage=\"in_force\"} 0.08"] {
            assert!(page.contains(&format!("{name}{line}\n")), "{page}");
        }
    }
}
