//! Buckets are parts of a plan, each with one hash. An agent that reconnects with an old plan is sent only the
//! buckets whose hashes differ.

use crate::{EntryHash, PlanHash};

/// The number of buckets; see [`crate::EntryKey::bucket`].
pub const BUCKETS: usize = 256;

/// The hashes of a plan's entries, one per bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketHashes(Box<[PlanHash; BUCKETS]>);

impl Default for BucketHashes {
    fn default() -> Self {
        Self(Box::new([PlanHash::default(); BUCKETS]))
    }
}

impl BucketHashes {
    /// Adds an entry to a bucket's hash.
    pub fn add(&mut self, bucket: u8, entry: EntryHash) {
        let sum = &mut self.0[usize::from(bucket)];
        *sum = sum.with(entry);
    }

    /// Removes an entry from a bucket's hash.
    pub fn remove(&mut self, bucket: u8, entry: EntryHash) {
        let sum = &mut self.0[usize::from(bucket)];
        *sum = sum.without(entry);
    }

    /// The hash of all entries together.
    pub fn total(&self) -> PlanHash {
        let sum = |sum: u128, bucket: &PlanHash| sum.wrapping_add(bucket.0);
        PlanHash(self.0.iter().fold(0, sum))
    }

    /// The buckets whose hashes differ.
    pub fn differing(&self, other: &Self) -> Buckets {
        let both = (0..=u8::MAX).zip(self.0.iter().zip(other.0.iter()));
        let differing = both.filter(|(_, (left, right))| left != right);
        differing.map(|(bucket, _)| bucket).collect()
    }

    /// The hashes as on the wire: 16 bytes each, in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|hash| hash.to_bytes()).collect()
    }

    /// Parses the hashes from the wire; `None` for any other length than 4096 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut hashes = Self::default();
        let chunks = bytes.chunks_exact(16);
        if bytes.len() != BUCKETS * 16 {
            return None;
        }
        for (hash, chunk) in hashes.0.iter_mut().zip(chunks) {
            *hash = PlanHash::from_bytes(chunk)?;
        }
        Some(hashes)
    }
}

/// A set of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buckets([u128; 2]);

impl Buckets {
    /// Whether the set contains a bucket.
    pub fn contains(&self, bucket: u8) -> bool {
        self.0[usize::from(bucket >> 7)] >> (bucket & 127) & 1 == 1
    }

    /// The number of buckets in the set.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0, 0]
    }

    /// The numbers of the buckets, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|bucket| self.contains(*bucket))
    }
}

impl FromIterator<u8> for Buckets {
    fn from_iter<T: IntoIterator<Item = u8>>(buckets: T) -> Self {
        let mut set = Self::default();
        for bucket in buckets {
            set.0[usize::from(bucket >> 7)] |= 1 << (bucket & 127);
        }
        set
    }
}
