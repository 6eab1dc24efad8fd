//! Backends: the destinations of connections.

use std::net::IpAddr;

/// One backend of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port, 1 to 65535.
    pub port: u16,
    /// Its share of new connections, relative to the others; 0 takes no new connections.
    pub weight: u16,
}

/// Backends in ascending order, without duplicates of address and port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BackendList {
    backends: Box<[Backend]>,
}

impl BackendList {
    /// Sorts the backends. Of several with the same address and port, the first in sort order is kept.
    pub fn new(mut backends: Vec<Backend>) -> Self {
        backends.sort_unstable();
        backends.dedup_by_key(|backend| (backend.address, backend.port));
        Self {
            backends: backends.into_boxed_slice(),
        }
    }

    /// The list without the backends of `remove` and with those of `add`.
    #[must_use]
    pub fn patched(&self, remove: &Self, add: &Self) -> Self {
        let stays = |backend: &&Backend| remove.backends.binary_search(backend).is_err();
        let stay = self.backends.iter().filter(stays).copied();
        Self::new(stay.chain(add.backends.iter().copied()).collect())
    }

    /// The difference between this list and another: the backends to remove, and those to add. A backend whose weight
    /// changes is in both.
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

    /// Whether there are no backends.
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// The number of backends.
    pub fn len(&self) -> usize {
        self.backends.len()
    }
}

impl FromIterator<Backend> for BackendList {
    fn from_iter<T: IntoIterator<Item = Backend>>(backends: T) -> Self {
        Self::new(backends.into_iter().collect())
    }
}
