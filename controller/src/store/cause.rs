//! The changes in the cluster that led to a version of the plans.

use std::time::SystemTime;

use portolan_proto::{MAX_TRIGGERS, TraceContext};

/// When objects were received, and when the changes behind them happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeTimes {
    /// When the first of them was received.
    pub seen: Option<SystemTime>,
    /// When the changes behind them happened, if the objects state it: the oldest [`MAX_TRIGGERS`], in order.
    pub triggered: Vec<SystemTime>,
}

impl ChangeTimes {
    /// Adds an object that was received at `at`.
    pub fn note(&mut self, at: SystemTime, triggered: Option<SystemTime>) {
        self.seen = Some(self.seen.map_or(at, |seen| seen.min(at)));
        if let Some(triggered) = triggered
            && let Err(place) = self.triggered.binary_search(&triggered)
        {
            self.triggered.insert(place, triggered);
            self.triggered.truncate(MAX_TRIGGERS);
        }
    }
}

/// The cause of a version of the plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Its trace and root span.
    pub trace: TraceContext,
    /// When the changes in the cluster happened, if the objects state it; the oldest first.
    pub triggered: Vec<SystemTime>,
    /// When this controller received the first object.
    pub seen: SystemTime,
    /// The first few changed objects, as text.
    pub changed: String,
}

impl Cause {
    /// When it began: the oldest trigger in the cluster, but not later than the controller received it.
    pub fn began(&self) -> SystemTime {
        let triggered = self.triggered.first().copied();
        // The clock of another machine may be ahead.
        triggered.map_or(self.seen, |triggered| triggered.min(self.seen))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn the_first_arrival_counts_and_the_oldest_triggers_are_kept() {
        let mut times = ChangeTimes::default();
        times.note(at(9), None);
        times.note(at(8), Some(at(5)));
        times.note(at(10), Some(at(3)));
        times.note(at(10), Some(at(5)));
        assert_eq!(times.seen, Some(at(8)));
        assert_eq!(times.triggered, [at(3), at(5)]);
        for second in 100..200 {
            times.note(at(10), Some(at(second)));
        }
        assert_eq!(times.triggered.len(), MAX_TRIGGERS);
        assert_eq!(times.triggered[..2], [at(3), at(5)]);
    }

    #[test]
    fn a_trigger_in_the_future_begins_nothing() {
        let cause = |triggered: &[u64]| Cause {
            trace: TraceContext {
                trace: [1; 16],
                span: [1; 8],
            },
            triggered: triggered.iter().copied().map(at).collect(),
            seen: at(10),
            changed: String::new(),
        };
        assert_eq!(cause(&[]).began(), at(10));
        assert_eq!(cause(&[7, 9]).began(), at(7));
        assert_eq!(cause(&[12]).began(), at(10));
    }
}
