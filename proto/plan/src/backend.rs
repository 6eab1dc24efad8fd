//! Backends: where connections go.

use std::net::IpAddr;

/// One backend of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port, 1 to 65535.
    pub port: u16,
    /// Its share of new connections, relative to the others; 0 takes none.
    pub weight: u16,
}

/// Backends in ascending order, each address and port once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BackendList {
    backends: Box<[Backend]>,
}

impl BackendList {
    /// Sorts, and keeps the first of backends that share address and port.
    pub fn new(mut backends: Vec<Backend>) -> Self {
        backends.sort_unstable();
        backends.dedup_by_key(|backend| (backend.address, backend.port));
        Self {
            backends: backends.into_boxed_slice(),
        }
    }

    /// The backends in order.
    pub fn as_slice(&self) -> &[Backend] {
        &self.backends
    }

    /// Whether nobody is there to answer.
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// How many backends there are.
    pub fn len(&self) -> usize {
        self.backends.len()
    }
}

impl FromIterator<Backend> for BackendList {
    fn from_iter<T: IntoIterator<Item = Backend>>(backends: T) -> Self {
        Self::new(backends.into_iter().collect())
    }
}
