//! The server certificate for new connections.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Pair;

/// The certificate in force. Replacing it does not affect open connections.
#[derive(Debug)]
pub struct Presented {
    pair: RwLock<Option<Pair>>,
}

impl Presented {
    /// Serves this certificate.
    pub fn new(pair: Pair) -> Arc<Self> {
        let pair = RwLock::new(Some(pair));
        Arc::new(Self { pair })
    }

    /// Has no certificate yet: every TLS handshake fails until there is one.
    pub fn none() -> Arc<Self> {
        let pair = RwLock::default();
        Arc::new(Self { pair })
    }

    /// Uses another certificate for new connections. Returns false if it is the same.
    pub fn replace(&self, pair: Pair) -> bool {
        let mut present = self.pair.write().unwrap_or_else(PoisonError::into_inner);
        let differs = present.as_ref() != Some(&pair);
        *present = Some(pair);
        differs
    }

    #[cfg(test)]
    pub(super) fn pair_for_tests(&self) -> Pair {
        let pair = self.pair.read().unwrap_or_else(PoisonError::into_inner);
        pair.clone().unwrap()
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pair = self.pair.read().unwrap_or_else(PoisonError::into_inner);
        pair.as_ref().map(Pair::certified_key)
    }
}
