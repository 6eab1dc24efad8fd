//! A certificate and its key in two files that somebody replaces from time to time. Touches: those files,
//! for reading.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Pair, PairError, Presented};

/// How often they are looked at. Two small reads, which see every kind of replacement.
const LOOK: Duration = Duration::from_secs(5);

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Files that cannot be used.
#[derive(Debug, Error)]
pub enum FilesError {
    /// One cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is in them cannot be used.
    #[error("--tls-cert {}, --tls-key {}: {error}", files.certificate.display(), files.key.display())]
    Pair {
        /// The files.
        files: Files,
        /// What is wrong.
        error: PairError,
    },
}

/// What the files held, whatever it was.
type Contents = (Vec<u8>, Vec<u8>);

impl Files {
    /// Reads both.
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
            sleep(LOOK).await;
            look.again(&self, &presented);
        }
    }
}

/// What was seen last.
#[derive(Debug, Default)]
struct Look {
    seen: Option<Contents>,
    told: Option<String>,
    /// Both files are not replaced at one moment, so only what is wrong twice is told.
    suspected: Option<String>,
}

impl Look {
    /// Takes what the files hold now, if it is new and can be used.
    fn again(&mut self, files: &Files, presented: &Presented) {
        let read = files.contents();
        if read.as_ref().ok() == self.seen.as_ref() && self.seen.is_some() {
            (self.told, self.suspected) = (None, None);
            return;
        }
        let parsed = read.and_then(|contents| Ok((files.parse(&contents)?, contents)));
        match parsed {
            Ok((pair, contents)) => {
                if presented.replace(pair) {
                    info!(file = %files.certificate.display(), "another certificate is shown from now on");
                }
                *self = Self {
                    seen: Some(contents),
                    ..Self::default()
                };
            }
            Err(error) => {
                let words = error.to_string();
                if self.suspected.as_ref() == Some(&words) && self.told.as_ref() != Some(&words) {
                    warn!("the certificate that was in force stays: {words}");
                    self.told = Some(words.clone());
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
    fn a_pair_is_taken_whole_and_a_bad_one_leaves_the_old_in_force() {
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
        assert!(look.told.is_none());
        assert_eq!(shown(), first);
        look.again(&files, &presented);
        let told = look.told.clone().unwrap();
        assert!(told.contains("do not belong together"), "{told}");
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
                look.told.as_ref().unwrap().contains(words),
                "{:?}",
                look.told
            );
            assert_ne!(shown(), first);
        }
        fs::remove_file(&files.key).unwrap();
        look.again(&files, &presented);
        look.again(&files, &presented);
        let told = look.told.unwrap();
        assert!(
            told.contains("tls.key") && !told.contains("PRIVATE"),
            "{told}"
        );
    }
}
