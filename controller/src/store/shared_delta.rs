//! The changes between two versions, gathered once for all nodes of a zone that no changed Service names: most streams
//! are at the same version when a change comes.

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_plan::NodeEntry;
use portolan_proto::CHUNK_BYTES;

use super::shared_plan::unnamed;
use super::step::{self, Step};
use super::then::Then;

/// Maximum size of a shared delta. A larger one is sent in pieces, so that an agent that does not read costs little.
const MAX_SHARED_BYTES: usize = 8 * CHUNK_BYTES;

/// Maximum number of nodes that the Services of a shared delta name. Services that name more, such as those of a
/// DaemonSet, change for each node differently.
const MAX_NAMED: usize = 1024;

/// Which delta it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) zone: Option<Arc<str>>,
}

/// The changes of Services between two versions.
#[derive(Debug, Default)]
pub(super) struct SharedDelta {
    /// `None` if it is larger than [`MAX_SHARED_BYTES`] or names more nodes than [`MAX_NAMED`].
    step: Option<Step>,
    /// The nodes that a changed Service names. Their changes may differ.
    named: BTreeSet<Arc<str>>,
}

impl SharedDelta {
    /// The changes for the zone of this node.
    pub(super) fn new(then: &Then<'_>, node: &NodeEntry) -> Self {
        let unnamed = unnamed(node);
        let (mut step, mut named) = (Step::default(), BTreeSet::new());
        for (_, before, now) in then.after(None) {
            // A Service that changed and changed back.
            if before.map(Arc::as_ptr) == now.map(Arc::as_ptr) {
                continue;
            }
            step.append(&step::step(before, now, &unnamed));
            for service in [before, now].into_iter().flatten() {
                named.extend(service.named().into_iter().cloned());
            }
            if step.bytes() > MAX_SHARED_BYTES || named.len() > MAX_NAMED {
                return Self::default();
            }
        }
        let step = Some(step);
        Self { step, named }
    }

    /// The items for a node; `None` if it has to gather its own.
    pub(super) fn of(&self, node: &str) -> Option<&Step> {
        let step = self.step.as_ref();
        step.filter(|_| !self.named.contains(node))
    }
}
