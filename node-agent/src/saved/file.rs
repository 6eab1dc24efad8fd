//! File format of a saved plan, without I/O: a header line, length-delimited messages, and a checksum of everything
//! before it.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, Bytes};
use portolan_plan::{EntryHash, EntryKey, NodePlan, PlanHash, StagedChanges};
use portolan_proto::{CHUNK_BYTES, encode_entry, item, wire};
use prost::Message;
use thiserror::Error;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const HEADER: &[u8] = b"portolan plan 2\n";
const CHECKSUM_BYTES: usize = 8;

/// Time and place of a saved plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The node's name.
    pub node: String,
    /// The boot ID of the kernel.
    pub boot: String,
    /// When it was written; if its controller was outdated, the time of the objects from which it was made.
    pub written: SystemTime,
    /// When a controller last confirmed it.
    pub confirmed: SystemTime,
}

/// A saved plan that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileError {
    /// The header differs.
    #[error("it is not a plan of this version of the agent")]
    Version,
    /// The checksum is wrong: the file was truncated, or its disk is failing.
    #[error("it is damaged: its checksum is wrong")]
    Checksum,
    /// It is intact, but cannot be decoded.
    #[error("its {what} cannot be decoded; was it written by another version of the agent?")]
    Unreadable {
        /// The part.
        what: &'static str,
    },
}

/// Writes a plan chunk by chunk. Returns the hash of its entries.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(plan: &NodePlan, origin: &Origin, to: impl Write) -> io::Result<PlanHash> {
    let mut file = ChecksumWriter {
        to,
        sum: Xxh3::new(),
    };
    file.write_all(HEADER)?;
    let (entries, hash) = entries(plan);
    let since = origin.written.duration_since(UNIX_EPOCH);
    file.message(&wire::Saved {
        node: origin.node.clone(),
        boot: origin.boot.clone(),
        written: since.unwrap_or_default().as_secs(),
        plan_hash: hash.to_bytes().to_vec(),
    })?;
    let (mut items, mut size) = (Vec::new(), 0);
    for (key, bytes) in entries {
        size += bytes.len();
        items.push(item::upsert(key, bytes));
        if size >= CHUNK_BYTES {
            size = 0;
            let items = std::mem::take(&mut items);
            file.message(&wire::Items { items })?;
        }
    }
    file.message(&wire::Items { items })?;
    let sum = file.sum.digest().to_le_bytes();
    file.to.write_all(&sum)?;
    file.to.flush()?;
    Ok(hash)
}

/// The encoded entries and the hash of all. The hash differs from the announced one while an older value is in use
/// for an undecodable entry.
fn entries(plan: &NodePlan) -> (impl Iterator<Item = (&EntryKey, Bytes)>, PlanHash) {
    let encoded = || {
        plan.entries()
            .map(|(key, entry)| (key, encode_entry(entry)))
    };
    let hash = encoded().fold(PlanHash::default(), |sum, (key, bytes)| {
        sum.with(EntryHash::of(key, &bytes))
    });
    (encoded(), hash)
}

/// Reads a plan: its origin, its entries and their hash.
///
/// # Errors
/// [`FileError`] for anything but an intact plan of this version.
pub(super) fn read(file: &Bytes) -> Result<(Origin, StagedChanges, PlanHash), FileError> {
    if !file.starts_with(HEADER) {
        return Err(FileError::Version);
    }
    let length = file.len().checked_sub(CHECKSUM_BYTES);
    let (body, sum) = length
        .map(|length| (file.slice(..length), file.slice(length..)))
        .ok_or(FileError::Checksum)?;
    if xxh3_64(&body).to_le_bytes() != *sum {
        return Err(FileError::Checksum);
    }
    let mut rest = body.slice(HEADER.len()..);
    let what = "head";
    let saved = wire::Saved::decode_length_delimited(&mut rest)
        .map_err(|_| FileError::Unreadable { what })?;
    let hash = PlanHash::from_bytes(&saved.plan_hash).ok_or(FileError::Unreadable { what })?;
    let mut staged = StagedChanges::snapshot();
    while rest.has_remaining() {
        let items = wire::Items::decode_length_delimited(&mut rest)
            .map_err(|_| FileError::Unreadable { what: "entries" })?;
        for item in items.items {
            // An undecodable value would leave a gap in the plan.
            match item::read(item, |_| None) {
                Ok(Some((change, None))) => staged.push(change),
                _ => return Err(FileError::Unreadable { what: "entries" }),
            }
        }
    }
    let written = UNIX_EPOCH.checked_add(Duration::from_secs(saved.written));
    let written = written.ok_or(FileError::Unreadable { what })?;
    let origin = Origin {
        node: saved.node,
        boot: saved.boot,
        written,
        confirmed: written,
    };
    Ok((origin, staged, hash))
}

/// A writer that computes the checksum of the written bytes.
struct ChecksumWriter<W> {
    to: W,
    sum: Xxh3,
}

impl<W: Write> ChecksumWriter<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }

    fn message(&mut self, message: &impl Message) -> io::Result<()> {
        self.write_all(&message.encode_length_delimited_to_vec())
    }
}
