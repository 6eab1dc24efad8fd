//! State of one light agent: the hash of each entry, and the content of large lists only, since patches apply to
//! them. Every received byte is hashed, and the hash of each batch has to match.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use portolan_plan::{BackendList, BucketHashes, Buckets, Change, Entry, EntryHash, EntryKey};
use portolan_proto::wire::item::Item;
use portolan_proto::{decode_entry, item, wire};
use prost::Message as _;
use xxhash_rust::xxh3;

/// Lists whose bytes are fewer are sent whole when they change, and so is what they change to: half of
/// the least that is patched.
const PATCHED_FROM: usize = 512;

/// Large lists, shared by all agents of the process: they all hold the same, and 5,000 copies of it would
/// measure this process's memory.
#[derive(Debug, Default)]
pub(super) struct Lists {
    by_hash: Mutex<HashMap<EntryHash, Arc<BackendList>>>,
    /// The result of each patch, by the hash of its bytes.
    patched: Mutex<HashMap<u128, EntryHash>>,
}

/// The state of one agent.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// By the hash of the key, which also gives the bucket: agents of thousands of nodes are in one process.
    entries: HashMap<u64, EntryHash>,
    buckets: BucketHashes,
    /// Number of batches with a matching hash.
    batches: u64,
    /// Whether the batch at hand names a trace.
    traced: bool,
    /// The parts so far of an entry in several items.
    parts: Vec<u8>,
}

/// As many steps as the pass of a real agent has.
fn timing() -> wire::Timing {
    let names = [
        "read network",
        "desired state",
        "diff",
        "add guards",
        "add servers",
        "add frontends",
        "load rules",
        "flows",
    ];
    let step = |(name, after)| wire::Step {
        name: String::from(name),
        after_microseconds: after,
        microseconds: 100,
        operations: 1,
        failed: 0,
    };
    wire::Timing {
        waited_microseconds: 10,
        total_microseconds: 1_000,
        steps: names
            .into_iter()
            .zip((0..).step_by(100))
            .map(step)
            .collect(),
    }
}

/// Result of a message.
#[derive(Debug, Default)]
pub(super) struct Took {
    /// The number and the hash of a batch that is complete.
    pub(super) committed: Option<wire::Commit>,
    /// Whether an item has the searched part in its key.
    pub(super) marked: bool,
}

impl Holder {
    /// The hello of the agent.
    pub(super) fn hello(&self, node: &str) -> wire::Hello {
        let holds = !self.entries.is_empty();
        let of_held = |bytes: Vec<u8>| if holds { bytes } else { Vec::new() };
        wire::Hello {
            node: node.into(),
            wire_version: portolan_proto::WIRE_VERSION,
            agent_version: "bench".into(),
            plan_hash: of_held(self.buckets.total().to_bytes().to_vec()),
            bucket_hashes: of_held(self.buckets.to_bytes()),
            watermark: None,
            younger_than_milliseconds: 0,
            schedulers: Vec::new(),
        }
    }

    /// Number of acknowledged batches.
    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    /// The answer to a batch.
    pub(super) fn ack(&mut self, commit: &wire::Commit) -> Result<wire::Ack> {
        let hash = self.buckets.total().to_bytes().to_vec();
        ensure!(
            hash == commit.plan_hash,
            "the hash of a batch does not match"
        );
        self.batches += 1;
        Ok(wire::Ack {
            batch: commit.batch,
            received_hash: hash.clone(),
            applied_hash: hash,
            timing: self.traced.then(timing),
            ..wire::Ack::default()
        })
    }

    /// Takes in the parts of a message.
    pub(super) fn take(
        &mut self,
        message: wire::PlanMessage,
        lists: &Lists,
        mark: &str,
    ) -> Result<Took> {
        use wire::plan_message::Message;
        let mut took = Took::default();
        match message.message.context("an empty message")? {
            Message::Begin(begin) => self.begin(&begin),
            Message::Items(items) => took.marked = self.items(items, lists, mark)?,
            Message::Commit(commit) => took.committed = Some(commit),
            Message::Batch(batch) => {
                self.begin(&batch.begin.context("no begin")?);
                took.marked = self.items(batch.items.unwrap_or_default(), lists, mark)?;
                took.committed = batch.commit;
            }
            Message::Gone(_) | Message::Freshness(_) => {}
        }
        Ok(took)
    }

    fn begin(&mut self, begin: &wire::Begin) {
        self.traced = !begin.trace.is_empty();
        if begin.snapshot {
            self.entries.clear();
            self.buckets = BucketHashes::default();
            return;
        }
        let replaced: Buckets = begin.buckets.iter().copied().collect();
        if replaced.is_empty() {
            return;
        }
        let buckets = &mut self.buckets;
        self.entries.retain(|number, hash| {
            let bucket = bucket_of(*number);
            let stays = !replaced.contains(bucket);
            if !stays {
                buckets.remove(bucket, *hash);
            }
            stays
        });
    }

    fn items(&mut self, items: wire::Items, lists: &Lists, mark: &str) -> Result<bool> {
        let mut marked = false;
        for bytes in items.items {
            let item = wire::Item::decode(bytes.clone())?.item;
            match item.context("an item of an unknown kind")? {
                Item::Upsert(wire::Upsert { key, value }) => {
                    marked |= !mark.is_empty() && key.contains(mark);
                    self.upsert(&key, &value, lists)?;
                }
                Item::Part(wire::Part { key, value, last }) => {
                    marked |= !mark.is_empty() && key.contains(mark);
                    self.parts.extend_from_slice(&value);
                    if last {
                        let whole = std::mem::take(&mut self.parts);
                        self.upsert(&key, &whole, lists)?;
                    }
                }
                Item::Remove(key) => {
                    marked |= !mark.is_empty() && key.contains(mark);
                    self.enter(&key, None);
                }
                Item::Patch(patch) => {
                    marked |= !mark.is_empty() && patch.key.contains(mark);
                    let held = self.entries.get(&xxh3::xxh3_64(patch.key.as_bytes()));
                    let held = *held.context("a patch of nothing")?;
                    let hash = lists.patch(held, bytes)?;
                    self.enter(&patch.key, Some(hash));
                }
            }
        }
        Ok(marked)
    }

    fn upsert(&mut self, key: &str, value: &[u8], lists: &Lists) -> Result<()> {
        let hash = hash_of(key, value);
        if value.len() >= PATCHED_FROM {
            lists.keep(hash, key, value)?;
        }
        self.enter(key, Some(hash));
        Ok(())
    }

    fn enter(&mut self, key: &str, hash: Option<EntryHash>) {
        let number = xxh3::xxh3_64(key.as_bytes());
        let bucket = bucket_of(number);
        let before = match hash {
            Some(hash) => {
                self.buckets.add(bucket, hash);
                self.entries.insert(number, hash)
            }
            None => self.entries.remove(&number),
        };
        if let Some(before) = before {
            self.buckets.remove(bucket, before);
        }
    }
}

impl Lists {
    fn keep(&self, hash: EntryHash, key: &str, value: &[u8]) -> Result<()> {
        let mut lists = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        if !lists.contains_key(&hash)
            && let Entry::List(list) = decode_entry(&EntryKey::from_peer(key), value)?
        {
            lists.insert(hash, list);
        }
        Ok(())
    }

    /// The hash of the list that a patch leads to. Each patch is applied once for all agents.
    fn patch(&self, held: EntryHash, patch: Bytes) -> Result<EntryHash> {
        let number = xxh3::xxh3_128(&patch);
        let mut patched = self.patched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = patched.get(&number) {
            return Ok(*hash);
        }
        let mut lists = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        let base = lists.get(&held).context("a patch of an unknown list")?;
        let base = (held, base.clone());
        let read = item::read(patch, |_| Some(base))?;
        let (change, _) = read.context("a patch of another list")?;
        let Change::Upsert {
            hash,
            entry: Some(Entry::List(list)),
            ..
        } = change
        else {
            anyhow::bail!("a patch leads to no list");
        };
        lists.insert(hash, list);
        patched.insert(number, hash);
        Ok(hash)
    }
}

/// As `EntryKey::bucket` has it, of the hash of a key.
fn bucket_of(number: u64) -> u8 {
    number.to_be_bytes()[0]
}

/// As [`EntryHash::of`] has it, without reading the key.
fn hash_of(key: &str, value: &[u8]) -> EntryHash {
    let mut hasher = xxh3::Xxh3::new();
    hasher.update(key.as_bytes());
    hasher.update(&[0]);
    hasher.update(value);
    EntryHash(hasher.digest128())
}

#[cfg(test)]
mod tests {
    use portolan_plan::Backend;
    use portolan_proto::encode_entry;

    use super::*;

    fn list(last: u8) -> Arc<BackendList> {
        let backend = |number: u8| Backend {
            address: [10, 0, 0, number].into(),
            port: 80,
            weight: 1,
        };
        Arc::new((1..=last).map(backend).collect())
    }

    fn batch(begin: wire::Begin, items: Vec<Bytes>) -> wire::PlanMessage {
        let batch = wire::Batch {
            begin: Some(begin),
            items: Some(wire::Items { items }),
            commit: None,
        };
        wire::PlanMessage {
            message: Some(wire::plan_message::Message::Batch(batch)),
        }
    }

    #[test]
    fn hashes_are_those_of_the_plan() {
        let key = EntryKey::from_peer("list/shop/large/http/IPv4/cluster");
        let (from, to) = (list(250), list(251));
        let hash = |list: &Arc<BackendList>| {
            EntryHash::of(&key, &encode_entry(&Entry::List(list.clone())))
        };
        let mut holder = Holder::default();
        let lists = Lists::default();
        let bytes = encode_entry(&Entry::List(from.clone()));
        let first = batch(
            wire::Begin {
                snapshot: true,
                ..wire::Begin::default()
            },
            vec![item::upsert(&key, bytes)],
        );
        assert!(holder.take(first, &lists, "/large/").unwrap().marked);
        let mut wanted = BucketHashes::default();
        wanted.add(key.bucket(), hash(&from));
        assert_eq!(holder.buckets, wanted);
        let patch = item::patch(&key, hash(&from), &from, &to);
        let second = batch(wire::Begin::default(), vec![patch]);
        assert!(!holder.take(second, &lists, "/small/").unwrap().marked);
        let mut wanted = BucketHashes::default();
        wanted.add(key.bucket(), hash(&to));
        assert_eq!(holder.buckets, wanted);
        let third = batch(wire::Begin::default(), vec![item::remove(&key)]);
        holder.take(third, &lists, "").unwrap();
        assert_eq!(holder.buckets, BucketHashes::default());
    }
}
