//! The addresses that an agent drains, and which of them have left the cluster for good.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_proto::{draining, wire};
use tonic::Status;

use crate::store::Store;

/// The addresses that an agent drains, and what was sent to it about them.
#[derive(Debug, Default)]
pub(super) struct Draining {
    addresses: BTreeSet<IpAddr>,
    /// `None` before this stream sent anything. The agent remembers what an earlier stream sent, so an empty set must
    /// be sent as well.
    sent: Option<BTreeSet<IpAddr>>,
}

impl Draining {
    /// Processes an agent's status.
    ///
    /// # Errors
    /// The error for the agent if the status is invalid; the stream must then end.
    pub(super) fn take(&mut self, status: &wire::Status) -> Result<(), Status> {
        let addresses = draining::read(&status.draining, "status.draining");
        self.addresses = addresses.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(())
    }

    /// The message to send to the agent; `None` if it is up to date.
    pub(super) fn update(&mut self, store: &Store) -> Option<wire::Gone> {
        if self.addresses.is_empty() && self.sent.is_none() {
            return None;
        }
        let gone = store.without_endpoint(&self.addresses)?;
        if self.sent.as_ref() == Some(&gone) {
            return None;
        }
        let addresses = draining::write(&gone);
        self.sent = Some(gone);
        Some(wire::Gone { addresses })
    }
}
