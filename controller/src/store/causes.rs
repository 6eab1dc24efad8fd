//! The causes of plan versions, as far back as streams may ask for them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::cause::Cause;

/// Maximum number of causes stored. A stream that is further behind gets none of the older ones.
const MAX_STORED_CAUSES: usize = 4096;
/// Maximum number of causes sent with a batch: the oldest ones, which waited longest, and the newest. More than a
/// second of the busiest clusters, so it does not slow down any stream.
const MAX_SENT_CAUSES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Causes(VecDeque<(u64, Arc<Cause>)>);

impl Causes {
    /// Stores the cause of a version newer than all before.
    pub(super) fn push(&mut self, version: u64, cause: Arc<Cause>) {
        self.0.push_back((version, cause));
        if self.0.len() > MAX_STORED_CAUSES {
            self.0.pop_front();
        }
    }

    /// The causes of the versions after `after` up to `to`, oldest first.
    pub(super) fn between(&self, after: u64, to: u64) -> Vec<Arc<Cause>> {
        let start = self.0.partition_point(|(version, _)| *version <= after);
        let end = self.0.partition_point(|(version, _)| *version <= to);
        let all = end.saturating_sub(start);
        let is_sent = |place: &usize| *place + 1 < MAX_SENT_CAUSES || place + 1 == all;
        let sent = (0..all).filter(is_sent);
        sent.filter_map(|place| self.0.get(start + place))
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
        let sent = causes.between(after, to).into_iter();
        sent.map(|cause| cause.changed.parse().unwrap()).collect()
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
        assert_eq!(causes.0.len(), MAX_STORED_CAUSES);
        let sent = sent(&causes, 100, last);
        assert_eq!(sent.len(), MAX_SENT_CAUSES);
        assert_eq!(
            (sent[0], sent[1], sent[MAX_SENT_CAUSES - 1]),
            (101, 102, last)
        );
    }
}
