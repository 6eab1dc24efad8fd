//! Which virtual servers are ours to change or remove. The kernel does not say who made one.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::{Desired, Observed, Scope, SetEntry, VirtualServerKey};

/// What we may touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    /// Virtual servers on record as ours.
    pub recorded: BTreeSet<VirtualServerKey>,
    /// Ranges in which none does, whatever else says so (S-108).
    pub excluded: Vec<IpNet>,
}

impl Owned {
    /// Whether this virtual server is ours.
    pub fn contains(&self, server: &VirtualServerKey) -> bool {
        let within = |range: &IpNet| range.contains(&server.address);
        !self.excluded.iter().any(within) && self.recorded.contains(server)
    }

    /// Without a record: takes for ours what can hardly be anybody else's, so that nothing of ours
    /// stays for ever. From then on the record decides.
    ///
    /// That is what our own sets let through, what stands in the service ranges or on another address
    /// that Services have, and the plan's node ports on the node's own addresses. An address of the
    /// node that is a Service's, too, tells nothing: whoever has it may serve something there.
    pub fn adopt(observed: &Observed, desired: &Desired) -> Self {
        let answering: BTreeSet<_> = observed.answering().collect();
        let within = |ranges: &[IpNet], server: &VirtualServerKey| {
            ranges.iter().any(|range| range.contains(&server.address))
        };
        let is_ours = |server: &VirtualServerKey| {
            if observed.host.owns(server.address) {
                let place = (server.protocol, server.port);
                return desired.node_ports.contains(&place);
            }
            within(&desired.service_ranges, server)
                || desired
                    .common
                    .contains_key(&SetEntry::Net(server.address.into()))
        };
        let ours = |server: &&VirtualServerKey| {
            (answering.contains(server) || is_ours(server)) && !within(&desired.excluded, server)
        };
        let recorded = observed
            .virtual_servers
            .keys()
            .filter(ours)
            .copied()
            .collect();
        Self {
            recorded,
            excluded: desired.excluded.clone(),
        }
    }

    /// Puts what is about to be written on record; true when that changed the record.
    ///
    /// The record has to be safe before the kernel is written, or a crash in between would leave
    /// virtual servers that nobody owns.
    pub fn claim(&mut self, desired: &Desired) -> bool {
        let before = self.recorded.len();
        let may = |server: &&VirtualServerKey| {
            !self
                .excluded
                .iter()
                .any(|range| range.contains(&server.address))
        };
        let claimed: Vec<_> = desired
            .virtual_servers
            .keys()
            .filter(may)
            .copied()
            .collect();
        self.recorded.extend(claimed);
        self.recorded.len() != before
    }

    /// Takes what is neither wanted nor in the kernel any more off the record, of what a pass took care
    /// of; true when that changed the record.
    pub fn release(&mut self, observed: &Observed, desired: &Desired, scope: &Scope) -> bool {
        let before = self.recorded.len();
        let kept = |server: &VirtualServerKey| {
            desired.virtual_servers.contains_key(server)
                || observed.virtual_servers.contains_key(server)
        };
        match scope {
            Scope::Everything => self.recorded.retain(kept),
            Scope::Servers(servers) => {
                for server in servers.iter().filter(|server| !kept(server)) {
                    self.recorded.remove(server);
                }
            }
        }
        self.recorded.len() != before
    }
}
