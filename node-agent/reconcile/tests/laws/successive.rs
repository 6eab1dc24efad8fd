//! Pairs of successive plans: endpoints leave some lists, and whole Services are removed.

use std::collections::BTreeMap;

use portolan_plan::{Backend, BackendList, Entry, EntryKey, Family, ListKey, strategies};
use portolan_reconcile::Desired;
use proptest::prelude::*;

use super::desired;

type Entries = BTreeMap<EntryKey, Entry>;

/// A plan whose Services have backends, and a later version of it. Two random plans share too little for anything to
/// drain between them.
pub(crate) fn one_then_the_other() -> impl Strategy<Value = (Desired, Desired)> {
    let pools =
        Family::BOTH.map(|family| prop::collection::vec(strategies::backends(family), 1..4));
    let flags = || prop::collection::vec(any::<bool>(), 1..20);
    let kept = prop_oneof![3 => flags(), 1 => Just(vec![false])];
    let entries = strategies::entries();
    (entries, pools, kept, flags()).prop_map(|(entries, pools, kept, stays)| {
        let first = with_backends(entries.into_iter().collect(), &pools);
        let second = later(&first, &kept, &stays);
        let desired = |entries: Entries| desired(entries.into_iter().collect());
        (desired(first), desired(second))
    })
}

/// Two successive plans: the second is either derived from the first or random.
pub(crate) fn plans() -> impl Strategy<Value = (Desired, Desired)> {
    let any = || strategies::entries().prop_map(desired);
    prop_oneof![one_then_the_other(), (any(), any())]
}

/// Gives every list that a head uses the backends of the pools, in turn.
pub(crate) fn with_backends(mut entries: Entries, pools: &[Vec<BackendList>; 2]) -> Entries {
    let Some(Entry::Node(node)) = entries.get(&EntryKey::Node).cloned() else {
        panic!("a plan has a node");
    };
    let heads = entries
        .iter()
        .filter_map(|(key, entry)| match (key, entry) {
            (EntryKey::Head(service), Entry::Head(head)) => Some((service.clone(), head.clone())),
            _ => None,
        });
    let heads: Vec<_> = heads.collect();
    let mut pool = 0;
    for (service, head) in heads {
        for port in &head.ports {
            for list in std::iter::once(&port.internal).chain(&port.external) {
                for (family, lists) in Family::BOTH.into_iter().zip(pools) {
                    let key = ListKey {
                        service: service.clone(),
                        port: port.name.clone(),
                        family,
                        scope: node.complete(list.choice(family).scope),
                    };
                    let backends = lists[pool % lists.len()].clone();
                    entries.insert(EntryKey::List(key), Entry::List(backends.into()));
                    pool += 1;
                }
            }
        }
    }
    entries
}

/// Removes some backends and some Services.
fn later(first: &Entries, kept: &[bool], stays: &[bool]) -> Entries {
    let (mut kept, mut stays) = (kept.iter().cycle(), stays.iter().cycle());
    let change = |(key, entry): (&EntryKey, &Entry)| {
        let entry = match entry {
            Entry::List(list) => {
                let left: Vec<Backend> = list
                    .as_slice()
                    .iter()
                    .filter(|_| kept.next() == Some(&true))
                    .copied()
                    .collect();
                Entry::List(BackendList::new(left).into())
            }
            Entry::Head(_) if stays.next() == Some(&false) && stays.next() == Some(&false) => {
                return None;
            }
            entry => entry.clone(),
        };
        Some((key.clone(), entry))
    };
    first.iter().filter_map(change).collect()
}
