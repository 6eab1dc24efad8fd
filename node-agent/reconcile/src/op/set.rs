use std::fmt;

use portolan_plan::Family;

use crate::{SetEntry, SetId};

/// One change of the address sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetOp {
    /// Create a set.
    Create {
        /// The set.
        set: SetId,
        /// The maximum number of entries.
        max_elements: u32,
    },
    /// Replace a set by a new one with these entries.
    Replace {
        /// The set.
        set: SetId,
        /// The maximum number of entries.
        max_elements: u32,
        /// Its entries.
        entries: Vec<SetEntry>,
    },
    /// Add an entry to a set.
    AddEntry {
        /// The set.
        set: SetId,
        /// The entry.
        entry: SetEntry,
    },
    /// Delete an entry from a set.
    DeleteEntry {
        /// The set.
        set: SetId,
        /// The entry.
        entry: SetEntry,
    },
    /// Destroy a set that no rule uses.
    Destroy {
        /// The set.
        set: SetId,
    },
    /// Destroy one of [`LEFTOVER_SETS`](crate::LEFTOVER_SETS).
    DestroyLeftover {
        /// Its name.
        name: &'static str,
    },
}

impl SetOp {
    /// The set that is changed; `None` for a leftover one.
    pub fn set(&self) -> Option<SetId> {
        match self {
            Self::Create { set, .. }
            | Self::Replace { set, .. }
            | Self::AddEntry { set, .. }
            | Self::DeleteEntry { set, .. }
            | Self::Destroy { set } => Some(*set),
            Self::DestroyLeftover { .. } => None,
        }
    }

    /// The entry that is added or deleted.
    pub fn entry(&self) -> Option<&SetEntry> {
        match self {
            Self::AddEntry { entry, .. } | Self::DeleteEntry { entry, .. } => Some(entry),
            _ => None,
        }
    }

    pub(super) fn families(&self) -> &'static [Family] {
        self.set()
            .map_or(&Family::BOTH, |set| super::only(set.family))
    }
}

impl fmt::Display for SetOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { set, max_elements } => {
                write!(f, "create set {set} for {max_elements} entries")
            }
            Self::Replace {
                set,
                max_elements,
                entries,
            } => {
                let count = entries.len();
                write!(
                    f,
                    "replace set {set} with one for {max_elements} entries, filled with {count}"
                )
            }
            Self::AddEntry { set, entry } => write!(f, "add {entry} to set {set}"),
            Self::DeleteEntry { set, entry } => write!(f, "delete {entry} from set {set}"),
            Self::Destroy { set } => write!(f, "destroy set {set}"),
            Self::DestroyLeftover { name } => write!(f, "destroy set {name}"),
        }
    }
}
