//! Laws of comparisons, checked against a naive comparison of all entries of every Service on every node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{Entry, EntryKey, ServiceId};
use portolan_planner::Planner;
use portolan_planner::compare::{
    Clients, Difference, Left, Lost, Plans, Presence, ServiceDifference,
};
use portolan_planner::model::{Event, ObjectChange};
use proptest::prelude::*;

use crate::histories::{NODES, event, history};
use crate::laws::present;

fn planner(events: impl IntoIterator<Item = Event>) -> Planner {
    let mut planner = Planner::default();
    planner.apply(events);
    planner
}

type Entries = BTreeMap<ServiceId, BTreeMap<EntryKey, Entry>>;

fn entries(planner: &Planner, node: &Arc<str>) -> Entries {
    let mut entries = Entries::new();
    for (key, entry) in planner.entries_for(&planner.nodes()[node]) {
        if let Some(service) = key.service() {
            let of_service = entries.entry(service.clone()).or_default();
            of_service.insert(key, entry);
        }
    }
    entries
}

/// The nodes on which each Service differs.
fn naive(before: &Planner, after: &Planner) -> BTreeMap<ServiceId, BTreeSet<Arc<str>>> {
    let mut found: BTreeMap<ServiceId, BTreeSet<Arc<str>>> = BTreeMap::new();
    let both = before.nodes().keys();
    for node in both.filter(|node| after.nodes().contains_key(*node)) {
        let (old, new) = (entries(before, node), entries(after, node));
        for id in old.keys().chain(new.keys()) {
            if old.get(id) != new.get(id) {
                found.entry(id.clone()).or_default().insert(node.clone());
            }
        }
    }
    found
}

fn whole(before: &Planner, after: &Planner) -> Difference {
    Difference::between(&before.into(), &after.into())
}

fn names(difference: &ServiceDifference) -> BTreeSet<Arc<str>> {
    difference.nodes.names.iter().cloned().collect()
}

proptest! {
    #[test]
    fn services_differ_on_the_nodes_whose_entries_differ(one in history(), other in history()) {
        let (before, after) = (planner(one), planner(other));
        let naive = naive(&before, &after);
        let found = whole(&before, &after);
        let mut everywhere = BTreeSet::new();
        for (id, nodes) in &naive {
            let difference = found.services.get(id);
            prop_assert!(difference.is_some(), "{id} differs on {nodes:?}");
            prop_assert_eq!(&names(difference.unwrap()), nodes, "{}", id);
            prop_assert_eq!(difference.unwrap().nodes.count, nodes.len(), "{}", id);
            everywhere.extend(nodes.iter().cloned());
        }
        for (id, difference) in &found.services {
            prop_assert!(naive.contains_key(id) || difference.nodes.is_empty(), "{}", id);
        }
        prop_assert_eq!(found.differing.count, everywhere.len());
    }

    #[test]
    fn one_more_event_differs_on_the_nodes_whose_entries_differ(history in history(), last in event()) {
        let before = planner(history.clone());
        let mut after = planner(history);
        after.apply([last]);
        let found = whole(&before, &after);
        let nodes: BTreeMap<_, _> = found.services.iter()
            .map(|(id, difference)| (id.clone(), names(difference)))
            .filter(|(_, nodes)| !nodes.is_empty())
            .collect();
        prop_assert_eq!(nodes, naive(&before, &after));
    }

    #[test]
    fn equal_clusters_differ_in_nothing_and_nothing_is_compared(history in history()) {
        let one = planner(history);
        let other = planner(present(&one));
        let found = whole(&one, &other);
        prop_assert!(found.is_empty(), "{found:?}");
        prop_assert_eq!((found.differing.count, found.compared), (0, 0));
    }

    #[test]
    fn a_planner_that_goes_on_differs_as_two_planners_do(one in history(), other in history()) {
        let mut going_on = planner(one.clone());
        let before = Plans::from(&going_on);
        going_on.apply(other.clone());
        let fresh = planner(one.into_iter().chain(other));
        let expected = Difference::between(&before, &Plans::from(&fresh));
        prop_assert_eq!(Difference::between(&before, &Plans::from(&going_on)), expected);
    }

    #[test]
    fn one_node_differs_in_the_services_whose_entries_there_differ(
        one in history(), other in history(), node in proptest::sample::select(&NODES[..]),
    ) {
        let (before, after) = (planner(one), planner(other));
        let found = Difference::on_node(node, &(&before).into(), &(&after).into());
        let naive = naive(&before, &after);
        let naive = naive.iter().filter(|(_, nodes)| nodes.contains(node)).map(|(id, _)| id);
        prop_assert!(found.services.keys().eq(naive));
        let entry = |planner: &Planner| planner.node(node).cloned();
        prop_assert_eq!(found.nodes.is_empty(), entry(&before) == entry(&after));
    }

    #[test]
    fn a_service_is_left_with_nothing_when_the_last_node_loses_the_last_endpoint(
        one in history(), other in history(),
    ) {
        let (before, after) = (planner(one), planner(other));
        let found = whole(&before, &after);
        let serves = |planner: &Planner, id: &ServiceId| {
            let planned = &planner.services()[id];
            planned.lists.values().any(|list| !list.is_empty())
        };
        for (id, difference) in &found.services {
            if difference.presence != Presence::Changed {
                prop_assert_eq!(&difference.left, &None);
                continue;
            }
            let (had, has) = (serves(&before, id), serves(&after, id));
            match difference.left {
                Some(Left::WithNothing) => prop_assert!(had && !has, "{}", id),
                Some(Left::InPart(_)) => prop_assert!(had && has, "{}", id),
                None => {}
            }
        }
    }

    #[test]
    fn served_changes_name_each_node_once_and_only_where_the_service_differs(
        one in history(), other in history(),
    ) {
        for (id, difference) in whole(&planner(one), &planner(other)).services {
            let nodes = names(&difference);
            let mut reported = BTreeSet::new();
            for change in &difference.served {
                prop_assert!(!change.nodes.is_empty());
                for node in &change.nodes.names {
                    prop_assert!(nodes.contains(node), "{} on {}", id, node);
                    let clients = match change.clients {
                        Clients::All => vec![Clients::Internal, Clients::External],
                        one => vec![one],
                    };
                    for clients in clients {
                        let place = (change.port.clone(), change.family, clients, node.clone());
                        prop_assert!(reported.insert(place), "{} on {} twice", id, node);
                    }
                }
            }
        }
    }

    #[test]
    fn a_loss_leaves_the_cluster_without_the_lost_nodes_and_their_endpoints(
        history in history(), node in proptest::sample::select(&NODES[..]),
    ) {
        let mut planner = planner(history);
        let lost = Lost { nodes: BTreeSet::from([node.into()]), ..Lost::default() };
        let rest: Vec<_> = present(&planner).into_iter().filter_map(|event| match event {
            Event::Node(ObjectChange::Upsert(object)) if &*object.name == node => None,
            Event::EndpointSlice(ObjectChange::Upsert(mut slice)) => {
                slice.endpoints.retain(|endpoint| endpoint.node.as_deref() != Some(node));
                Some(slice.into())
            }
            other => Some(other),
        }).collect();
        match lost.events(planner.model()) {
            Ok(events) => {
                planner.apply(events);
                let mut expected = Planner::default();
                expected.apply(rest);
                prop_assert!(whole(&expected, &planner).is_empty());
                prop_assert_eq!(planner.services(), expected.services());
                prop_assert_eq!(planner.nodes(), expected.nodes());
            }
            Err(unknown) => {
                prop_assert!(!unknown.known.contains(node));
                prop_assert_eq!(rest.len(), present(&planner).len());
            }
        }
    }
}
