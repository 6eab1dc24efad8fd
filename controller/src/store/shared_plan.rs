//! The part of a whole plan that all nodes of a zone have in common, gathered once for all of them: thousands of agents
//! ask for whole plans at the same time after a restart.
//!
//! It is the plan of a node that no Service names. What a Service has for a node by name replaces or removes entries of
//! it, and is sent after them. The last item of a key wins.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{Buckets, NodeEntry};

use super::encoded::EncodedService;
use super::step::{Piece, Step};

/// The entries of a zone.
#[derive(Debug)]
pub(super) struct SharedPlan {
    /// A node of the zone without a name.
    unnamed: NodeEntry,
    /// Entries by bucket. Those of Services that nodes program first come first.
    chunks: Vec<Chunk>,
    /// The number of chunks that come first.
    critical: usize,
}

/// Entries of one bucket.
#[derive(Debug)]
struct Chunk {
    bucket: u8,
    step: Step,
}

/// A position in the plan of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SharedPosition {
    /// The next chunk.
    chunk: usize,
    /// Whether the Services that come first are complete.
    rest: bool,
    /// The number of Services with entries for the node by name that were sent, of those that come first or of the rest.
    named: usize,
}

impl SharedPlan {
    /// The plan of the zone of this node.
    pub(super) fn new<'a>(
        node: &NodeEntry,
        services: impl Iterator<Item = &'a Arc<EncodedService>>,
    ) -> Self {
        let unnamed = unnamed(node);
        let (mut first, mut rest) = (BTreeMap::new(), BTreeMap::new());
        for service in services {
            let steps = match service.is_boot_critical() {
                true => &mut first,
                false => &mut rest,
            };
            for (_, entry) in service.entries_for(&unnamed) {
                let step: &mut Step = steps.entry(entry.bucket).or_default();
                step.put(None, &entry);
            }
        }
        let critical = first.len();
        let chunks = first.into_iter().chain(rest);
        let chunks = chunks.map(|(bucket, step)| Chunk { bucket, step });
        Self {
            unnamed,
            chunks: chunks.collect(),
            critical,
        }
    }

    /// Adds the next entries of a node's plan, about `most` bytes, of these buckets or of all. `named` are the Services
    /// with entries for the node by name. Calls `add` for each step, and returns the position after them; `None` at the
    /// end.
    pub(super) fn more<'a>(
        &self,
        mut at: SharedPosition,
        of: &Part<'_>,
        named: &(impl Iterator<Item = &'a Arc<EncodedService>> + Clone),
        most: usize,
        piece: &mut Piece,
        mut add: impl FnMut(&Step),
    ) -> Option<SharedPosition> {
        loop {
            let end = if at.rest {
                self.chunks.len()
            } else {
                self.critical
            };
            for chunk in self.chunks.get(at.chunk..end).unwrap_or_default() {
                if piece.bytes >= most {
                    return Some(at);
                }
                at.chunk += 1;
                if of.buckets.is_none_or(|all| all.contains(chunk.bucket)) {
                    piece.add(&chunk.step);
                    add(&chunk.step);
                }
            }
            let is_due = |service: &&Arc<EncodedService>| service.is_boot_critical() != at.rest;
            for service in named.clone().filter(is_due).skip(at.named) {
                if piece.bytes >= most {
                    return Some(at);
                }
                at.named += 1;
                let step = self.own(service, of);
                piece.add(&step);
                add(&step);
            }
            if at.rest {
                return None;
            }
            at = SharedPosition {
                rest: true,
                named: 0,
                ..at
            };
        }
    }

    /// The step from the shared entries of a Service to those of a node that it names.
    fn own(&self, service: &EncodedService, of: &Part<'_>) -> Step {
        let entries = |node| {
            let mut entries = service.entries_for(node);
            if let Some(buckets) = of.buckets {
                entries.retain(|(_, entry)| buckets.contains(entry.bucket));
            }
            entries
        };
        Step::between(entries(&self.unnamed), entries(of.node))
    }
}

/// The part of the plans that a batch contains.
pub(super) struct Part<'a> {
    pub(super) node: &'a NodeEntry,
    /// `None` for all.
    pub(super) buckets: Option<&'a Buckets>,
}

/// The node without its name, which no Service has.
pub(super) fn unnamed(node: &NodeEntry) -> NodeEntry {
    NodeEntry {
        name: "".into(),
        ..node.clone()
    }
}
