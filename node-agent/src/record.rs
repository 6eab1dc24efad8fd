//! The record of what is ours, in one small file. The kernel does not say who made a virtual
//! server; without the record a restart could not tell ours from others'.
//!
//! Touches: one file.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use portolan_reconcile::VirtualServerKey;
use thiserror::Error;

const FILE: &str = "virtual-servers";
const HEADER: &str = "portolan virtual servers 1";

/// The file that says which virtual servers are ours.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
}

/// The record cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error("{path}: {error}; {}", check(.error))]
    Io {
        /// The file.
        path: String,
        /// What happened.
        error: io::Error,
    },
    /// The file is not what this program wrote.
    #[error("{path}:{line}: {text:?} is no virtual server; the record is not used")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
}

/// What to look at.
fn check(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk of the state directory is full (`df` shows it): until there is room an agent \
             that ends now does not know all that is its own when it comes back"
        }
        io::ErrorKind::ReadOnlyFilesystem => "the state directory is mounted read-only",
        _ => "is the state directory there and writable?",
    }
}

impl Record {
    /// The record in this directory, which is created if need be.
    ///
    /// # Errors
    /// [`RecordError::Io`] when it cannot be.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let record = Self::existing(directory);
        std::fs::create_dir_all(directory).map_err(|error| record.io(error))?;
        Ok(record)
    }

    /// The record in this directory, for whoever only reads it: nothing is created.
    pub fn existing(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
        }
    }

    /// What is on record; `None` when there is no record.
    ///
    /// # Errors
    /// [`RecordError`] when the file is there and cannot be used.
    pub fn read(&self) -> Result<Option<BTreeSet<VirtualServerKey>>, RecordError> {
        let text = match std::fs::read(&self.path) {
            // Damaged bytes are named with their line, as any other damage.
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(error)),
        };
        let wrong = |line: usize, text: &str| RecordError::Line {
            path: self.path.display().to_string(),
            line,
            text: text.into(),
        };
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        match lines.next() {
            Some((_, HEADER)) => {}
            first => return Err(wrong(1, first.map_or("", |(_, line)| line))),
        }
        let server = |(number, line): (usize, &str)| line.parse().map_err(|_| wrong(number, line));
        lines.map(server).collect::<Result<_, _>>().map(Some)
    }

    /// Puts this on record, safely: the old record stays whole until the new one is.
    ///
    /// # Errors
    /// [`RecordError::Io`] when the file cannot be written.
    pub fn write(&self, servers: &BTreeSet<VirtualServerKey>) -> Result<(), RecordError> {
        let fresh = self.path.with_extension("new");
        let write = || {
            let mut file = io::BufWriter::new(std::fs::File::create(&fresh)?);
            writeln!(file, "{HEADER}")?;
            for server in servers {
                writeln!(file, "{server}")?;
            }
            file.into_inner()?.sync_all()?;
            std::fs::rename(&fresh, &self.path)
        };
        write().map_err(|error| {
            // What was written of it takes space that may be short.
            drop(std::fs::remove_file(&fresh));
            self.io(error)
        })
    }

    /// Removes the record.
    ///
    /// # Errors
    /// [`RecordError::Io`] when the file is there and cannot be removed.
    pub fn remove(&self) -> Result<(), RecordError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io(error)),
            _ => Ok(()),
        }
    }

    fn io(&self, error: io::Error) -> RecordError {
        RecordError::Io {
            path: self.path.display().to_string(),
            error,
        }
    }
}
