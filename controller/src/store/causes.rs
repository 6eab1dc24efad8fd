//! What versions of the plans came from, as far back as streams may still ask.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::changes::Cause;

/// So many are remembered; a stream that is further behind has other troubles.
const LONGEST: usize = 4096;
/// So many are told of one batch: the oldest ones, which waited longest, and the newest. More than a second
/// of the busiest clusters, and no stream is made to wait longer.
const TOLD: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Causes(VecDeque<(u64, Arc<Cause>)>);

impl Causes {
    /// A version, newer than all before, came from this.
    pub(super) fn push(&mut self, version: u64, cause: Arc<Cause>) {
        self.0.push_back((version, cause));
        if self.0.len() > LONGEST {
            self.0.pop_front();
        }
    }

    /// What the versions after one and up to another came from, the oldest first.
    pub(super) fn between(&self, after: u64, to: u64) -> Vec<Arc<Cause>> {
        let start = self.0.partition_point(|(version, _)| *version <= after);
        let end = self.0.partition_point(|(version, _)| *version <= to);
        let all = end.saturating_sub(start);
        let is_told = |place: &usize| *place + 1 < TOLD || place + 1 == all;
        let told = (0..all).filter(is_told);
        told.filter_map(|place| self.0.get(start + place))
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

    fn told(causes: &Causes, after: u64, to: u64) -> Vec<u64> {
        let told = causes.between(after, to).into_iter();
        told.map(|cause| cause.changed.parse().unwrap()).collect()
    }

    #[test]
    fn a_batch_is_about_what_came_after_it_began_and_not_later_than_it_ends() {
        let mut causes = Causes::default();
        for version in [2, 3, 5, 8] {
            causes.push(version, cause(version));
        }
        assert_eq!(told(&causes, 0, 9), [2, 3, 5, 8]);
        assert_eq!(told(&causes, 2, 5), [3, 5]);
        assert_eq!(told(&causes, 5, 7), [0_u64; 0]);
        assert_eq!(told(&causes, 8, 8), [0_u64; 0]);
        assert_eq!(told(&causes, 9, 2), [0_u64; 0]);
    }

    #[test]
    fn few_are_told_of_many_and_not_all_are_remembered() {
        let mut causes = Causes::default();
        let last = LONGEST as u64 + 10;
        for version in 1..=last {
            causes.push(version, cause(version));
        }
        assert_eq!(causes.0.len(), LONGEST);
        let told = told(&causes, 100, last);
        assert_eq!(told.len(), TOLD);
        assert_eq!((told[0], told[1], told[TOLD - 1]), (101, 102, last));
    }
}
