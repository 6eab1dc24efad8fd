//! A batch for one node, made piece by piece as the node takes it.
//!
//! A walk remembers where it is, not what it will send: a stream costs the same whether its agent is
//! quick or stalled. All pieces are of one version of the plans, whatever is published meanwhile; what
//! a Service was at that version is known from the history.

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

/// More differing buckets than this, and all of the plan is sent: it hardly takes more.
const MOST_BUCKETS: usize = 192;

/// What an agent holds.
#[derive(Debug, Clone)]
pub enum Held {
    /// Nothing, or nothing that can be built on.
    Nothing,
    /// What it says of itself; buckets, if it speaks of them.
    Said(PlanHash, Option<BucketHashes>),
    /// What this controller sent it.
    Sent(Position),
}

/// A batch on its way.
#[derive(Debug)]
pub struct Walk {
    begin: Begin,
    version: u64,
    node: Arc<EncodedNode>,
    /// Of the plan that what was made so far leads to.
    hash: PlanHash,
    at: At,
}

/// Where a batch begins.
#[derive(Debug, Clone)]
pub enum Begin {
    /// At nothing.
    Nothing,
    /// At a plan of which these buckets are replaced.
    Buckets(Buckets),
    /// At a plan that was sent.
    Position(Position),
}

/// How far a walk is. Services that nodes program first come first.
#[derive(Debug, Clone)]
enum At {
    Node,
    Critical(Option<ServiceId>),
    Rest(Option<ServiceId>),
    End,
}

/// So much was changed meanwhile that it is not known any more what the rest of a batch was: begin
/// another one, at nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated;

impl Walk {
    /// Where it begins.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Whether everything was made.
    pub fn is_done(&self) -> bool {
        matches!(self.at, At::End)
    }

    /// Where the node is after all of it.
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
            Held::Said(hash, buckets) => {
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
                    Some(differing) if differing.len() <= MOST_BUCKETS => {
                        at_node(Begin::Buckets(differing), total)
                    }
                    _ => at_node(Begin::Nothing, PlanHash::default()),
                }
            }
        }
    }

    /// The next items, of about so many bytes; fewer, or none, are the last.
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

    /// What follows a Service, until there is enough. Gives back where that was; nothing at the end.
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
            // Its hash is that of the whole plan already.
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

/// What Services were where a walk begins and where it ends.
struct Then<'a> {
    plans: &'a Plans,
    /// What changed after the version that the walk leads to, as it was then.
    since_end: BTreeMap<&'a ServiceId, &'a Was>,
    /// The same of the version at which it begins.
    since_begin: BTreeMap<&'a ServiceId, &'a Was>,
    /// Whether only these matter.
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
        // By its number, if it still has the one that it had: looking for a name takes longer.
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

    /// The Services to look at after one, among those that come first or all, in order.
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

/// Names from several sources that are in order: each once, in order.
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
