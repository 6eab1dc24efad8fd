//! Compacts answers of the API server that wait for a kind that was not listed yet to those that still matter.

use std::collections::BTreeSet;

use portolan_planner::model::{Kind, ObjectId};

use crate::watch::{Answer, ObjectUpdate};

/// Keeps the last update of each object, and how far each kind was read: a kind may be missing for days. Of an object
/// that cannot be read any more, the last readable form stays as well (S-183).
pub(super) fn compact(waiting: &mut Vec<Answer>) {
    let mut kept = Kept::default();
    let mut last: Vec<Answer> = Vec::new();
    for mut answer in waiting.drain(..).rev() {
        let is_newest = kept.read.insert(answer.kind);
        let updates = match answer.update.take() {
            Some(update) => kept.filter(answer.kind, update),
            None => Vec::new(),
        };
        if is_newest && updates.is_empty() {
            last.push(answer);
        } else {
            last.extend(updates.into_iter().map(|update| Answer {
                update: Some(update),
                ..answer.clone()
            }));
        }
    }
    last.reverse();
    *waiting = last;
}

/// The state while answers are read from the last one to the first.
#[derive(Default)]
struct Kept {
    /// Kinds with at least one answer.
    read: BTreeSet<Kind>,
    listed: BTreeSet<Kind>,
    /// Objects whose form, or deletion, is known.
    settled: BTreeSet<ObjectId>,
    /// Objects that cannot be read and have no form yet.
    formless: BTreeSet<ObjectId>,
}

impl Kept {
    /// The parts of an update that later updates do not replace.
    fn filter(&mut self, kind: Kind, update: ObjectUpdate) -> Vec<ObjectUpdate> {
        let keeps = match &update {
            ObjectUpdate::All { unreadable, .. } if self.listed.insert(kind) => {
                let ids = unreadable.iter().map(|(id, _)| id.clone());
                let formless = ids.filter(|id| !self.settled.contains(id));
                self.formless.extend(formless.collect::<Vec<_>>());
                true
            }
            // A later list replaces this one, except for the objects that it could not read.
            ObjectUpdate::All { .. } => return self.forms(update),
            ObjectUpdate::Present(object) => self.settles(&object.id()),
            ObjectUpdate::Deleted(id) => self.settles(id),
            ObjectUpdate::Unreadable(id, _) => {
                !self.listed.contains(&kind)
                    && !self.settled.contains(id)
                    && self.formless.insert(id.clone())
            }
        };
        keeps.then_some(update).into_iter().collect()
    }

    /// The forms of objects that a later update could not read.
    fn forms(&mut self, update: ObjectUpdate) -> Vec<ObjectUpdate> {
        let ObjectUpdate::All { objects, .. } = update else {
            return Vec::new();
        };
        let wanted = objects
            .into_iter()
            .filter(|object| self.formless.remove(&object.id()));
        wanted
            .map(|object| ObjectUpdate::Present(Box::new(object)))
            .collect()
    }

    /// Whether this is the last form, or the deletion, of an object.
    fn settles(&mut self, id: &ObjectId) -> bool {
        let listed = self.listed.contains(&id.kind());
        (self.formless.remove(id) || !listed) && self.settled.insert(id.clone())
    }
}
