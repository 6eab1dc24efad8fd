//! A value with the times of its changes: written by one thread, read by others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The endpoints of a virtual server.
pub(super) type Endpoints = BTreeSet<SocketAddr>;

/// The last value and the moment since which it has been that.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest(Arc<Mutex<Option<(Instant, Endpoints)>>>);

impl Latest {
    /// Counts as a change only if it is another value.
    pub(super) fn set(&self, value: Endpoints) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.as_ref().is_none_or(|(_, last)| *last != value) {
            *latest = Some((Instant::now(), value));
        }
    }

    /// Nothing before the first value.
    pub(super) fn get(&self) -> Option<(Instant, Endpoints)> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_value_again_is_no_change() {
        let latest = Latest::default();
        assert!(latest.get().is_none());
        latest.set(Endpoints::new());
        let first = latest.get().unwrap().0;
        latest.set(Endpoints::new());
        assert_eq!(latest.get().unwrap().0, first);
        latest.set(["10.0.0.1:80".parse().unwrap()].into());
        assert_eq!(latest.get().unwrap().1.len(), 1);
    }
}
