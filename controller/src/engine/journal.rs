//! Problems of objects that were logged. Each one is logged once, and not again while it lasts.

use std::collections::{BTreeMap, BTreeSet};

use portolan_planner::model::{Kind, Object, ObjectId};
use tracing::{info, warn};

/// Maximum number of log lines per batch. A cluster with many problems must not flood the log.
const MAX_LINES_PER_BATCH: usize = 100;

/// The logged problems that still exist, by object.
#[derive(Debug, Default)]
pub(super) struct Journal {
    logged: BTreeMap<ObjectId, BTreeSet<String>>,
    lines: usize,
    unsaid: usize,
}

impl Journal {
    /// Starts a batch.
    pub(super) fn begin(&mut self) {
        (self.lines, self.unsaid) = (0, 0);
    }

    /// Logs what reading an object ignored. Slices are not planned individually, so an unused slice has to be
    /// reported here.
    pub(super) fn note_read(&mut self, id: &ObjectId, found: &Object) {
        match found {
            Object::EndpointSlice(slice) => {
                self.note(id, slice.reasons().map(|reason| reason.to_string()))
            }
            other => self.note(id, other.ignored().iter().map(ToString::to_string)),
        };
    }

    /// Logs an object that could not be read.
    pub(super) fn note_unreadable(&mut self, id: &ObjectId, problem: &str) {
        let kept = "its last readable form stays planned; a new object is left out";
        self.note(id, [format!("{problem}; {kept}")]);
    }

    /// Logs the problems of all objects of a kind, and discards those of objects that no longer exist.
    pub(super) fn note_all(
        &mut self,
        kind: Kind,
        objects: &[Object],
        unreadable: &[(ObjectId, String)],
    ) {
        let broken = unreadable.iter().map(|(id, _)| id.clone());
        let present: BTreeSet<ObjectId> = objects.iter().map(Object::id).chain(broken).collect();
        self.logged
            .retain(|id, _| id.kind() != kind || present.contains(id));
        for found in objects {
            self.note_read(&found.id(), found);
        }
        for (id, problem) in unreadable {
            self.note_unreadable(id, problem);
        }
    }

    /// Discards the problems of a deleted object.
    pub(super) fn forget(&mut self, id: &ObjectId) {
        self.logged.remove(id);
    }

    /// Logs the new ones among all current problems of an object. Returns how many are new.
    pub(super) fn note(
        &mut self,
        object: &ObjectId,
        messages: impl IntoIterator<Item = String>,
    ) -> usize {
        let now: BTreeSet<String> = messages.into_iter().collect();
        let before = self.logged.remove(object).unwrap_or_default();
        let mut new = 0;
        for message in now.difference(&before) {
            new += 1;
            if self.lines < MAX_LINES_PER_BATCH {
                self.lines += 1;
                warn!("{object}: {message}");
            } else {
                self.unsaid += 1;
            }
        }
        if !now.is_empty() {
            self.logged.insert(object.clone(), now);
        }
        new
    }

    /// Ends a batch.
    pub(super) fn end(&mut self) {
        if self.unsaid > 0 {
            let more = self.unsaid;
            info!(
                "{more} more warnings; `kubectl get proxyconfig default -o yaml` lists them in its status"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> ObjectId {
        ObjectId::Node("a".into())
    }

    fn note(journal: &mut Journal, messages: &[&str]) -> usize {
        journal.note(&node(), messages.iter().map(|text| (*text).to_owned()))
    }

    #[test]
    fn a_lasting_warning_is_logged_once_and_a_returning_one_again() {
        let mut journal = Journal::default();
        assert_eq!(note(&mut journal, &["one", "two"]), 2);
        assert_eq!(note(&mut journal, &["two", "one"]), 0);
        assert_eq!(note(&mut journal, &["two", "three"]), 1);
        assert_eq!(note(&mut journal, &[]), 0);
        assert!(journal.logged.is_empty(), "no problem is left");
        assert_eq!(note(&mut journal, &["one"]), 1);
    }

    #[test]
    fn a_batch_writes_a_bounded_number_of_lines() {
        let mut journal = Journal::default();
        journal.begin();
        let many = (0..MAX_LINES_PER_BATCH + 7).map(|number| number.to_string());
        assert_eq!(journal.note(&node(), many), MAX_LINES_PER_BATCH + 7);
        assert_eq!((journal.lines, journal.unsaid), (MAX_LINES_PER_BATCH, 7));
    }
}
