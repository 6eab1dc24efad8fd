//! A batch for one node, made piece by piece as the node takes it.
//!
//! A walk remembers where it is, not what it will send: a stream costs the same whether its agent is
//! quick or stalled. All pieces are of one version of the plans, whatever is published meanwhile; what
//! a Service was at that version is known from the history.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{BucketHashes, Buckets, EntryKey, PlanHash, ServiceId};
use portolan_proto::item;

use super::encoded::{EncodedEntry, EncodedNode, EncodedService};
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
    /// Whether the agent can read patches.
    patches: bool,
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

    pub(super) fn new(plans: &Plans, node: &Arc<EncodedNode>, held: Held, patches: bool) -> Self {
        let at_node = |begin, hash| Self {
            begin,
            version: plans.version,
            node: node.clone(),
            hash,
            at: At::Node,
            patches,
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
            let (first, after) = match &self.at {
                At::Node | At::End => break,
                At::Critical(after) => (true, after.clone()),
                At::Rest(after) => (false, after.clone()),
            };
            self.at = match (then.next(first, after.as_ref()), first) {
                (Some(id), _) => {
                    let now = then.at_end(&id);
                    if now.is_some_and(|now| now.is_boot_critical()) == first {
                        self.service(&then, &id, now, &mut piece);
                    }
                    if first {
                        At::Critical(Some(id))
                    } else {
                        At::Rest(Some(id))
                    }
                }
                (None, true) => At::Rest(None),
                (None, false) => At::End,
            };
        }
        Ok(piece.items)
    }

    fn node(&mut self, piece: &mut Piece) {
        let now = (EntryKey::Node, self.node.encoded.clone());
        let before = match &self.begin {
            Begin::Position(position) => vec![(EntryKey::Node, position.node.encoded.clone())],
            Begin::Nothing | Begin::Buckets(_) => Vec::new(),
        };
        self.entries(before, vec![now], piece);
    }

    fn service(
        &mut self,
        then: &Then<'_>,
        id: &ServiceId,
        now: Option<&Arc<EncodedService>>,
        piece: &mut Piece,
    ) {
        let before = match &self.begin {
            Begin::Position(position) => then
                .at_begin(id)
                .map(|service| service.entries_for(&position.node.value)),
            Begin::Nothing | Begin::Buckets(_) => None,
        };
        let now = now.map(|service| service.entries_for(&self.node.value));
        self.entries(before.unwrap_or_default(), now.unwrap_or_default(), piece);
    }

    /// What leads from some entries to others; both in the order of keys.
    fn entries(
        &mut self,
        before: Vec<(EntryKey, EncodedEntry)>,
        now: Vec<(EntryKey, EncodedEntry)>,
        piece: &mut Piece,
    ) {
        let mut before = before.into_iter().peekable();
        for (key, new) in now {
            while let Some((gone, old)) = before.next_if(|(other, _)| *other < key) {
                self.remove(&gone, &old, piece);
            }
            let old = before.next_if(|(other, _)| *other == key);
            self.put(old.map(|(_, old)| old).as_ref(), &new, piece);
        }
        for (gone, old) in before {
            self.remove(&gone, &old, piece);
        }
    }

    fn put(&mut self, old: Option<&EncodedEntry>, new: &EncodedEntry, piece: &mut Piece) {
        match &self.begin {
            // Its hash is that of the whole plan already.
            Begin::Buckets(buckets) => {
                if buckets.contains(new.bucket) {
                    piece.push(new.item.clone());
                }
                return;
            }
            Begin::Nothing | Begin::Position(_) => {}
        }
        if let Some(old) = old {
            if old.hash == new.hash {
                return;
            }
            self.hash = self.hash.without(old.hash);
        }
        self.hash = self.hash.with(new.hash);
        let patch = new
            .patch
            .as_ref()
            .filter(|patch| self.patches && old.is_some_and(|old| old.hash == patch.base));
        piece.push(patch.map_or(&new.item, |patch| &patch.item).clone());
    }

    fn remove(&mut self, key: &EntryKey, old: &EncodedEntry, piece: &mut Piece) {
        self.hash = self.hash.without(old.hash);
        piece.push(item::remove(key));
    }
}

/// What Services were where a walk begins and where it ends.
struct Then<'a> {
    plans: &'a Plans,
    /// What changed after the version that the walk leads to, as it was then.
    since_end: BTreeMap<&'a ServiceId, Option<&'a Arc<EncodedService>>>,
    /// The same of the version at which it begins.
    since_begin: BTreeMap<&'a ServiceId, Option<&'a Arc<EncodedService>>>,
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
        let changed = self.since_end.get(id).copied();
        changed.unwrap_or_else(|| self.plans.services.get(id))
    }

    fn at_begin(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        let changed = self.since_begin.get(id).copied();
        changed.unwrap_or_else(|| self.plans.services.get(id))
    }

    /// The next Service to look at, among those that come first or all.
    fn next(&self, first: bool, after: Option<&ServiceId>) -> Option<ServiceId> {
        let bounds = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let least = |map: &BTreeMap<&'a ServiceId, _>| {
            map.range::<ServiceId, _>(bounds).next().map(|(id, _)| *id)
        };
        let changed = least(&self.since_begin);
        if self.only_changed {
            return changed.cloned();
        }
        let present = if first {
            self.plans.critical.range(bounds).next()
        } else {
            self.plans.services.range(bounds).next().map(|(id, _)| id)
        };
        let ended = least(&self.since_end);
        let next = [present, changed, ended].into_iter().flatten().min();
        next.cloned()
    }
}

/// Items gathered for one message.
#[derive(Default)]
struct Piece {
    items: Vec<Bytes>,
    bytes: usize,
}

impl Piece {
    fn push(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.items.push(item);
    }
}
