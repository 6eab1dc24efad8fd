//! Laws of the list of failing Services: it is complete, bounded, and no namespace can hide another one (S-229).

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::{Failing, MAX_FAILING, ServiceId};
use proptest::collection::btree_set;
use proptest::prelude::*;

/// More Services of one namespace than are listed one by one.
const CROWD: u16 = 64;

fn crowd(count: u16) -> BTreeSet<ServiceId> {
    let service = |number| ServiceId::new("crowd", format!("web-{number}"));
    (0..count).map(service).collect()
}

/// Services of a few namespaces, and any number of one more.
fn services() -> impl Strategy<Value = BTreeSet<ServiceId>> {
    let service = (0u8..4, 0u8..40).prop_map(|(namespace, name)| {
        ServiceId::new(format!("shop-{namespace}"), format!("web-{name}"))
    });
    (btree_set(service, 0..60), 0u16..300).prop_map(|(few, many)| {
        let mut services = crowd(many);
        services.extend(few);
        services
    })
}

proptest! {
    #[test]
    fn every_member_is_contained(services in services()) {
        let failing = Failing::of(&services);
        for service in &services {
            prop_assert!(failing.contains(service), "{service}");
        }
    }

    /// A whole namespace is listed only if it has too many members.
    #[test]
    fn no_other_service_is_contained(services in services(), number in 0u8..60) {
        let failing = Failing::of(&services);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for service in &services {
            *counts.entry(&service.namespace).or_default() += 1;
        }
        for namespace in ["shop-0", "shop-3", "crowd", "other"] {
            let service = ServiceId::new(namespace, format!("web-{number}"));
            let few = counts.get(namespace).copied().unwrap_or(0) <= usize::from(CROWD);
            if few && !services.contains(&service) {
                prop_assert!(!failing.contains(&service), "{service}");
            }
        }
    }

    #[test]
    fn what_is_sent_is_what_is_read(services in services()) {
        let failing = Failing::of(&services);
        let mut hashes = failing.hashes().to_vec();
        prop_assert!(hashes.is_sorted());
        hashes.reverse();
        prop_assert_eq!(Failing::from_hashes(hashes), failing);
    }

    #[test]
    fn one_namespace_takes_a_bounded_part(count in 0u16..3000) {
        let failing = Failing::of(&crowd(count));
        prop_assert!(failing.hashes().len() <= usize::from(CROWD));
        prop_assert_eq!(failing.is_empty(), count == 0);
    }
}

/// A shortened list would say of the others that they are in force.
#[test]
fn more_than_the_maximum_counts_as_every_service() {
    let of_own = |number| ServiceId::new(format!("shop-{number}"), "web");
    let mut services: BTreeSet<_> = (0..MAX_FAILING).map(of_own).collect();
    let another = ServiceId::new("another", "web");
    let most = Failing::of(&services);
    assert_eq!(most.hashes().len(), MAX_FAILING);
    assert!(!most.is_everything() && !most.contains(&another));
    services.insert(ServiceId::new("other", "web"));
    let more = Failing::of(&services);
    assert!(more.is_everything() && more.contains(&another));
    assert!(services.iter().all(|service| more.contains(service)));
    let read = Failing::from_hashes(more.hashes().to_vec());
    assert!(read.is_everything() && read.contains(&another));
    let same = Failing::from_hashes(vec![7; MAX_FAILING * 2]);
    assert!(!same.is_everything(), "the same hash counts once");
    let flood = (0..10 * MAX_FAILING as u64).collect();
    assert!(Failing::from_hashes(flood).is_everything());
}
