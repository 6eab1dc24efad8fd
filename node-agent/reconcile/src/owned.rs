//! Which virtual servers are ours to change or remove. The kernel does not say who made one.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::{Desired, VirtualServerKey};

/// What we may touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    /// Virtual servers on record as ours.
    pub recorded: BTreeSet<VirtualServerKey>,
    /// Ranges in which every virtual server counts as ours: the service ranges, when the record
    /// was lost.
    pub ranges: Vec<IpNet>,
    /// Ranges in which none does, whatever else says so (S-108).
    pub excluded: Vec<IpNet>,
}

impl Owned {
    /// Whether this virtual server is ours.
    pub fn contains(&self, server: &VirtualServerKey) -> bool {
        let within = |range: &IpNet| range.contains(&server.address);
        !self.excluded.iter().any(within)
            && (self.recorded.contains(server) || self.ranges.iter().any(within))
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

    /// Takes what is no longer in the kernel off the record; true when that changed the record.
    pub fn release(&mut self, kept: impl Fn(&VirtualServerKey) -> bool) -> bool {
        let before = self.recorded.len();
        self.recorded.retain(kept);
        self.recorded.len() != before
    }
}
