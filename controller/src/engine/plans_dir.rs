//! Writes the plan of each node to a file, for operators and tools.
//!
//! Accesses: one folder. A file is replaced as a whole, and only when it differs.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use portolan_planner::Planner;
use thiserror::Error;

use crate::output::{Format, plan_document, render};

/// Why a plan cannot be written to a file.
#[derive(Debug, Error)]
pub(super) enum PlansDirError {
    /// An I/O error.
    #[error("{path}: {source}; check --plans-dir")]
    Io {
        /// The file or folder.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The plan cannot be serialised.
    #[error(transparent)]
    Output(#[from] crate::output::OutputError),
}

/// The folder.
#[derive(Debug)]
pub(super) struct PlansDir {
    path: PathBuf,
    /// The written files, so that files of deleted nodes can be removed.
    written: BTreeSet<PathBuf>,
}

impl PlansDir {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            written: BTreeSet::new(),
        }
    }

    /// Brings the files up to date.
    pub(super) fn write(&mut self, planner: &Planner) -> Result<(), PlansDirError> {
        at(&self.path, std::fs::create_dir_all(&self.path))?;
        let mut present = BTreeSet::new();
        for name in planner.nodes().keys() {
            if let Some(document) = plan_document(planner, name) {
                let path = self.path.join(format!("{name}.json"));
                let text = render(&document, Format::Json, false)?;
                replace(&path, text.as_bytes())?;
                present.insert(path);
            }
        }
        for gone in self.written.difference(&present) {
            match std::fs::remove_file(gone) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return at(gone, Err(error));
                }
                _ => {}
            }
        }
        self.written = present;
        Ok(())
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), PlansDirError> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    // Readers see the old plan or the new one, never half of one.
    let draft = path.with_extension("json.draft");
    at(&draft, std::fs::write(&draft, bytes))?;
    at(path, std::fs::rename(&draft, path))
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, PlansDirError> {
    result.map_err(|source| PlansDirError::Io {
        path: path.display().to_string(),
        source,
    })
}
