//! The last good plan on this node's disk, so that it can be served when no controller can be reached:
//! after a restart of the agent, and after one of the node.
//!
//! Touches: one file and a small one beside it, and the kernel's name for the time since it was started.

mod file;
mod heard;
mod keep;
mod resume;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use portolan_plan::{HashMismatch, NodePlan, PlanHash};
use thiserror::Error;

pub use file::{FileError, Origin};
pub use keep::Keeper;
pub use resume::{Resume, bring_back};

const FILE: &str = "plan";
/// Where Linux has a name for the time since it was started.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The file of the last good plan.
#[derive(Debug, Clone)]
pub struct SavedPlan {
    path: PathBuf,
    node: String,
    boot: String,
}

/// The plan on disk cannot be used, or not be written.
#[derive(Debug, Error)]
pub enum SavedError {
    /// The file cannot be read or written.
    #[error("{path}: {error}; is the state directory there, writable, and not full?")]
    Io {
        /// The file.
        path: String,
        /// What happened.
        error: io::Error,
    },
    /// The file is not what this program wrote.
    #[error("{path}: {error}; it is not used, and replaced by the next plan of a controller")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        error: FileError,
    },
    /// The entries are not those that were written.
    #[error("{path}: {error}; it is not used, and replaced by the next plan of a controller")]
    Hash {
        /// The file.
        path: String,
        /// What they lead to.
        error: HashMismatch,
    },
    /// It came here with a copied disk.
    #[error("{path}: it is the plan of node {found:?}, and this is {node:?}; it is not used")]
    OtherNode {
        /// The file.
        path: String,
        /// Whose it is.
        found: String,
        /// Who we are.
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

    /// Reads it: the plan, and where it is from; `None` when there is none.
    ///
    /// # Errors
    /// [`SavedError`] when it is there and cannot be used.
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

    /// Reads it, whichever node it is of.
    ///
    /// # Errors
    /// [`SavedError`] when it is there and cannot be read.
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
        // Without it, and if it is about another plan, the plan is as old as it was written.
        let heard = std::fs::read_to_string(self.heard()).unwrap_or_default();
        origin.confirmed = heard::read(&heard, hash).unwrap_or(origin.written);
        Ok(Some((plan, origin)))
    }

    /// Writes a plan as the last good one, safely: the one before stays whole until this one is. Gives
    /// back the name under which it can be confirmed.
    ///
    /// # Errors
    /// [`SavedError::Io`] when the file cannot be written.
    pub fn write(&self, plan: &NodePlan, now: SystemTime) -> Result<PlanHash, SavedError> {
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
        Ok(hash)
    }

    /// Notes that a controller stands behind the plan that was written under this name.
    ///
    /// # Errors
    /// [`SavedError::Io`] when it cannot be written.
    pub fn confirm(&self, plan: PlanHash, now: SystemTime) -> Result<(), SavedError> {
        let line = heard::line(plan, now);
        self.replace(&self.heard(), |to| to.write_all(line.as_bytes()))
    }

    fn heard(&self) -> PathBuf {
        self.path.with_extension("heard")
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
            // What was written of it takes space that may be short.
            drop(std::fs::remove_file(&fresh));
            self.io(error)
        })
    }

    /// Whether it was written since the kernel was started: then what it led to is still in force.
    pub fn is_of_this_boot(&self, origin: &Origin) -> bool {
        !self.boot.is_empty() && origin.boot == self.boot
    }

    /// Removes it.
    ///
    /// # Errors
    /// [`SavedError::Io`] when the file is there and cannot be removed.
    pub fn remove(&self) -> Result<(), SavedError> {
        for path in [self.heard(), self.path.clone()] {
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
