//! The last plan on this node's disk. It is served while no controller is reachable after a restart of the agent or
//! of the node.
//!
//! Touches: one file and a small one beside it, that of the watermark, and the kernel's boot ID.

mod file;
mod keep;
mod last_contact;
mod resume;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use portolan_plan::{HashMismatch, NodePlan, PlanHash};
use thiserror::Error;

pub use file::{FileError, Origin};
pub use keep::Keeper;
pub use resume::{Resume, restore_saved};

use crate::watermark;

const FILE: &str = "plan";
/// The boot ID, which changes with each start of the kernel.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The file of the last plan.
#[derive(Debug, Clone)]
pub struct SavedPlan {
    path: PathBuf,
    node: String,
    boot: String,
}

/// The saved plan cannot be used or written.
#[derive(Debug, Error)]
pub enum SavedError {
    /// The file cannot be read or written.
    #[error("{path}: {error}; does the state directory exist, and is it writable and not full?")]
    Io {
        /// The file.
        path: String,
        /// The error.
        error: io::Error,
    },
    /// The file was not written by this program, or is damaged.
    #[error("{path}: {error}; ignoring it until the next plan from a controller replaces it")]
    File {
        /// The file.
        path: String,
        /// The problem.
        error: FileError,
    },
    /// The entries do not match the hash.
    #[error("{path}: {error}; ignoring it until the next plan from a controller replaces it")]
    Hash {
        /// The file.
        path: String,
        /// The two hashes.
        error: HashMismatch,
    },
    /// It belongs to another node, as on a copied disk.
    #[error("{path}: it is the plan of node {found:?}, but this node is {node:?}; ignoring it")]
    OtherNode {
        /// The file.
        path: String,
        /// The node of the plan.
        found: String,
        /// This node.
        node: String,
    },
}

impl SavedPlan {
    /// The plan of this node in this directory.
    pub fn new(directory: &Path, node: &str) -> Self {
        let boot = std::fs::read_to_string(BOOT).unwrap_or_default();
        Self {
            path: directory.join(FILE),
            node: node.into(),
            boot: boot.trim().into(),
        }
    }

    /// Reads the plan and its origin; `None` if there is none.
    ///
    /// # Errors
    /// [`SavedError`] if it exists and cannot be used.
    pub fn read(&self) -> Result<Option<(NodePlan, Origin)>, SavedError> {
        let found = self.read_of_any_node()?;
        match found {
            Some((_, origin)) if origin.node != self.node => Err(SavedError::OtherNode {
                path: self.path.display().to_string(),
                found: origin.node,
                node: self.node.clone(),
            }),
            found => Ok(found),
        }
    }

    /// Reads the plan, even if it is of another node.
    ///
    /// # Errors
    /// [`SavedError`] if it exists and cannot be read.
    pub fn read_of_any_node(&self) -> Result<Option<(NodePlan, Origin)>, SavedError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(error)),
        };
        let path = || self.path.display().to_string();
        let (mut origin, staged, hash) = file::read(&bytes.into()).map_err(|error| {
            let path = path();
            SavedError::File { path, error }
        })?;
        let mut plan = NodePlan::default();
        plan.apply(staged, hash).map_err(|error| {
            let path = path();
            SavedError::Hash { path, error }
        })?;
        // Without a confirmation of this plan, its age counts from when it was written.
        let confirmation = std::fs::read_to_string(self.confirmation_path()).unwrap_or_default();
        origin.confirmed = last_contact::parse(&confirmation, hash).unwrap_or(origin.written);
        Ok(Some((plan, origin)))
    }

    /// Writes the plan atomically: the previous file stays until the new one is complete. Returns the hash for
    /// [`SavedPlan::confirm`].
    ///
    /// # Errors
    /// [`SavedError::Io`] if the file cannot be written, or if the watermark cannot be flushed before it.
    pub fn write(&self, plan: &NodePlan, now: SystemTime) -> Result<PlanHash, SavedError> {
        // After a loss of power, the plan must not be newer than its watermark. If that is not possible, a new plan is
        // still better than an old one.
        let flushed = watermark::flush(&self.watermark_path());
        let origin = Origin {
            node: self.node.clone(),
            boot: self.boot.clone(),
            written: now,
            confirmed: now,
        };
        let mut hash = PlanHash::default();
        self.replace(&self.path, |to| {
            hash = file::write(plan, &origin, to)?;
            Ok(())
        })?;
        flushed.map_err(|error| SavedError::Io {
            path: self.watermark_path().display().to_string(),
            error,
        })?;
        Ok(hash)
    }

    /// Records that a controller confirms the written plan with this hash.
    ///
    /// # Errors
    /// [`SavedError::Io`] if the record cannot be written.
    pub fn confirm(&self, plan: PlanHash, now: SystemTime) -> Result<(), SavedError> {
        let line = last_contact::line(plan, now);
        self.replace(&self.confirmation_path(), |to| {
            to.write_all(line.as_bytes())
        })
    }

    fn confirmation_path(&self) -> PathBuf {
        self.path.with_extension("confirmed")
    }

    fn watermark_path(&self) -> PathBuf {
        self.path.with_file_name(watermark::FILE)
    }

    fn replace(
        &self,
        path: &Path,
        write: impl FnOnce(&mut io::BufWriter<std::fs::File>) -> io::Result<()>,
    ) -> Result<(), SavedError> {
        let fresh = self.path.with_extension("new");
        let replace = || {
            let mut to = io::BufWriter::new(std::fs::File::create(&fresh)?);
            write(&mut to)?;
            to.into_inner()?.sync_all()?;
            std::fs::rename(&fresh, path)
        };
        replace().map_err(|error| {
            // Remove the partial file: the disk may be full.
            drop(std::fs::remove_file(&fresh));
            self.io(error)
        })
    }

    /// Whether the plan was written since the last boot: then the kernel still holds its state.
    pub fn is_of_this_boot(&self, origin: &Origin) -> bool {
        !self.boot.is_empty() && origin.boot == self.boot
    }

    /// Removes the saved plan and its watermark.
    ///
    /// # Errors
    /// [`SavedError::Io`] if a file exists and cannot be removed.
    pub fn remove(&self) -> Result<(), SavedError> {
        let plan = self.path.clone();
        // The plan first: without its watermark, it could be replaced by an older one.
        for path in [self.confirmation_path(), plan, self.watermark_path()] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.io(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn io(&self, error: io::Error) -> SavedError {
        SavedError::Io {
            path: self.path.display().to_string(),
            error,
        }
    }
}
