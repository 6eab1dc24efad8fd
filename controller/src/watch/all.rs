//! A list while it is being read.

use portolan_planner::model::{Kind, Object, ObjectId};
use tracing::warn;

use super::ObjectUpdate;
use super::mark::Identity;
use super::object::{Text, identity, read};

/// Objects of a list.
#[derive(Default)]
pub(super) struct All {
    objects: Vec<Object>,
    unreadable: Vec<(ObjectId, String)>,
    identities: Vec<Identity>,
}

impl All {
    pub(super) fn add(&mut self, kind: Kind, text: &Text) {
        let Some(received) = read(kind, text) else {
            warn!(kind = kind.name(), "skipped an object without a name");
            return;
        };
        match received.object {
            Ok(object) => self.objects.push(object),
            Err(problem) => self
                .unreadable
                .push((received.identity.id.clone(), problem)),
        }
        self.identities.push(received.identity);
    }

    pub(super) fn remove(&mut self, kind: Kind, text: &Text) {
        if let Some(Identity { id: gone, .. }) = identity(kind, text) {
            self.objects.retain(|object| object.id() != gone);
            self.unreadable.retain(|(id, _)| *id != gone);
            self.identities.retain(|object| object.id != gone);
        }
    }

    /// The list, and the identities of its objects.
    pub(super) fn finish(self) -> (ObjectUpdate, Vec<Identity>) {
        let update = ObjectUpdate::All {
            objects: self.objects,
            unreadable: self.unreadable,
        };
        (update, self.identities)
    }
}
