//! Which virtual servers Portolan may change or remove. The kernel does not record who created one.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::{Desired, Observed, Scope, SetEntry, SetRole, VirtualServerKey};

/// The virtual servers that Portolan may change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    /// Virtual servers in the ownership record.
    pub recorded: BTreeSet<VirtualServerKey>,
    /// Ranges in which no virtual server is owned, even if it is in the record (S-108).
    pub excluded: Vec<IpNet>,
}

impl Owned {
    /// Whether Portolan owns this virtual server.
    pub fn contains(&self, server: &VirtualServerKey) -> bool {
        let within = |range: &IpNet| range.contains(&server.address);
        !self.excluded.iter().any(within) && self.recorded.contains(server)
    }

    /// Builds the record if it was lost: adopts virtual servers that very likely belong to Portolan, so that none of
    /// them stays forever. From then on the record decides.
    ///
    /// These are the virtual servers that Portolan's sets let through, those in the service ranges or on another
    /// address of a Service, and the plan's node ports on the node's own addresses. An address that belongs to both
    /// the node and a Service proves nothing: another program on the node may serve there.
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
                    .contains_key(&(SetRole::Vips, SetEntry::Net(server.address.into())))
        };
        let is_owned = |server: &&VirtualServerKey| {
            (answering.contains(server) || is_ours(server)) && !within(&desired.excluded, server)
        };
        let recorded = observed
            .virtual_servers
            .keys()
            .filter(is_owned)
            .copied()
            .collect();
        Self {
            recorded,
            excluded: desired.excluded.clone(),
        }
    }

    /// Adds the desired virtual servers to the record; returns whether the record changed.
    ///
    /// The record must be saved before the kernel is written. A crash in between would otherwise leave virtual
    /// servers without an owner.
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

    /// Removes virtual servers within `scope` that are neither desired nor in the kernel from the record; returns
    /// whether the record changed.
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
