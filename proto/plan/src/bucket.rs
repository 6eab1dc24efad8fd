//! Buckets: parts of a plan that two sides compare by one hash each, so that who comes back with an old
//! plan is sent the differing parts only.

use crate::{EntryHash, PlanHash};

/// How many buckets there are; see [`crate::EntryKey::bucket`].
pub const BUCKETS: usize = 256;

/// The hash of a plan's entries, bucket by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketHashes(Box<[PlanHash; BUCKETS]>);

impl Default for BucketHashes {
    fn default() -> Self {
        Self(Box::new([PlanHash::default(); BUCKETS]))
    }
}

impl BucketHashes {
    /// Counts an entry of a bucket.
    pub fn add(&mut self, bucket: u8, entry: EntryHash) {
        let sum = &mut self.0[usize::from(bucket)];
        *sum = sum.with(entry);
    }

    /// Counts an entry no more.
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

    /// As the wire carries them: 16 bytes each, in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|hash| hash.to_bytes()).collect()
    }

    /// From the wire; `None` for any other length.
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

/// Some of the buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buckets([u128; 2]);

impl Buckets {
    /// Whether a bucket is among them.
    pub fn contains(&self, bucket: u8) -> bool {
        self.0[usize::from(bucket >> 7)] >> (bucket & 127) & 1 == 1
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0, 0]
    }

    /// All of them, in order.
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
