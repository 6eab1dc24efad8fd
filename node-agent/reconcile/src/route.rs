//! Which addresses are routed to this node, and how: a service range as a whole where that takes
//! nothing away from the node, else every address by itself.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::Family;

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

/// What the node's network looks like beside what is ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// Addresses on interfaces other than our device.
    pub addresses: Vec<HostAddress>,
    /// Routes over interfaces other than our device.
    pub routes: Vec<HostRoute>,
}

/// An address of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The address itself.
    pub address: IpAddr,
    /// The other end, on point-to-point links.
    pub peer: Option<IpAddr>,
}

/// A route of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoute {
    /// Where to.
    pub destination: IpNet,
    /// The next hop, if it is not on the link itself.
    pub gateway: Option<IpAddr>,
}

impl HostNetwork {
    /// Whether the address sits on an interface of the node (S-25).
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|host| host.address == address)
    }

    /// Whether routing this whole range to ourselves takes nothing away from the node: no address,
    /// peer or next hop of it lies inside, and no other route goes to the same range or a part of
    /// it. Wider routes, the default route among them, do not count.
    pub fn leaves_free(&self, range: &IpNet) -> bool {
        let outside = |address: IpAddr| !range.contains(&address);
        let addresses = self
            .addresses
            .iter()
            .flat_map(|host| [Some(host.address), host.peer]);
        let gateways = self.routes.iter().map(|route| route.gateway);
        addresses.chain(gateways).flatten().all(outside)
            && self
                .routes
                .iter()
                .all(|route| !range.contains(&route.destination))
    }
}

/// Whether somebody else has virtual servers in the range: they would lose their packets.
fn overlaps(range: &IpNet, excluded: &[IpNet]) -> bool {
    excluded
        .iter()
        .any(|other| range.contains(&other.network()) || other.contains(&range.network()))
}

/// The routes for these frontend addresses, given the cluster's service ranges.
pub(crate) fn routes(
    addresses: &BTreeSet<IpAddr>,
    service_ranges: &[IpNet],
    node_addresses: &[IpAddr],
    excluded: &[IpNet],
    host: &HostNetwork,
) -> BTreeSet<LocalRoute> {
    let source = |family| {
        let of_family = |address: &&IpAddr| Family::of(**address) == family;
        // A route with a source that the node does not have is refused by the kernel.
        node_addresses
            .iter()
            .find(of_family)
            .copied()
            .filter(|address| host.owns(*address))
    };
    let to = |destination: IpNet| LocalRoute {
        destination,
        source: source(Family::of(destination.addr())),
    };
    let whole: Vec<IpNet> = service_ranges
        .iter()
        .map(IpNet::trunc)
        .filter(|range| host.leaves_free(range) && !overlaps(range, excluded))
        .collect();
    let covered = |address: &IpAddr| whole.iter().any(|range| range.contains(address));
    let single = addresses
        .iter()
        .filter(|address| !covered(address) && !host.owns(**address))
        .map(|address| IpNet::from(*address));
    whole.iter().copied().chain(single).map(to).collect()
}
