//! A certificate and its key in two files that are replaced from time to time. Touches: reads these files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Pair, PairError, Presented};

/// Interval between two reads of the certificate files. Reading two small files detects every kind of replacement.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Paths of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate with its intermediate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Unusable files.
#[derive(Debug, Error)]
pub enum FilesError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The contents are unusable.
    #[error("--tls-cert {}, --tls-key {}: {error}", files.certificate.display(), files.key.display())]
    Pair {
        /// The files.
        files: Files,
        /// The cause.
        error: PairError,
    },
}

/// Contents of both files, valid or not.
type Contents = (Vec<u8>, Vec<u8>);

impl Files {
    /// Reads and parses both files.
    ///
    /// # Errors
    /// [`FilesError`] names the file.
    pub fn read(&self) -> Result<Pair, FilesError> {
        self.parse(&self.contents()?)
    }

    fn contents(&self) -> Result<Contents, FilesError> {
        let read = |path: &PathBuf| {
            let failed = |error| FilesError::Read {
                path: path.clone(),
                error,
            };
            std::fs::read(path).map_err(failed)
        };
        Ok((read(&self.certificate)?, read(&self.key)?))
    }

    fn parse(&self, (certificate, key): &Contents) -> Result<Pair, FilesError> {
        Pair::from_pem(certificate, key).map_err(|error| FilesError::Pair {
            files: self.clone(),
            error,
        })
    }

    /// Follows them for as long as the program runs.
    pub async fn follow(self, presented: Arc<Presented>) {
        let mut look = Look::default();
        loop {
            sleep(POLL_INTERVAL).await;
            look.again(&self, &presented);
        }
    }
}

/// The state of the last check.
#[derive(Debug, Default)]
struct Look {
    seen: Option<Contents>,
    logged: Option<String>,
    /// The two files are not replaced atomically, so an error is logged only if it occurs twice.
    suspected: Option<String>,
}

impl Look {
    /// Loads the files if they are new and valid.
    fn again(&mut self, files: &Files, presented: &Presented) {
        let read = files.contents();
        if read.as_ref().ok() == self.seen.as_ref() && self.seen.is_some() {
            (self.logged, self.suspected) = (None, None);
            return;
        }
        let parsed = read.and_then(|contents| Ok((files.parse(&contents)?, contents)));
        match parsed {
            Ok((pair, contents)) => {
                if presented.replace(pair) {
                    info!(file = %files.certificate.display(), "serving a new certificate");
                }
                *self = Self {
                    seen: Some(contents),
                    ..Self::default()
                };
            }
            Err(error) => {
                let words = error.to_string();
                if self.suspected.as_ref() == Some(&words) && self.logged.as_ref() != Some(&words) {
                    warn!("keeping the previous certificate: {words}");
                    self.logged = Some(words.clone());
                }
                self.suspected = Some(words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn made(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_pair_is_read_whole_and_an_invalid_one_keeps_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        assert!(files.read().unwrap_err().to_string().contains("tls.crt"));
        let (certificate, key) = made("one");
        fs::write(&files.certificate, &certificate).unwrap();
        fs::write(&files.key, &key).unwrap();
        let first = files.read().unwrap();
        let presented = Presented::new(first.clone());
        let shown = || presented.pair_for_tests();
        let mut look = Look::default();
        look.again(&files, &presented);
        // Only the certificate is new so far.
        let (second, second_key) = made("two");
        fs::write(&files.certificate, &second).unwrap();
        look.again(&files, &presented);
        assert!(look.logged.is_none());
        assert_eq!(shown(), first);
        look.again(&files, &presented);
        let logged = look.logged.clone().unwrap();
        assert!(logged.contains("do not belong together"), "{logged}");
        fs::write(&files.key, &second_key).unwrap();
        look.again(&files, &presented);
        assert_ne!(shown(), first);
        assert_eq!(shown(), files.read().unwrap());
        for (broken, words) in [
            ("", "no certificate"),
            ("-----BEGIN CERTIFICATE-----\nx", "PEM"),
        ] {
            fs::write(&files.certificate, broken).unwrap();
            look.again(&files, &presented);
            look.again(&files, &presented);
            assert!(
                look.logged.as_ref().unwrap().contains(words),
                "{:?}",
                look.logged
            );
            assert_ne!(shown(), first);
        }
        fs::remove_file(&files.key).unwrap();
        look.again(&files, &presented);
        look.again(&files, &presented);
        let logged = look.logged.unwrap();
        assert!(
            logged.contains("tls.key") && !logged.contains("PRIVATE"),
            "{logged}"
        );
    }
}
