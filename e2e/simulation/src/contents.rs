//! The state of each object from which a plan was made, as its entries show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use portolan_plan::{Family, FrontendKind, NodePlan, ServiceId};

use crate::objects::{self, FIRST_PORT, Name, SERVICES};

/// The number of an object's state; `None` if the object does not exist.
pub(crate) type ObjectState = Option<u16>;

/// The states in the plan of a node. A slice without its Service has no effect on a plan and is omitted.
///
/// # Errors
/// The plan was made from no state of an object, or from two.
pub(crate) fn read(node: usize, plan: &NodePlan) -> Result<BTreeMap<Name, ObjectState>, String> {
    let mut states = BTreeMap::new();
    let entry = plan.node().ok_or("the plan has no entry of the node")?;
    let addresses = entry.addresses.iter().copied();
    let number = only(addresses.filter_map(|address| of_ipv4(address, objects::number_of_node)))?;
    states.insert(Name::Node(node), number);
    for at in 0..SERVICES {
        let id = ServiceId::new("shop", objects::service(at));
        let Some(head) = plan.head(&id) else {
            states.insert(Name::Service(at), None);
            continue;
        };
        let port = head.ports.first().ok_or(format!("{id} has no port"))?;
        let frontends = port.frontends.iter();
        let of_cluster = frontends.filter(|frontend| frontend.kind == FrontendKind::ClusterIp);
        let number = only(of_cluster.filter_map(|frontend| frontend.port.checked_sub(FIRST_PORT)))?;
        states.insert(Name::Service(at), number);
        let list = plan.backends(&id, port, &port.internal, Family::Ipv4);
        let backends = list.iter().flat_map(|list| list.as_slice());
        let numbers =
            backends.filter_map(|backend| of_ipv4(backend.address, objects::number_of_endpoint));
        let number = only(numbers).map_err(|error| format!("{id}: {error}"))?;
        states.insert(Name::Slice(at), number);
    }
    Ok(states)
}

fn of_ipv4(address: IpAddr, number: impl Fn(Ipv4Addr) -> Option<u16>) -> Option<u16> {
    match address {
        IpAddr::V4(address) => number(address),
        IpAddr::V6(_) => None,
    }
}

/// The number that all of them are.
fn only(numbers: impl Iterator<Item = u16>) -> Result<ObjectState, String> {
    let numbers: BTreeSet<u16> = numbers.collect();
    match numbers.len() {
        0 | 1 => Ok(numbers.first().copied()),
        _ => Err(format!("states {numbers:?} of one object are mixed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_a_state_and_two_are_a_mixture() {
        assert_eq!(only([7, 7].into_iter()), Ok(Some(7)));
        assert_eq!(only(std::iter::empty()), Ok(None));
        assert!(only([7, 8].into_iter()).is_err());
    }
}
