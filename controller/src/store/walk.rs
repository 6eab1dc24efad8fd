//! A batch for one node, produced in chunks as the node reads it.
//!
//! A walk stores its position, not the items to send: a stream costs the same whether its agent is quick or stalled.
//! All chunks are of one version of the plans, regardless of later updates. For a batch from a plan that was sent, the
//! history has the state of Services at that version. Other batches keep a snapshot, so that no number of updates makes
//! them outdated.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use portolan_plan::{BucketHashes, Buckets, EntryKey, PlanHash, ServiceId};

use super::encoded::EncodedNode;
use super::shared_delta::{SharedDelta, Span};
use super::shared_plan::{Part, SharedPosition};
use super::snapshot::{Changes, Snapshot};
use super::step::{self, Piece, Step};
use super::then::{Then, behind};
use super::{Plans, Position};

/// Maximum number of differing buckets that are sent alone. With more, the whole plan is sent, which is hardly more.
const MAX_DIFFERING_BUCKETS: usize = 192;
/// Maximum number of versions by which the first plan of an agent is older than the newest one, so that agents that join
/// at the same time share a snapshot. An agent with a plan could return to an older one.
const MAX_SNAPSHOT_LAG: u64 = 256;

/// The plan that an agent holds.
#[derive(Debug, Clone)]
pub enum Held {
    /// No plan at all.
    Nothing,
    /// A plan that no batch can start from.
    Unknown,
    /// The plan that it reports; with bucket hashes if it sends them.
    Reported(PlanHash, Option<BucketHashes>),
    /// The plan that this controller sent to it.
    Sent(Position),
}

/// A batch in progress.
#[derive(Debug)]
pub struct Walk {
    begin: Begin,
    version: u64,
    /// Whether the plans had a newer version at its start.
    late: bool,
    node: Arc<EncodedNode>,
    source: Source,
    /// The hash of the plan after the items produced so far, or after all items.
    hash: PlanHash,
    /// Whether `hash` is that of the whole plan.
    total: bool,
    at: At,
}

/// Where the Services of a batch are.
#[derive(Debug, Clone)]
enum Source {
    /// In the plans, and for later changes in the history.
    History,
    /// In a snapshot of all Services.
    Snapshot(Arc<Snapshot>),
    /// Only the Services that changed since a position that the history does not reach.
    Changes(Arc<Changes>),
}

/// The start of a batch.
#[derive(Debug, Clone)]
pub enum Begin {
    /// From nothing.
    Nothing,
    /// From a plan of which these buckets are replaced.
    Buckets(Buckets),
    /// From a plan that was sent.
    Position(Position),
}

/// The position of a walk.
#[derive(Debug, Clone)]
enum At {
    /// The node's own entry.
    Node,
    /// A whole plan or buckets.
    Shared(SharedPosition),
    /// Changed Services behind this one.
    Changed(Option<ServiceId>),
    End,
}

/// Too many changes happened meanwhile to know the rest of the batch; start another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated;

impl Walk {
    /// The start of the batch.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Whether all items have been produced.
    pub fn is_done(&self) -> bool {
        matches!(self.at, At::End)
    }

    /// Whether the plans had a newer version at its start. Another batch has to follow.
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// The version of the plans that it leads to.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether it keeps forms of Services that may have changed since.
    pub fn keeps_services(&self) -> bool {
        !matches!(self.source, Source::History)
    }

    /// Whether it repeats the entries of changed Services, because the history does not reach the plan it begins from.
    pub fn is_repeated(&self) -> bool {
        matches!(self.source, Source::Changes(_))
    }

    /// The node's position after the batch.
    pub fn end(&self) -> Position {
        Position {
            version: self.version,
            node: self.node.clone(),
            hash: self.hash,
        }
    }

    pub(super) fn new(plans: &Plans, node: &Arc<EncodedNode>, held: Held) -> Self {
        match held {
            Held::Nothing => Self::whole(plans, node, MAX_SNAPSHOT_LAG),
            Held::Unknown => Self::whole(plans, node, 0),
            Held::Sent(position) => Self::from_position(plans, node, position),
            Held::Reported(hash, buckets) => {
                let present = plans.hashes(node);
                let total = present.total();
                if hash == total {
                    let position = Position {
                        version: plans.version,
                        node: node.clone(),
                        hash,
                    };
                    let walk = Self::from_position(plans, node, position);
                    return Self {
                        at: At::End,
                        ..walk
                    };
                }
                let differing = buckets.map(|buckets| buckets.differing(&present));
                match differing.filter(|differing| differing.len() <= MAX_DIFFERING_BUCKETS) {
                    Some(differing) => Self {
                        begin: Begin::Buckets(differing),
                        hash: total,
                        total: true,
                        ..Self::whole(plans, node, 0)
                    },
                    None => Self::whole(plans, node, 0),
                }
            }
        }
    }

    /// The whole plan, up to `lag` versions old.
    fn whole(plans: &Plans, node: &Arc<EncodedNode>, lag: u64) -> Self {
        let snapshot = Snapshot::of(plans, lag);
        Self {
            begin: Begin::Nothing,
            version: snapshot.version,
            late: snapshot.version < plans.version,
            node: node.clone(),
            source: Source::Snapshot(snapshot),
            hash: PlanHash::default(),
            total: false,
            at: At::Node,
        }
    }

    /// From a plan that was sent. If too many Services changed since, the whole plan.
    fn from_position(plans: &Plans, node: &Arc<EncodedNode>, position: Position) -> Self {
        let walk = |source, hash, total, position| Self {
            begin: Begin::Position(position),
            version: plans.version,
            late: false,
            node: node.clone(),
            source,
            hash,
            total,
            at: At::Node,
        };
        // In another zone a node may use other lists of every Service.
        if position.node.value.zone != node.value.zone {
            return Self::whole(plans, node, 0);
        }
        if plans.history.reaches(position.version) {
            return walk(Source::History, position.hash, false, position);
        }
        match Changes::since(plans, position.version) {
            Some(changes) => {
                let total = plans.hashes(node).total();
                walk(Source::Changes(Arc::new(changes)), total, true, position)
            }
            None => Self::whole(plans, node, 0),
        }
    }

    /// The next items, about `most` bytes; fewer, or none, at the end.
    pub(super) fn more(
        &mut self,
        plans: &RwLock<Plans>,
        most: usize,
    ) -> Result<Vec<Bytes>, Outdated> {
        let mut piece = Piece::default();
        if matches!(self.at, At::Node) {
            self.node(&mut piece);
            self.at = match &self.source {
                Source::Snapshot(_) => At::Shared(SharedPosition::default()),
                Source::History | Source::Changes(_) => At::Changed(None),
            };
        }
        self.at = match (self.at.clone(), self.source.clone()) {
            (At::Shared(at), Source::Snapshot(snapshot)) => {
                self.shared(at, &snapshot, most, &mut piece)
            }
            (At::Changed(after), Source::Changes(changes)) => {
                self.repeated(after.as_ref(), &changes, most, &mut piece)
            }
            (At::Changed(after), Source::History) => {
                let plans = plans.read().unwrap_or_else(PoisonError::into_inner);
                self.changed(after.as_ref(), &plans, most, &mut piece)?
            }
            _ => At::End,
        };
        if self.is_done() {
            // A batch waits for its answer; until then it does not need the Services.
            self.source = Source::History;
        }
        Ok(piece.items)
    }

    /// Adds entries of the whole plan or of buckets until there are enough.
    fn shared(
        &mut self,
        at: SharedPosition,
        snapshot: &Snapshot,
        most: usize,
        piece: &mut Piece,
    ) -> At {
        let node = &self.node.value;
        let buckets = match &self.begin {
            Begin::Buckets(buckets) => Some(buckets),
            Begin::Nothing | Begin::Position(_) => None,
        };
        let (total, hash) = (self.total, &mut self.hash);
        let naming = snapshot.naming(&node.name);
        let part = Part { node, buckets };
        let add = |step: &Step| {
            if !total {
                *hash = step.after(*hash);
            }
        };
        let next = snapshot.shared(node, |shared| {
            shared.more(at, &part, &naming, most, piece, add)
        });
        next.map_or(At::End, At::Shared)
    }

    /// Adds the items of changed Services until there are enough.
    fn changed(
        &mut self,
        after: Option<&ServiceId>,
        plans: &Plans,
        most: usize,
        piece: &mut Piece,
    ) -> Result<At, Outdated> {
        let Begin::Position(position) = &self.begin else {
            return Ok(At::End);
        };
        let node = self.node.value.clone();
        let (from, to) = (position.version, self.version);
        let then = || Then::new(plans, from, to);
        if from == to {
            return Ok(At::End);
        }
        if after.is_none() {
            let zone = node.zone.clone();
            let span = Span { from, to, zone };
            let make = || then().map(|then| Arc::new(SharedDelta::new(&then, &node)));
            let delta = plans.deltas.get(span, make).ok_or(Outdated)?;
            if let Some(step) = delta.of(&node.name) {
                self.add(step, piece);
                return Ok(At::End);
            }
        }
        let then = then().ok_or(Outdated)?;
        for (id, before, now) in then.after(after) {
            let step = step::step(before, now, &node);
            self.add(&step, piece);
            if piece.bytes >= most {
                return Ok(At::Changed(Some(id.clone())));
            }
        }
        Ok(At::End)
    }

    /// The same if their former states are forgotten. Their order does not matter: a batch takes effect as a whole.
    fn repeated(
        &self,
        after: Option<&ServiceId>,
        Changes(changes): &Changes,
        most: usize,
        piece: &mut Piece,
    ) -> At {
        let node = &self.node.value;
        for (id, change) in changes.range::<ServiceId, _>(behind(after)) {
            change.put(id, node, piece);
            if piece.bytes >= most {
                return At::Changed(Some(id.clone()));
            }
        }
        At::End
    }

    fn node(&mut self, piece: &mut Piece) {
        let now = vec![(EntryKey::Node, self.node.encoded.clone())];
        let before = match &self.begin {
            Begin::Buckets(buckets) => return piece.buckets(now, buckets),
            Begin::Position(position) => vec![(EntryKey::Node, position.node.encoded.clone())],
            Begin::Nothing => Vec::new(),
        };
        self.add(&Step::between(before, now), piece);
    }

    fn add(&mut self, step: &Step, piece: &mut Piece) {
        piece.add(step);
        if !self.total {
            self.hash = step.after(self.hash);
        }
    }
}
