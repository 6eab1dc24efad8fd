//! The watermark of the plan, kept on disk, so that an agent that restarts never returns to an older plan (I-12). It is
//! written before the plan is applied: it can be ahead of the plan, which costs the controller a list, but not behind.
//!
//! The file is one page and is overwritten in place, which survives the end of the program. It is flushed to the disk
//! only before the plan is: a flush for each batch would wear out disks. A damaged file is ignored.
//!
//! Touches: one file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan_proto::wire;
use prost::Message as _;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_64;

/// The name of the file in the state directory.
pub(crate) const FILE: &str = "plan.watermark";
/// The size of the file: one page, which is written at once.
const FILE_BYTES: usize = 4096;
/// Maximum number of kinds. A controller watches fewer; the limit protects memory.
const MAX_KINDS: usize = 16;
/// Maximum length of the name of a kind, in bytes.
const MAX_KIND_BYTES: usize = 63;
/// Timeout of a write. A disk that hangs must not stop changes from reaching the kernel.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The watermark of the plan: the versions of the objects that it was made from. A controller with older objects lists
/// them again before it sends anything.
#[derive(Debug, Default)]
pub struct Remembered {
    watermark: wire::Watermark,
    file: Option<WatermarkFile>,
    memory: Option<Memory>,
}

/// A watermark that outlives the agent in the same process, in place of a file.
pub type Memory = Arc<Mutex<wire::Watermark>>;

impl Remembered {
    /// The watermark of this node in this directory; empty if there is no readable one.
    pub fn open(directory: &Path, node: &str) -> Self {
        let path = directory.join(FILE);
        match WatermarkFile::open(&path, node) {
            Ok((file, watermark)) => Self {
                watermark,
                file: Some(file),
                memory: None,
            },
            Err(error) => {
                log_failure(&path, &error);
                Self::default()
            }
        }
    }

    /// The watermark in this memory, for a simulation, which has no disk.
    pub fn in_memory(memory: Memory) -> Self {
        let watermark = locked(&memory).clone();
        Self {
            watermark,
            file: None,
            memory: Some(memory),
        }
    }

    /// The watermark.
    pub fn watermark(&self) -> &wire::Watermark {
        &self.watermark
    }

    /// Takes the changed part of the watermark, and writes the whole. Call this before the plan is applied.
    pub async fn note(&mut self, update: wire::Watermark) {
        if update.kinds.is_empty() {
            return;
        }
        merge(&mut self.watermark, update);
        if let Some(memory) = &self.memory {
            locked(memory).clone_from(&self.watermark);
        }
        if let Some(file) = &mut self.file {
            file.write(&self.watermark).await;
        }
    }
}

fn locked(memory: &Memory) -> MutexGuard<'_, wire::Watermark> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the kinds of an update.
fn merge(watermark: &mut wire::Watermark, update: wire::Watermark) {
    let kinds = &mut watermark.kinds;
    for of_kind in update.kinds {
        if let Some(known) = kinds.iter_mut().find(|known| known.kind == of_kind.kind) {
            *known = of_kind;
        } else if kinds.len() < MAX_KINDS && of_kind.kind.len() <= MAX_KIND_BYTES {
            kinds.push(of_kind);
        }
    }
}

/// The open file.
#[derive(Debug)]
struct WatermarkFile {
    path: PathBuf,
    node: String,
    file: Arc<File>,
    /// A write that took longer than [`WRITE_TIMEOUT`].
    hanging: Option<JoinHandle<io::Result<()>>>,
    /// Whether the last write failed, which was logged.
    failing: bool,
}

impl WatermarkFile {
    fn open(path: &Path, node: &str) -> io::Result<(Self, wire::Watermark)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let mut bytes = vec![0; FILE_BYTES];
        let length = file.read_at(&mut bytes, 0)?;
        bytes.truncate(length);
        // A copied disk has the watermark of another node.
        let saved = decode(&bytes).filter(|saved| saved.node == node);
        let mut watermark = wire::Watermark::default();
        let stored = saved.and_then(|saved| saved.watermark);
        merge(&mut watermark, stored.unwrap_or_default());
        let file = Self {
            path: path.to_owned(),
            node: node.to_owned(),
            file: Arc::new(file),
            hanging: None,
            failing: false,
        };
        Ok((file, watermark))
    }

    async fn write(&mut self, watermark: &wire::Watermark) {
        // Its end decides when the disk can be used again. Two writes at once could overtake each other.
        if self
            .hanging
            .as_ref()
            .is_some_and(|write| !write.is_finished())
        {
            return;
        }
        self.hanging = None;
        let (file, bytes) = (self.file.clone(), encode(&self.node, watermark));
        let mut write = spawn_blocking(move || file.write_all_at(&bytes, 0));
        let result = match timeout(WRITE_TIMEOUT, &mut write).await {
            Ok(ended) => ended.unwrap_or_else(|error| Err(io::Error::other(error))),
            Err(_) => {
                self.hanging = Some(write);
                Err(io::ErrorKind::TimedOut.into())
            }
        };
        self.log(result);
    }

    /// Logs the first of several failures, and their end.
    fn log(&mut self, result: io::Result<()>) {
        let failed = std::mem::replace(&mut self.failing, result.is_err());
        match result {
            Err(error) if !failed => log_failure(&self.path, &error),
            Ok(()) if failed => info!("saving the watermark works again"),
            _ => {}
        }
    }
}

/// Flushes the watermark in this file to the disk.
///
/// # Errors
/// Those of the file, if it exists.
pub(crate) fn flush(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_data(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The content of the file: the message after its length, the checksum of both, and zeros.
fn encode(node: &str, watermark: &wire::Watermark) -> Vec<u8> {
    let saved = wire::SavedWatermark {
        node: node.to_owned(),
        watermark: Some(watermark.clone()),
    };
    let mut bytes = saved.encode_length_delimited_to_vec();
    let sum = xxh3_64(&bytes).to_le_bytes();
    bytes.extend(sum);
    // The name of a node has up to 253 bytes, so even the largest watermark fits.
    bytes.resize(bytes.len().max(FILE_BYTES), 0);
    bytes
}

/// The content of an intact file.
fn decode(bytes: &[u8]) -> Option<wire::SavedWatermark> {
    let mut rest = bytes;
    let saved = wire::SavedWatermark::decode_length_delimited(&mut rest).ok()?;
    let length = bytes.len().checked_sub(rest.len())?;
    let sum = rest.first_chunk::<8>()?;
    (xxh3_64(bytes.get(..length)?).to_le_bytes() == *sum).then_some(saved)
}

fn log_failure(path: &Path, error: &io::Error) {
    warn!(
        path = %path.display(), %error,
        "could not save the watermark of the plan: after a restart of the agent, a controller that lags behind may \
         send an older plan; does the state directory exist, and is it writable and not full?"
    );
}

#[cfg(test)]
#[path = "watermark_tests.rs"]
mod tests;
