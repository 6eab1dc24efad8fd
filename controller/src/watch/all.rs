//! A list while it is being read.

use tracing::warn;

use super::mark::Identity;
use super::object::{Text, identity, read};
use super::{Kind, Seen};
use crate::object::{Found, ObjectId};

/// Objects of a list.
#[derive(Default)]
pub(super) struct All {
    objects: Vec<Found>,
    unreadable: Vec<(ObjectId, String)>,
    identities: Vec<Identity>,
}

impl All {
    pub(super) fn take(&mut self, kind: Kind, text: &Text) {
        self.identities.extend(identity(kind, text));
        match read(kind, text) {
            Some(Ok(found)) => self.objects.push(found),
            Some(Err((id, problem))) => self.unreadable.push((id, problem)),
            None => warn!(
                kind = kind.name(),
                "an object without a name came; it is passed over"
            ),
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, text: &Text) {
        if let Some(Identity { id: gone, .. }) = identity(kind, text) {
            self.objects.retain(|found| found.id() != gone);
            self.unreadable.retain(|(id, _)| *id != gone);
            self.identities.retain(|object| object.id != gone);
        }
    }

    pub(super) fn seen(self, kind: Kind) -> (Seen, Vec<Identity>) {
        let seen = Seen::All {
            kind,
            objects: self.objects,
            unreadable: self.unreadable,
        };
        (seen, self.identities)
    }
}
