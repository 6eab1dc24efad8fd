//! A certificate and its key, parsed and checked together.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

/// A certificate with its intermediate chain and key.
#[derive(Clone)]
pub struct Pair(Arc<CertifiedKey>);

/// An unusable certificate or key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PairError {
    /// The certificates are not PEM.
    #[error("the certificate cannot be read as PEM: {0}")]
    Certificate(String),
    /// No certificate was found.
    #[error("it contains no certificate")]
    NoCertificate,
    /// The key is not PEM.
    #[error("the key cannot be read as PEM (PKCS#8, PKCS#1 or SEC1): {0}")]
    Key(String),
    /// The key is of another certificate.
    #[error("certificate and key do not belong together: {0}")]
    Apart(String),
}

impl Pair {
    /// Parses both.
    ///
    /// # Errors
    /// [`PairError`] states which of them is wrong.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| PairError::Certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(PairError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|error| PairError::Key(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let pair = CertifiedKey::from_der(chain, key, &provider);
        let pair = pair.map_err(|error| PairError::Apart(error.to_string()))?;
        Ok(Self(Arc::new(pair)))
    }

    pub(super) fn certified_key(&self) -> Arc<CertifiedKey> {
        self.0.clone()
    }

    /// The certificate itself, without the intermediate chain.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.0.cert.first()
    }
}

impl PartialEq for Pair {
    /// Equal certificates have equal keys.
    fn eq(&self, other: &Self) -> bool {
        self.0.cert == other.0.cert
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}
