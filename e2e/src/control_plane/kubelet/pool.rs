//! Addresses for pods: one queue per node. A deleted pod returns its address to the end of the
//! queue, so addresses are reused as late as possible.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use anyhow::{Result, bail};

/// The addresses of one pod, one a family, the first is its `podIP`.
pub type PodAddresses = Vec<IpAddr>;

/// Addresses that no pod has, by node.
#[derive(Debug, Clone, Default)]
pub struct AddressPool {
    free: BTreeMap<String, VecDeque<PodAddresses>>,
}

impl AddressPool {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the addresses of one more pod of a node.
    pub fn add(&mut self, node: &str, addresses: PodAddresses) {
        self.free
            .entry(node.to_owned())
            .or_default()
            .push_back(addresses);
    }

    /// Adds addresses for `count` pods of a node, counting up from `first`, one a family.
    ///
    /// # Errors
    /// When a range does not fit below the last address of its family.
    pub fn add_range(&mut self, node: &str, first: &[IpAddr], count: u32) -> Result<()> {
        for number in 0..count {
            let mut addresses = PodAddresses::new();
            for start in first {
                let Some(address) = plus(*start, number) else {
                    bail!("{count} addresses from {start} on are more than there are");
                };
                addresses.push(address);
            }
            self.add(node, addresses);
        }
        Ok(())
    }

    /// How many more pods a node can have.
    #[must_use]
    pub fn left(&self, node: &str) -> usize {
        self.free.get(node).map_or(0, VecDeque::len)
    }

    pub(super) fn take(&mut self, node: &str) -> Option<PodAddresses> {
        self.free.get_mut(node)?.pop_front()
    }

    /// Takes those that a pod was seen with; nothing changes if they are not free.
    pub(super) fn take_these(&mut self, node: &str, addresses: &[IpAddr]) {
        if let Some(free) = self.free.get_mut(node) {
            free.retain(|some| some != addresses);
        }
    }

    pub(super) fn give_back(&mut self, node: &str, addresses: PodAddresses) {
        self.add(node, addresses);
    }
}

fn plus(address: IpAddr, number: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => u32::from(v4)
            .checked_add(number)
            .map(|sum| IpAddr::V4(sum.into())),
        IpAddr::V6(v6) => u128::from(v6)
            .checked_add(number.into())
            .map(|sum| IpAddr::V6(sum.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> PodAddresses {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_range_counts_up_in_every_family_at_once() {
        let mut pool = AddressPool::new();
        pool.add_range("a", &addresses(&["10.244.1.254", "fd00::1"]), 3)
            .unwrap();
        assert_eq!(
            pool.take("a"),
            Some(addresses(&["10.244.1.254", "fd00::1"]))
        );
        assert_eq!(
            pool.take("a"),
            Some(addresses(&["10.244.1.255", "fd00::2"]))
        );
        assert_eq!(pool.take("a"), Some(addresses(&["10.244.2.0", "fd00::3"])));
        assert_eq!((pool.take("a"), pool.take("b")), (None, None));
        let error = pool
            .add_range("a", &addresses(&["255.255.255.255"]), 2)
            .unwrap_err();
        assert!(
            error.to_string().contains("from 255.255.255.255 on"),
            "{error}"
        );
    }

    #[test]
    fn what_was_given_back_is_handed_out_last() {
        let mut pool = AddressPool::new();
        pool.add_range("a", &addresses(&["10.0.0.1"]), 2).unwrap();
        let first = pool.take("a").unwrap();
        pool.give_back("a", first.clone());
        assert_eq!(pool.take("a"), Some(addresses(&["10.0.0.2"])));
        assert_eq!(pool.take("a"), Some(first));
    }

    #[test]
    fn addresses_that_a_pod_already_has_are_not_handed_out_again() {
        let mut pool = AddressPool::new();
        pool.add_range("a", &addresses(&["10.0.0.1"]), 2).unwrap();
        pool.take_these("a", &addresses(&["10.0.0.1"]));
        assert_eq!(pool.left("a"), 1);
        assert_eq!(pool.take("a"), Some(addresses(&["10.0.0.2"])));
    }
}
