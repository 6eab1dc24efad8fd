//! What is shown to whoever connects.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Pair;

/// The certificate in force. Replacing it touches no connection that is open.
#[derive(Debug)]
pub struct Presented {
    pair: RwLock<Option<Pair>>,
}

impl Presented {
    /// Shows this one.
    pub fn new(pair: Pair) -> Arc<Self> {
        let pair = RwLock::new(Some(pair));
        Arc::new(Self { pair })
    }

    /// Shows none yet, so that TLS with every client fails until there is one.
    pub fn none() -> Arc<Self> {
        let pair = RwLock::default();
        Arc::new(Self { pair })
    }

    /// Shows another one from the next connection on; false when it is the same.
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
