//! Which addresses are routed to this node, and how: a service range as a whole where that takes
//! nothing away from the node, else every address by itself.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::Family;

use crate::host::HostNetwork;

/// A route of type local on our device, which makes packets to its addresses reach IPVS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRoute {
    /// The addresses.
    pub destination: IpNet,
    /// The address that the node's own connections carry.
    pub source: Option<IpAddr>,
}

impl LocalRoute {
    /// The route as `ip route` takes it.
    pub fn text(&self, device: &str) -> String {
        let source = self
            .source
            .map(|address| format!(" src {address}"))
            .unwrap_or_default();
        format!(
            "local {} dev {device} table local{source}",
            self.destination
        )
    }
}

impl fmt::Display for LocalRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.fmt(f)?;
        self.source
            .map_or(Ok(()), |address| write!(f, " src {address}"))
    }
}

/// Whether somebody else has virtual servers in the range: they would lose their packets.
fn overlaps(range: &IpNet, excluded: &[IpNet]) -> bool {
    excluded
        .iter()
        .any(|other| range.contains(&other.network()) || other.contains(&range.network()))
}

/// The routes for these frontend addresses, given the cluster's service ranges.
pub(crate) fn routes<'a>(
    addresses: impl Iterator<Item = &'a IpAddr>,
    service_ranges: &[IpNet],
    node_addresses: &[IpAddr],
    excluded: &[IpNet],
    host: &HostNetwork,
) -> BTreeSet<LocalRoute> {
    let source = |family| {
        let of_family = |address: &&IpAddr| Family::of(**address) == family;
        // The kernel refuses a route with a source that the node does not have, or not yet.
        node_addresses
            .iter()
            .find(of_family)
            .copied()
            .filter(|address| host.can_send_from(*address))
    };
    let to = |destination: IpNet| LocalRoute {
        destination,
        source: source(Family::of(destination.addr())),
    };
    let whole: Vec<IpNet> = service_ranges
        .iter()
        .map(IpNet::trunc)
        .filter(|range| host.knows(Family::of(range.addr())))
        .filter(|range| host.leaves_free(range) && !overlaps(range, excluded))
        .collect();
    let covered = |address: &IpAddr| whole.iter().any(|range| range.contains(address));
    let single = addresses
        .filter(|address| !covered(address) && !host.owns(**address))
        .map(|address| IpNet::from(*address));
    whole.iter().copied().chain(single).map(to).collect()
}
