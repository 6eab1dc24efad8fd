//! The causes of plan versions, as far back as streams may ask for them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use portolan_proto::MAX_TRIGGERS;

use super::recent::Recent;
use crate::store::cause::Cause;

/// Maximum number of causes stored. A stream that is further behind gets none of the older ones.
const MAX_STORED_CAUSES: usize = 4096;
/// Maximum number of causes sent with a batch: the oldest ones, which waited longest, and the newest. More than a
/// second of the busiest clusters, so it does not slow down any stream.
const MAX_SENT_CAUSES: usize = 256;

/// The causes of all changes in a batch. Most batches at a time have the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BatchCauses {
    /// The oldest first.
    pub causes: Vec<Arc<Cause>>,
    /// The times of their triggers, the oldest first, in microseconds since 1970: each once, and at most
    /// [`MAX_TRIGGERS`].
    pub triggered: Vec<u64>,
}

impl BatchCauses {
    /// Those of a batch with these causes.
    #[must_use]
    pub fn new(causes: Vec<Arc<Cause>>) -> Self {
        let times = causes.iter().flat_map(|cause| &cause.triggered);
        let times: BTreeSet<_> = times.collect();
        let since_1970 = times
            .into_iter()
            .filter_map(|time| time.duration_since(UNIX_EPOCH).ok());
        let first = since_1970.take(MAX_TRIGGERS);
        let microseconds = first.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        Self {
            triggered: microseconds.collect(),
            causes,
        }
    }
}

/// The causes of versions, in their order.
#[derive(Debug, Default)]
pub(super) struct Causes {
    of_versions: VecDeque<(u64, Arc<Cause>)>,
    of_batches: Recent<(u64, u64), BatchCauses>,
}

impl Causes {
    /// Stores the cause of a version newer than all before.
    pub(super) fn push(&mut self, version: u64, cause: Arc<Cause>) {
        self.of_versions.push_back((version, cause));
        if self.of_versions.len() > MAX_STORED_CAUSES {
            self.of_versions.pop_front();
        }
    }

    /// The causes of the versions after `after` up to `to`.
    pub(super) fn between(&self, after: u64, to: u64) -> Arc<BatchCauses> {
        let make = || Some(Arc::new(BatchCauses::new(self.sent(after, to))));
        self.of_batches.get((after, to), make).unwrap_or_default()
    }

    fn sent(&self, after: u64, to: u64) -> Vec<Arc<Cause>> {
        let place = |version| self.of_versions.partition_point(|(of, _)| *of <= version);
        let start = place(after);
        let all = place(to).saturating_sub(start);
        let is_sent = |place: &usize| *place + 1 < MAX_SENT_CAUSES || place + 1 == all;
        let sent = (0..all).filter(is_sent);
        sent.filter_map(|place| self.of_versions.get(start + place))
            .map(|(_, cause)| cause.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use portolan_proto::TraceContext;

    use super::*;

    fn cause(number: u64) -> Arc<Cause> {
        Arc::new(Cause {
            trace: TraceContext {
                trace: [1; 16],
                span: [1; 8],
            },
            triggered: Vec::new(),
            seen: SystemTime::UNIX_EPOCH,
            changed: number.to_string(),
        })
    }

    fn sent(causes: &Causes, after: u64, to: u64) -> Vec<u64> {
        let sent = causes.between(after, to);
        let numbers = sent
            .causes
            .iter()
            .map(|cause| cause.changed.parse().unwrap());
        numbers.collect()
    }

    #[test]
    fn a_batch_is_about_changes_after_it_began_and_not_later_than_it_ends() {
        let mut causes = Causes::default();
        for version in [2, 3, 5, 8] {
            causes.push(version, cause(version));
        }
        assert_eq!(sent(&causes, 0, 9), [2, 3, 5, 8]);
        assert_eq!(sent(&causes, 2, 5), [3, 5]);
        assert_eq!(sent(&causes, 5, 7), [0_u64; 0]);
        assert_eq!(sent(&causes, 8, 8), [0_u64; 0]);
        assert_eq!(sent(&causes, 9, 2), [0_u64; 0]);
    }

    #[test]
    fn only_some_of_many_causes_are_sent_and_not_all_are_stored() {
        let mut causes = Causes::default();
        let last = MAX_STORED_CAUSES as u64 + 10;
        for version in 1..=last {
            causes.push(version, cause(version));
        }
        assert_eq!(causes.of_versions.len(), MAX_STORED_CAUSES);
        let sent = sent(&causes, 100, last);
        assert_eq!(sent.len(), MAX_SENT_CAUSES);
        assert_eq!(
            (sent[0], sent[1], sent[MAX_SENT_CAUSES - 1]),
            (101, 102, last)
        );
    }
}
