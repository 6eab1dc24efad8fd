//! Traces a batch on its way to a node and back.

use std::sync::Arc;
use std::time::SystemTime;

use portolan_proto::{TraceContext, wire};

use super::received::Hello;
use crate::store::BatchCauses;
use crate::telemetry::changes::{Answered, Changes, Delivered, new_span};

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Trip {
    changes: Changes,
    causes: Arc<BatchCauses>,
    span: [u8; 8],
    made: SystemTime,
    handed: SystemTime,
}

impl Trip {
    /// A batch produced now, with its causes.
    pub(super) fn begin(changes: &Changes, causes: Arc<BatchCauses>) -> Self {
        let made = SystemTime::now();
        Self {
            changes: changes.clone(),
            causes,
            span: new_span(),
            made,
            handed: made,
        }
    }

    /// The trace context for the agent; empty without traces.
    pub(super) fn trace(&self) -> Vec<u8> {
        let oldest = self.causes.causes.first().filter(|_| self.changes.traced());
        let context = oldest.map(|cause| TraceContext {
            span: self.span,
            ..cause.trace
        });
        context.map_or_else(Vec::new, TraceContext::to_bytes)
    }

    /// The trigger times of its changes, microseconds since 1970.
    pub(super) fn triggered(&self) -> Vec<u64> {
        self.causes.triggered.clone()
    }

    /// Records that all of it is sent.
    pub(super) fn handed(&mut self) {
        self.handed = SystemTime::now();
    }

    /// Records the agent's answer.
    pub(super) fn answered(&self, hello: &Hello, ack: &wire::Ack) {
        if self.causes.causes.is_empty() {
            return;
        }
        self.changes.delivered(Delivered {
            node: hello.node.clone(),
            agent_version: hello.agent_version.clone(),
            causes: self.causes.clone(),
            span: self.span,
            batch: ack.batch,
            made: self.made,
            handed: self.handed,
            at: SystemTime::now(),
            answered: Answered::of(ack, self.changes.traced()),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use portolan_proto::MAX_TRIGGERS;

    use super::*;
    use crate::store::cause::Cause;

    fn begin(changes: &Changes, causes: Vec<Arc<Cause>>) -> Trip {
        Trip::begin(changes, Arc::new(BatchCauses::new(causes)))
    }

    fn cause(triggered: &[u64]) -> Arc<Cause> {
        let at = |second: &u64| UNIX_EPOCH + Duration::from_secs(*second);
        Arc::new(Cause {
            trace: TraceContext {
                trace: [1; 16],
                span: [2; 8],
            },
            triggered: triggered.iter().map(at).collect(),
            seen: UNIX_EPOCH,
            changed: String::new(),
        })
    }

    /// S-187: each time once, regardless of the batch; the oldest first.
    #[test]
    fn the_times_of_all_changes_of_a_batch_are_sent() {
        let trip = begin(&Changes::default(), vec![cause(&[5, 7]), cause(&[3, 7])]);
        assert_eq!(trip.triggered(), [3_000_000, 5_000_000, 7_000_000]);
        let many: Vec<_> = (0..100).collect();
        let trip = begin(&Changes::default(), vec![cause(&many)]);
        assert_eq!(trip.triggered().len(), MAX_TRIGGERS);
    }

    #[test]
    fn an_agent_is_asked_for_timings_only_with_traces() {
        let trip = begin(&Changes::default(), vec![cause(&[])]);
        assert_eq!(trip.trace(), [0_u8; 0]);
        let (changes, _notes) = Changes::new(Arc::default(), true);
        assert_eq!(begin(&changes, Vec::new()).trace(), [0_u8; 0]);
        let trip = begin(&changes, vec![cause(&[]), cause(&[])]);
        let context = TraceContext::from_bytes(&trip.trace()).unwrap();
        assert_eq!((context.trace, context.span), ([1; 16], trip.span));
    }
}
