//! A batch for one node, produced in chunks as the node reads it.
//!
//! A walk stores its position, not the items to send: a stream costs the same whether its agent is quick or stalled.
//! All chunks are of one version of the plans, regardless of later updates; the history has the state of Services at
//! that version.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{BucketHashes, Buckets, EntryKey, PlanHash, ServiceId};

use super::encoded::{EncodedNode, EncodedService};
use super::history::Was;
use super::step::{self, Piece, Step};
use super::{Plans, Position};

/// Maximum number of differing buckets that are sent alone. With more, the whole plan is sent, which is hardly more.
const MAX_DIFFERING_BUCKETS: usize = 192;

/// The plan that an agent holds.
#[derive(Debug, Clone)]
pub enum Held {
    /// None, or none that a batch can start from.
    Nothing,
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
    node: Arc<EncodedNode>,
    /// The hash of the plan after the items produced so far.
    hash: PlanHash,
    at: At,
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

/// The position of a walk. Services that nodes program first come first.
#[derive(Debug, Clone)]
enum At {
    Node,
    Critical(Option<ServiceId>),
    Rest(Option<ServiceId>),
    End,
}

/// Too many changes happened meanwhile to know the rest of the batch; start another one, from nothing.
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

    /// The node's position after the batch.
    pub fn end(&self) -> Position {
        Position {
            version: self.version,
            node: self.node.clone(),
            hash: self.hash,
        }
    }

    pub(super) fn new(plans: &Plans, node: &Arc<EncodedNode>, held: Held) -> Self {
        let at_node = |begin, hash| Self {
            begin,
            version: plans.version,
            node: node.clone(),
            hash,
            at: At::Node,
        };
        match held {
            Held::Nothing => at_node(Begin::Nothing, PlanHash::default()),
            Held::Sent(position) => {
                let hash = position.hash;
                at_node(Begin::Position(position), hash)
            }
            Held::Reported(hash, buckets) => {
                let present = plans.hashes(node);
                let total = present.total();
                if hash == total {
                    let begin = Begin::Position(Position {
                        version: plans.version,
                        node: node.clone(),
                        hash,
                    });
                    return Self {
                        at: At::End,
                        ..at_node(begin, hash)
                    };
                }
                match buckets.map(|buckets| buckets.differing(&present)) {
                    Some(differing) if differing.len() <= MAX_DIFFERING_BUCKETS => {
                        at_node(Begin::Buckets(differing), total)
                    }
                    _ => at_node(Begin::Nothing, PlanHash::default()),
                }
            }
        }
    }

    /// The next items, about `most` bytes; fewer, or none, at the end.
    pub(super) fn more(&mut self, plans: &Plans, most: usize) -> Result<Vec<Bytes>, Outdated> {
        let mut piece = Piece::default();
        if matches!(self.at, At::Node) {
            self.node(&mut piece);
            self.at = At::Critical(None);
        }
        let then = Then::new(plans, self)?;
        while piece.bytes < most {
            let (first, after) = match std::mem::replace(&mut self.at, At::End) {
                At::Node | At::End => break,
                At::Critical(after) => (true, after),
                At::Rest(after) => (false, after),
            };
            let last = self.services(&then, first, after.as_ref(), most, &mut piece);
            self.at = match (last, first) {
                (Some(last), true) => At::Critical(Some(last)),
                (Some(last), false) => At::Rest(Some(last)),
                (None, true) => At::Rest(None),
                (None, false) => At::End,
            };
        }
        Ok(piece.items)
    }

    /// Adds the items of Services until there are enough. Returns the position; `None` at the end.
    fn services(
        &mut self,
        then: &Then<'_>,
        first: bool,
        after: Option<&ServiceId>,
        most: usize,
        piece: &mut Piece,
    ) -> Option<ServiceId> {
        for id in then.after(first, after) {
            let now = then.at_end(id);
            if now.is_some_and(|now| now.is_boot_critical()) == first {
                self.service(then, id, now, piece);
            }
            if piece.bytes >= most {
                return Some(id.clone());
            }
        }
        None
    }

    fn node(&mut self, piece: &mut Piece) {
        let now = vec![(EntryKey::Node, self.node.encoded.clone())];
        let before = match &self.begin {
            // Its hash is already that of the whole plan.
            Begin::Buckets(buckets) => return piece.buckets(now, buckets),
            Begin::Position(position) => vec![(EntryKey::Node, position.node.encoded.clone())],
            Begin::Nothing => Vec::new(),
        };
        self.hash = piece.step(&Step::between(before, now), self.hash);
    }

    fn service(
        &mut self,
        then: &Then<'_>,
        id: &ServiceId,
        now: Option<&Arc<EncodedService>>,
        piece: &mut Piece,
    ) {
        let node = &self.node.value;
        let (before, node_before) = match &self.begin {
            Begin::Buckets(buckets) => {
                let entries = now.map(|service| service.entries_for(node));
                return piece.buckets(entries.unwrap_or_default(), buckets);
            }
            Begin::Position(position) => (then.at_begin(id), &position.node.value),
            Begin::Nothing => (None, node),
        };
        let step = step::step(before, now, node_before, node);
        self.hash = piece.step(&step, self.hash);
    }
}

/// The state of Services at the start and the end of a walk.
struct Then<'a> {
    plans: &'a Plans,
    /// Services that changed after the version at the end, in their state at the end.
    since_end: BTreeMap<&'a ServiceId, &'a Was>,
    /// The same for the version at the start.
    since_begin: BTreeMap<&'a ServiceId, &'a Was>,
    /// If set, only these Services are considered.
    only_changed: bool,
}

impl<'a> Then<'a> {
    fn new(plans: &'a Plans, walk: &Walk) -> Result<Self, Outdated> {
        let since = |version| plans.history.since(version).ok_or(Outdated);
        let (since_begin, only_changed) = match &walk.begin {
            Begin::Position(position) => {
                // In another zone a node may use other lists of every Service.
                let same_zone = position.node.value.zone == walk.node.value.zone;
                (since(position.version)?, same_zone)
            }
            Begin::Nothing | Begin::Buckets(_) => (BTreeMap::new(), false),
        };
        Ok(Self {
            plans,
            since_end: since(walk.version)?,
            since_begin,
            only_changed,
        })
    }

    fn at_end(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        match self.since_end.get(id) {
            Some(was) => was.service.as_ref(),
            None => self.now(id),
        }
    }

    fn now(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        let plans = self.plans;
        // By its number if that is unchanged, which is faster than by name.
        let was = self.since_begin.get(id);
        let numbered = was.and_then(|was| plans.numbered.get(was.number));
        let same = numbered.filter(|service| service.is(id));
        same.or_else(|| plans.services.get(id))
    }

    fn at_begin(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        match self.since_begin.get(id) {
            Some(was) => was.service.as_ref(),
            None => self.plans.services.get(id),
        }
    }

    /// The Services to process after one, in order: those that come first, or all.
    fn after<'t>(&'t self, first: bool, after: Option<&'t ServiceId>) -> Merged<'a, 't> {
        let bounds = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let plans = self.plans;
        let changed = self.since_begin.range::<ServiceId, _>(bounds);
        let changed: Ids<'a, 't> = Box::new(changed.map(|(id, _)| *id));
        let sources = if self.only_changed {
            vec![changed]
        } else {
            let present: Ids<'a, 't> = if first {
                Box::new(plans.critical.range::<ServiceId, _>(bounds))
            } else {
                let services = plans.services.range::<ServiceId, _>(bounds);
                Box::new(services.map(|(id, _)| id))
            };
            let ended = self.since_end.range::<ServiceId, _>(bounds);
            vec![present, changed, Box::new(ended.map(|(id, _)| *id))]
        };
        Merged(sources.into_iter().map(Iterator::peekable).collect())
    }
}

type Ids<'a, 't> = Box<dyn Iterator<Item = &'a ServiceId> + 't>;

/// Merges sorted names from several sources, without duplicates.
struct Merged<'a, 't>(Vec<Peekable<Ids<'a, 't>>>);

impl<'a> Iterator for Merged<'a, '_> {
    type Item = &'a ServiceId;

    fn next(&mut self) -> Option<&'a ServiceId> {
        let least = self.0.iter_mut().filter_map(|ids| ids.peek().copied());
        let least = least.min()?;
        for ids in &mut self.0 {
            ids.next_if(|id| *id == least);
        }
        Some(least)
    }
}
