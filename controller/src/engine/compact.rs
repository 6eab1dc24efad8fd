//! What was seen while a kind is missing, in as few words as say it.

use std::collections::BTreeSet;

use crate::object::ObjectId;
use crate::watch::{Kind, Seen};

/// Leaves only the last word about each object: a kind may be missing for days. Of what cannot be
/// read any more the last form that could be read stays as well (S-183).
pub(super) fn compact(waiting: &mut Vec<Seen>) {
    let mut kept = Kept::default();
    let mut last: Vec<Seen> = Vec::new();
    for seen in waiting.drain(..).rev() {
        kept.take(seen, &mut last);
    }
    last.reverse();
    *waiting = last;
}

/// What is known when words are read from the last one to the first.
#[derive(Default)]
struct Kept {
    listed: BTreeSet<Kind>,
    /// Objects whose form, or end, is known.
    settled: BTreeSet<ObjectId>,
    /// Objects that cannot be read and have no form yet.
    formless: BTreeSet<ObjectId>,
    /// Kinds of which it is known how far they were read.
    read: BTreeSet<Kind>,
}

impl Kept {
    fn take(&mut self, seen: Seen, last: &mut Vec<Seen>) {
        match seen {
            Seen::All {
                kind,
                ref unreadable,
                ..
            } if self.listed.insert(kind) => {
                let ids = unreadable.iter().map(|(id, _)| id.clone());
                let formless = ids.filter(|id| !self.settled.contains(id));
                self.formless.extend(formless.collect::<Vec<_>>());
                last.push(seen);
            }
            // A later list stands for this one, but for what it could not read.
            Seen::All { objects, .. } => {
                let wanted = objects
                    .into_iter()
                    .filter(|found| self.formless.remove(&found.id()));
                last.extend(wanted.map(|found| Seen::Present(Box::new(found))));
            }
            Seen::Present(ref found) if self.settles(&found.id()) => last.push(seen),
            Seen::Gone(ref id) if self.settles(id) => last.push(seen),
            Seen::Unreadable(ref id, _)
                if !self.listed.contains(&Kind::of(id)) && !self.settled.contains(id) =>
            {
                if self.formless.insert(id.clone()) {
                    last.push(seen);
                }
            }
            // Only the last one counts, and it comes first here.
            Seen::Read(kind, _) => {
                if self.read.insert(kind) {
                    last.push(seen);
                }
            }
            Seen::Present(_) | Seen::Gone(_) | Seen::Unreadable(..) | Seen::Came { .. } => {}
        }
    }

    /// Whether this is the last word about the form of an object.
    fn settles(&mut self, id: &ObjectId) -> bool {
        let listed = self.listed.contains(&Kind::of(id));
        (self.formless.remove(id) || !listed) && self.settled.insert(id.clone())
    }
}
