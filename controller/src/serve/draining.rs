//! What an agent drains, and which of that has left the cluster for good.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_proto::{draining, wire};
use tonic::Status;

use crate::store::Store;

/// What one agent drains, and what it was told of that.
#[derive(Debug, Default)]
pub(super) struct Draining {
    addresses: BTreeSet<IpAddr>,
    /// `None` before this stream told anything. An agent remembers what it heard on the one before, so
    /// that nothing is gone has to be said to it as well.
    told: Option<BTreeSet<IpAddr>>,
}

impl Draining {
    /// Takes what an agent says.
    ///
    /// # Errors
    /// What is wrong with it, for the agent; the stream is to be given up.
    pub(super) fn take(&mut self, status: &wire::Status) -> Result<(), Status> {
        let addresses = draining::read(&status.draining, "status.draining");
        self.addresses = addresses.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(())
    }

    /// What the agent has to be told; `None` when it knows.
    pub(super) fn news(&mut self, store: &Store) -> Option<wire::Gone> {
        if self.addresses.is_empty() && self.told.is_none() {
            return None;
        }
        let gone = store.without_endpoint(&self.addresses)?;
        if self.told.as_ref() == Some(&gone) {
            return None;
        }
        let addresses = draining::write(&gone);
        self.told = Some(gone);
        Some(wire::Gone { addresses })
    }
}
