//! Interned names that thousands of endpoints repeat.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::ObjectChange;
use super::{Endpoint, EndpointSlice};

/// Names of nodes and zones. A cluster has few of them but many endpoints: without interning, names take more memory
/// than addresses in a large cluster.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<Arc<str>>);

impl Names {
    /// Replaces names in the endpoints of a change by interned ones.
    pub(super) fn share(&mut self, change: &mut ObjectChange<EndpointSlice>) {
        match change {
            ObjectChange::Upsert(slice) => self.share_slice(slice),
            ObjectChange::Replace(slices) => {
                slices.iter_mut().for_each(|slice| self.share_slice(slice));
                // After a complete list: removes names that are not used any more.
                self.0.retain(|name| Arc::strong_count(name) > 1);
            }
            ObjectChange::Remove(_) => {}
        }
    }

    fn share_slice(&mut self, slice: &mut EndpointSlice) {
        for endpoint in &mut slice.endpoints {
            let Endpoint {
                node,
                zone,
                for_nodes,
                for_zones,
                ..
            } = endpoint;
            let hints = for_nodes.iter_mut().chain(for_zones);
            for name in node.iter_mut().chain(zone).chain(hints) {
                match self.0.get(name) {
                    Some(known) => *name = known.clone(),
                    None => drop(self.0.insert(name.clone())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AddressType, SliceId};

    fn slice(node: &str) -> EndpointSlice {
        let endpoint = Endpoint {
            address: [10, 0, 0, 1].into(),
            ready: true,
            serving: true,
            terminating: false,
            node: Some(node.into()),
            zone: Some("z".into()),
            for_nodes: vec![node.into()],
            for_zones: vec!["z".into()],
        };
        EndpointSlice {
            id: SliceId {
                namespace: "shop".into(),
                name: "cart-1".into(),
            },
            service: None,
            generation: 1,
            address_type: AddressType::Ipv4,
            ports: Vec::new(),
            endpoints: vec![endpoint],
            ignored: Vec::new(),
        }
    }

    #[test]
    fn equal_names_are_one_value_and_unused_ones_are_forgotten() {
        let mut names = Names::default();
        let mut first = ObjectChange::Upsert(slice("node-a"));
        names.share(&mut first);
        let mut second = ObjectChange::Replace(vec![slice("node-a")]);
        names.share(&mut second);
        let (ObjectChange::Upsert(first), ObjectChange::Replace(second)) = (&first, &second) else {
            unreachable!("as made above");
        };
        let node = |slice: &EndpointSlice| slice.endpoints[0].node.clone().unwrap();
        assert!(Arc::ptr_eq(&node(first), &node(&second[0])));
        assert_eq!(*first, second[0], "only the memory is shared");
    }

    #[test]
    fn unused_names_are_removed() {
        let mut names = Names::default();
        let mut first = ObjectChange::Upsert(slice("node-a"));
        names.share(&mut first);
        assert_eq!(names.0.len(), 2);
        drop(first);
        names.share(&mut ObjectChange::Replace(Vec::new()));
        assert!(names.0.is_empty(), "{names:?}");
    }
}
