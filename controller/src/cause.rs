//! What a version of the plans came from.

use std::time::SystemTime;

use portolan_proto::{TRIGGERS_TOLD, TraceContext};

/// When objects came, and since when they should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Came {
    /// When the first of them was seen.
    pub seen: Option<SystemTime>,
    /// When what they tell of happened, as far as they say: the first [`TRIGGERS_TOLD`], the oldest first.
    pub triggered: Vec<SystemTime>,
}

impl Came {
    /// Another object came.
    pub fn note(&mut self, at: SystemTime, triggered: Option<SystemTime>) {
        self.seen = Some(self.seen.map_or(at, |seen| seen.min(at)));
        if let Some(triggered) = triggered
            && let Err(place) = self.triggered.binary_search(&triggered)
        {
            self.triggered.insert(place, triggered);
            self.triggered.truncate(TRIGGERS_TOLD);
        }
    }
}

/// What a version of the plans came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Its trace, and the span that holds all others.
    pub trace: TraceContext,
    /// When what it is about happened, as far as somebody told; the oldest first.
    pub triggered: Vec<SystemTime>,
    /// When it was seen here.
    pub seen: SystemTime,
    /// The first few objects that changed, in words.
    pub changed: String,
}

impl Cause {
    /// When it began: what happened in the cluster, or at least when it was seen.
    pub fn began(&self) -> SystemTime {
        let triggered = self.triggered.first().copied();
        // Another machine's clock may be ahead of ours.
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
    fn what_came_together_began_with_the_first_and_keeps_the_oldest_triggers() {
        let mut came = Came::default();
        came.note(at(9), None);
        came.note(at(8), Some(at(5)));
        came.note(at(10), Some(at(3)));
        came.note(at(10), Some(at(5)));
        assert_eq!(came.seen, Some(at(8)));
        assert_eq!(came.triggered, [at(3), at(5)]);
        for second in 100..200 {
            came.note(at(10), Some(at(second)));
        }
        assert_eq!(came.triggered.len(), TRIGGERS_TOLD);
        assert_eq!(came.triggered[..2], [at(3), at(5)]);
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
