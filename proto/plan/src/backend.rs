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

    /// The list without the backends of one and with those of the other.
    #[must_use]
    pub fn patched(&self, remove: &Self, add: &Self) -> Self {
        let stays = |backend: &&Backend| remove.backends.binary_search(backend).is_err();
        let stay = self.backends.iter().filter(stays).copied();
        Self::new(stay.chain(add.backends.iter().copied()).collect())
    }

    /// What leads from this list to another: the backends that go, and those that come. One whose
    /// weight changes does both.
    pub fn patch_to(&self, other: &Self) -> (Self, Self) {
        let without = |these: &Self, those: &Self| Self {
            backends: these
                .backends
                .iter()
                .filter(|backend| those.backends.binary_search(backend).is_err())
                .copied()
                .collect(),
        };
        (without(self, other), without(other, self))
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
