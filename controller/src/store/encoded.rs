//! Planned values with their bytes and hashes, encoded once and shared by all nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use portolan_plan::{
    Entry, EntryHash, EntryKey, Head, ListKey, Local, NodeEntry, Scope, ServiceId,
};
use portolan_planner::PlannedService;
use portolan_proto::{CHUNK_BYTES, encode_entry, item};
use smallvec::SmallVec;

use super::step::Steps;

/// Minimum size of a list for which a patch is sent, in bytes. A smaller list is sent whole when it changes.
const MIN_PATCHED_BYTES: usize = 1024;
/// About the memory of a Service without its lists and nodes.
const SERVICE_BYTES: usize = 512;
/// About the memory of a list without its backends and bytes: it is in two maps.
const LIST_BYTES: usize = 2 * (size_of::<ListKey>() + size_of::<EncodedEntry>());
/// About the memory of a node in a map of names.
const NAMED_BYTES: usize = 2 * size_of::<(Arc<str>, Arc<Local>)>();

/// An entry, its encoded item, and the hash of its bytes.
#[derive(Debug, Clone)]
pub(super) struct EncodedEntry {
    pub(super) entry: Entry,
    /// The items that set it. The same bytes for every stream.
    pub(super) items: SmallVec<[Bytes; 1]>,
    pub(super) hash: EntryHash,
    pub(super) bucket: u8,
    /// The patch from the previous list to this one.
    pub(super) patch: Option<Arc<Patch>>,
}

/// A small change of a large list.
#[derive(Debug)]
pub(super) struct Patch {
    /// The hash of the list that the patch applies to.
    pub(super) base: EntryHash,
    pub(super) item: Bytes,
}

impl EncodedEntry {
    fn new(key: &EntryKey, entry: Entry) -> Self {
        let bytes = encode_entry(&entry);
        let hash = EntryHash::of(key, &bytes);
        Self {
            entry,
            items: item::upserts(key, bytes).into_iter().collect(),
            hash,
            bucket: key.bucket(),
            patch: None,
        }
    }

    /// The memory of its value and its items.
    fn bytes(&self) -> usize {
        let items: usize = self.items.iter().map(Bytes::len).sum();
        let value = match &self.entry {
            Entry::List(list) => size_of_val(list.as_slice()),
            Entry::Node(_) | Entry::Head(_) | Entry::Local(_) => items,
        };
        items + value
    }

    /// Adds a patch from the previous entry if that takes less than half the bytes, and fits into a message.
    fn patching(mut self, key: &EntryKey, previous: Option<&Self>) -> Self {
        let size: usize = self.items.iter().map(Bytes::len).sum();
        if let (Entry::List(list), Some(previous)) = (&self.entry, previous)
            && let Entry::List(old) = &previous.entry
            && size >= MIN_PATCHED_BYTES
        {
            let base = previous.hash;
            let item = item::patch(key, base, old, list);
            let pays = item.len() * 2 < size && item.len() <= CHUNK_BYTES;
            self.patch = pays.then(|| Arc::new(Patch { base, item }));
        }
        self
    }
}

/// A node's own entry.
#[derive(Debug)]
pub(super) struct EncodedNode {
    pub(super) value: Arc<NodeEntry>,
    pub(super) encoded: EncodedEntry,
}

impl EncodedNode {
    pub(super) fn new(value: Arc<NodeEntry>) -> Self {
        let encoded = EncodedEntry::new(&EntryKey::Node, Entry::Node(value.clone()));
        Self { value, encoded }
    }
}

/// All entries of a Service, for all nodes. Entries for a single node are encoded when they are sent (ADR 0004):
/// stored for all nodes, they would take more memory than everything else.
#[derive(Debug)]
pub(super) struct EncodedService {
    id: ServiceId,
    /// The number by which other parts of the store refer to it.
    pub(super) number: u32,
    /// The version of the plans since which it is unchanged.
    pub(super) version: u64,
    /// The steps to this form.
    pub(super) steps: Steps,
    planned: Arc<PlannedService>,
    heads: Vec<(Arc<Head>, EncodedEntry)>,
    /// In order. Usually one or two; a map of one takes the memory of eleven.
    lists: Box<[(ListKey, EncodedEntry)]>,
    /// Nodes with a list of their own, in order. Each agent and change searches them.
    own_lists: Box<[Arc<str>]>,
    /// Whether nodes of different zones may receive different entries.
    zoned: bool,
    /// The names of its ports, in order.
    ports: Arc<[Arc<str>]>,
    bytes: usize,
}

impl EncodedService {
    /// Encodes the entries that differ from the previous plan of the same Service.
    pub(super) fn new(
        id: &ServiceId,
        number: u32,
        version: u64,
        planned: Arc<PlannedService>,
        previous: Option<&Self>,
    ) -> Self {
        let named = planned.locals.len() + planned.head_of_node.len();
        let mut bytes = SERVICE_BYTES + planned.lists.len() * LIST_BYTES + named * NAMED_BYTES;
        let heads = heads(id, &planned, previous, &mut bytes);
        let lists = lists(&planned, previous, &mut bytes);
        let scopes = || planned.lists.keys().map(|key| &key.scope);
        let own_lists: BTreeSet<_> = scopes().filter_map(Scope::node).cloned().collect();
        let own_lists = own_lists.into_iter().collect();
        let zoned = !planned.head_of_zone.is_empty()
            || scopes().any(|scope| matches!(scope, Scope::Zone(_)));
        let ports = planned.heads.iter().flat_map(|head| &head.ports);
        let ports: BTreeSet<_> = ports.map(|port| port.name.clone()).collect();
        let known = previous.filter(|previous| ports.iter().eq(previous.ports.iter()));
        let ports = match known {
            Some(previous) => previous.ports.clone(),
            None => ports.into_iter().collect(),
        };
        Self {
            id: id.clone(),
            number,
            version,
            steps: Steps::default(),
            planned,
            heads,
            lists,
            own_lists,
            zoned,
            ports,
            bytes,
        }
    }

    /// Whether this is its ID.
    pub(super) fn is(&self, id: &ServiceId) -> bool {
        self.id == *id
    }

    fn list(&self, key: &ListKey) -> Option<&EncodedEntry> {
        let place = self.lists.binary_search_by(|(other, _)| other.cmp(key));
        place.ok().map(|place| &self.lists[place].1)
    }

    /// About the memory that it takes without the parts that the previous form has as well.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The names of its ports, in order.
    pub(super) fn ports(&self) -> &Arc<[Arc<str>]> {
        &self.ports
    }

    /// Whether nodes program it first.
    pub(super) fn is_boot_critical(&self) -> bool {
        self.planned
            .heads
            .first()
            .is_some_and(|head| head.boot_critical)
    }

    /// The nodes for which it has entries by name; without duplicates, in order.
    pub(super) fn named(&self) -> Vec<&Arc<str>> {
        let lists = self.own_lists.iter();
        let heads = self.planned.head_of_node.keys();
        let mut names: Vec<_> = self
            .planned
            .locals
            .keys()
            .chain(heads)
            .chain(lists)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether it has entries for a node by name.
    pub(super) fn names(&self, node: &str) -> bool {
        let own = || self.own_lists.binary_search_by(|name| (**name).cmp(node));
        self.planned.locals.contains_key(node)
            || self.planned.head_of_node.contains_key(node)
            || own().is_ok()
    }

    /// Whether nodes of different zones may receive different entries.
    pub(super) fn differs_by_zone(&self) -> bool {
        self.zoned
    }

    /// Whether a node may send connections to the address.
    pub(super) fn lists_address(&self, address: IpAddr) -> bool {
        let mut lists = self.planned.lists.values();
        lists.any(|list| {
            list.as_slice()
                .iter()
                .any(|backend| backend.address == address)
        })
    }

    /// The entries for this node, in the order of their keys.
    pub(super) fn entries_for(&self, node: &NodeEntry) -> Vec<(EntryKey, EncodedEntry)> {
        let chosen = self.planned.head_for(node);
        let head = self
            .heads
            .iter()
            .find(|(head, _)| Arc::ptr_eq(head, chosen));
        let head = head.map(|(_, encoded)| (EntryKey::Head(self.id.clone()), encoded.clone()));
        let lists = self
            .planned
            .lists_for(node)
            .filter_map(|(key, _)| Some((EntryKey::List(key.clone()), self.list(key)?.clone())));
        let local = self.planned.local_for(&node.name);
        let local = local.map(|local| {
            let key = EntryKey::Local(self.id.clone());
            let encoded = EncodedEntry::new(&key, Entry::Local(local.clone()));
            (key, encoded)
        });
        head.into_iter().chain(lists).chain(local).collect()
    }
}

/// The encoded heads; adds the memory of those that the previous form does not have.
fn heads(
    id: &ServiceId,
    planned: &PlannedService,
    previous: Option<&EncodedService>,
    bytes: &mut usize,
) -> Vec<(Arc<Head>, EncodedEntry)> {
    let key = EntryKey::Head(id.clone());
    let heads = planned.heads.iter().map(|head| {
        let mut known = previous.into_iter().flat_map(|previous| &previous.heads);
        let encoded = match known.find(|(old, _)| Arc::ptr_eq(old, head)) {
            Some((_, encoded)) => encoded.clone(),
            None => {
                let encoded = EncodedEntry::new(&key, Entry::Head(head.clone()));
                *bytes += encoded.bytes();
                encoded
            }
        };
        (head.clone(), encoded)
    });
    heads.collect()
}

/// The same for its lists.
fn lists(
    planned: &PlannedService,
    previous: Option<&EncodedService>,
    bytes: &mut usize,
) -> Box<[(ListKey, EncodedEntry)]> {
    let lists = planned.lists.iter().map(|(key, list)| {
        let known = previous.and_then(|previous| previous.list(key));
        let same = known
            .filter(|known| matches!(&known.entry, Entry::List(old) if Arc::ptr_eq(old, list)));
        let encoded = same.cloned().unwrap_or_else(|| {
            let entry_key = EntryKey::List(key.clone());
            let encoded = EncodedEntry::new(&entry_key, Entry::List(list.clone()));
            *bytes += encoded.bytes();
            encoded.patching(&entry_key, known)
        });
        (key.clone(), encoded)
    });
    lists.collect()
}
