//! The addresses of all nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses, each with the number of nodes that report it: two nodes may do so for a moment.
#[derive(Debug, Default)]
pub(super) struct NodeAddresses(BTreeMap<IpAddr, u32>);

impl NodeAddresses {
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains_key(&address)
    }

    pub(super) fn add(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            *self.0.entry(*address).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            if let Some(nodes) = self.0.get_mut(address) {
                *nodes -= 1;
                if *nodes == 0 {
                    self.0.remove(address);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any history of nodes, exactly the addresses of those that exist are known.
        #[test]
        fn the_addresses_of_existing_nodes_are_known(
            changes in vec((0..4_usize, vec(0..6_u8, 0..4)), 0..30),
        ) {
            let address = |last: u8| IpAddr::from([10, 0, 0, last]);
            let mut nodes: [Vec<IpAddr>; 4] = Default::default();
            let mut known = NodeAddresses::default();
            for (node, addresses) in changes {
                let new: Vec<_> = addresses.into_iter().map(address).collect();
                known.add(&new);
                known.remove(&std::mem::replace(&mut nodes[node], new));
                let real: BTreeSet<_> = nodes.iter().flatten().copied().collect();
                for last in 0..6 {
                    let address = address(last);
                    prop_assert_eq!(known.contains(address), real.contains(&address));
                }
            }
        }
    }
}
