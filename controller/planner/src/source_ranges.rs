//! Source ranges of load balancer addresses (`loadBalancerSourceRanges`), as plans contain them. Agents enforce them
//! (`rules` in `node-agent/reconcile`).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use portolan_plan::Family;

/// The ranges for a plan: empty if all sources are allowed (S-87), and an unassigned address if none is (S-88). If a
/// family has no range, ranges of the other family close it.
pub(crate) fn source_ranges(
    ranges: &[IpNet],
    addresses: impl Iterator<Item = IpAddr>,
) -> Vec<IpNet> {
    let families: BTreeSet<Family> = addresses.map(Family::of).collect();
    let of = |family| {
        let own = ranges
            .iter()
            .filter(move |range| Family::of(range.addr()) == family);
        match own.clone().find(|range| range.prefix_len() == 0) {
            Some(everything) => BTreeSet::from([*everything]),
            None => own.copied().collect(),
        }
    };
    let is_open = |family: &Family| of(*family).iter().any(|range| range.prefix_len() == 0);
    if families.iter().all(is_open) {
        return Vec::new();
    }
    let found: Vec<IpNet> = Family::BOTH.into_iter().flat_map(of).collect();
    if found.is_empty() {
        let unassigned = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        return unassigned.map(IpNet::from).into();
    }
    found
}
