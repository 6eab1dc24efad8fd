//! Where manifests come from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::problem::Place;
use super::{FileContents, Manifests, Problem, Severity};

/// Maximum size of a file, in bytes: several times the objects of a large cluster.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Where manifests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Standard input, written `-`.
    Stdin,
    /// A file, or a folder with files.
    Path(PathBuf),
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        match text {
            "-" => Self::Stdin,
            path => Self::Path(path.into()),
        }
    }
}

/// The source is unusable.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file or folder does not exist or cannot be opened.
    #[error("{path}: {source}; give a folder, a file, or - for standard input")]
    Open {
        /// The path as it was given.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The input contains no object.
    #[error("{what}: no object found; expected Nodes, Services and EndpointSlices in YAML or JSON")]
    Empty {
        /// What was read.
        what: String,
    },
    /// A folder without a file of the right name.
    #[error("{path}: no file in it or its folders ends in .yaml, .yml or .json")]
    NoFiles {
        /// The folder.
        path: String,
    },
}

impl Source {
    /// The text of standard input or of one file, with its name in messages.
    ///
    /// # Errors
    /// The name and the problem.
    pub fn text(&self) -> Result<(String, String), String> {
        let (name, text) = match self {
            Self::Stdin => ("standard input".to_owned(), text_of(Ok(io::stdin().lock()))),
            Self::Path(path) => (path.display().to_string(), text_of(File::open(path))),
        };
        match text {
            Ok(text) => Ok((name, text)),
            Err(problem) => Err(format!("{name}: {problem}")),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// [`SourceError`] if there is nothing to read. Unreadable files and documents are problems of the result.
    pub fn read(&self) -> Result<Manifests, SourceError> {
        let mut manifests = Manifests::default();
        self.read_into(&mut manifests)?;
        Ok(manifests)
    }

    /// Reads everything and adds it to `manifests`.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn read_into(&self, manifests: &mut Manifests) -> Result<(), SourceError> {
        let what = match self {
            Self::Stdin => {
                let what = "standard input".to_owned();
                let failed = |source| SourceError::Open {
                    path: "-".into(),
                    source,
                };
                let text = bounded(io::stdin().lock()).map_err(failed)?;
                manifests.add(contents(&what, checked(text)));
                what
            }
            Self::Path(path) => {
                let what = path.display().to_string();
                let failed = |source| SourceError::Open {
                    path: what.clone(),
                    source,
                };
                if std::fs::metadata(path).map_err(failed)?.is_dir() {
                    let files = list_folder(path).map_err(failed)?;
                    if files.is_empty() {
                        return Err(SourceError::NoFiles { path: what });
                    }
                    files.iter().for_each(|file| manifests.add(read_file(file)));
                } else {
                    manifests.add(read_file(path));
                }
                what
            }
        };
        let nothing_skipped = manifests.problems.is_empty() && manifests.others.is_empty();
        if manifests.objects.is_empty() && nothing_skipped {
            return Err(SourceError::Empty { what });
        }
        Ok(())
    }
}

/// The manifests of a folder, recursively and sorted by name, except hidden files, which editors and mounts leave
/// behind. Includes unreadable subfolders, so that reading them reports the error.
///
/// # Errors
/// If the folder cannot be read.
pub fn list_folder(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    add_folder(folder, &mut vec![folder.canonicalize()?], &mut files)?;
    files.sort();
    Ok(files)
}

/// Follows links, which mounted ConfigMaps consist of, but not back to a parent folder.
fn add_folder(folder: &Path, above: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            let itself = path.canonicalize()?;
            if !above.contains(&itself) {
                above.push(itself);
                if add_folder(&path, above, files).is_err() {
                    files.push(path);
                }
                above.pop();
            }
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("yaml" | "yml" | "json")) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads one file; an error becomes a problem of the contents.
pub fn read_file(path: &Path) -> FileContents {
    contents(&path.display().to_string(), text_of(File::open(path)))
}

fn text_of(file: io::Result<impl Read>) -> Result<String, String> {
    let text = file.and_then(bounded);
    let text = text.map_err(|error| format!("{error}; check that the file is there and readable"));
    text.and_then(checked)
}

fn bounded(input: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

fn checked(text: Vec<u8>) -> Result<String, String> {
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(format!(
            "longer than {} MiB; split it",
            MAX_FILE_BYTES / 1024 / 1024
        ));
    }
    String::from_utf8(text).map_err(|error| {
        let line = 1 + error
            .as_bytes()
            .iter()
            .take(error.utf8_error().valid_up_to())
            .filter(|b| **b == b'\n')
            .count();
        format!("line {line}: not UTF-8 text; write the file as UTF-8")
    })
}

fn contents(name: &str, text: Result<String, String>) -> FileContents {
    match text {
        Ok(text) => FileContents::read(name, &text),
        Err(message) => FileContents {
            problems: vec![Problem::at(
                Severity::Unreadable,
                Place::file(name),
                message,
            )],
            ..FileContents::default()
        },
    }
}
