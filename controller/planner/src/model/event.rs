//! Changes of objects.

use super::kept::ClusterObject;

/// A change of an object, or of all objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectChange<T: ClusterObject> {
    /// It was created or changed.
    Upsert(T),
    /// It was deleted.
    Remove(T::Id),
    /// All objects of the kind; every other one was deleted (S-191).
    Replace(Vec<T>),
}

impl<T: ClusterObject> ObjectChange<T> {
    /// The effect on one object: `None` if the change does not concern it, `Some(None)` if it was deleted.
    pub fn object(&self, id: &T::Id) -> Option<Option<&T>> {
        match self {
            Self::Upsert(object) => (object.id() == *id).then_some(Some(object)),
            Self::Remove(removed) => (removed == id).then_some(None),
            Self::Replace(objects) => Some(objects.iter().find(|object| object.id() == *id)),
        }
    }
}
