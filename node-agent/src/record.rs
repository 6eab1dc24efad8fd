//! The record of owned virtual servers, in one small file. The kernel does not store who added a virtual server, so
//! without the record a restarted agent could not distinguish its own from those of other programs.
//!
//! Touches: one file.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use portolan_reconcile::VirtualServerKey;
use thiserror::Error;

const FILE: &str = "virtual-servers";
const HEADER: &str = "portolan virtual servers 1";

/// The file with the owned virtual servers.
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
        /// The error.
        error: io::Error,
    },
    /// The file was not written by this program, or is damaged.
    #[error("{path}:{line}: {text:?} is not a virtual server; ignoring the record")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// Its content.
        text: String,
    },
}

/// The next thing to check.
fn check(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk of the state directory is full (`df` shows it): an agent that restarts before \
             there is space will not know all virtual servers that it owns"
        }
        io::ErrorKind::ReadOnlyFilesystem => "the state directory is mounted read-only",
        _ => "does the state directory exist, and is it writable?",
    }
}

impl Record {
    /// The record in this directory, which is created if necessary.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the directory cannot be created.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let record = Self::existing(directory);
        std::fs::create_dir_all(directory).map_err(|error| record.io(error))?;
        Ok(record)
    }

    /// The record in this directory, for reading: nothing is created.
    pub fn existing(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
        }
    }

    /// The recorded virtual servers; `None` if there is no record.
    ///
    /// # Errors
    /// [`RecordError`] if the file exists and cannot be used.
    pub fn read(&self) -> Result<Option<BTreeSet<VirtualServerKey>>, RecordError> {
        let text = match std::fs::read(&self.path) {
            // Invalid bytes are reported with their line, as any other damage.
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

    /// Writes the record atomically: the old file stays until the new one is complete.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file cannot be written.
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
            // Remove the partial file: the disk may be full.
            drop(std::fs::remove_file(&fresh));
            self.io(error)
        })
    }

    /// Removes the record.
    ///
    /// # Errors
    /// [`RecordError::Io`] if the file exists and cannot be removed.
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
