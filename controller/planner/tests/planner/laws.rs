//! Laws for every cluster and every history.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::histories::{event, history};
use portolan_plan::{NodeEntry, Protocol, ServiceId, Settings};
use portolan_planner::model::{ClusterModel, Event, ProxyConfig};
use portolan_planner::{PlannedService, Planner, Update};
use proptest::prelude::*;

type Plans = (
    BTreeMap<ServiceId, Arc<PlannedService>>,
    BTreeMap<Arc<str>, Arc<NodeEntry>>,
);

fn plans(planner: &Planner) -> Plans {
    (planner.services().clone(), planner.nodes().clone())
}

/// The creation events of all objects of the model.
pub(crate) fn present(planner: &Planner) -> Vec<Event> {
    let model = planner.model();
    let config = model.config_in_force().map(|config| (**config).clone());
    let config = config.unwrap_or_else(|| ProxyConfig::of(model.settings()));
    let services = model
        .services()
        .map(|object| Event::from((**object).clone()));
    let slices = model.slices().map(|object| Event::from((**object).clone()));
    let nodes = model.nodes().map(|object| Event::from((**object).clone()));
    let ranges = model.service_cidr_objects();
    let ranges = ranges.map(|object| Event::from((**object).clone()));
    services
        .chain(slices)
        .chain(nodes)
        .chain(ranges)
        .chain([config.into()])
        .collect()
}

/// Applies an update to a copy of the plans.
fn follow(plans: &mut Plans, update: Update) {
    for (id, planned) in update.services {
        match planned {
            Some(planned) => plans.0.insert(id, planned),
            None => plans.0.remove(&id),
        };
    }
    for (name, entry) in update.nodes {
        match entry {
            Some(entry) => plans.1.insert(name, entry),
            None => plans.1.remove(&name),
        };
    }
}

/// A node that no change has reached has the current settings; others have the new ones.
fn given(planner: &Planner, node: &NodeEntry) -> Settings {
    let model = planner.model();
    let config = model.config_in_force().map(|config| (**config).clone());
    let config = config.unwrap_or_else(|| ProxyConfig::of(Settings::default()));
    let object = model.node(&node.name).unwrap();
    let staged = config.staged.as_ref().filter(|staged| {
        let zone = object.zone.as_deref().unwrap_or_default();
        staged.reach.nodes.contains(&object.name) || staged.reach.zones.contains(zone)
    });
    let revision = staged.map_or(&*config.current, |staged| &staged.revision);
    let mut settings = revision.settings.clone();
    for other in &revision.overrides {
        let mut labels = other.labels.iter();
        if labels.all(|(name, value)| object.labels.get(name) == Some(value)) {
            settings.scheduler = other.settings.scheduler.clone().unwrap();
        }
    }
    settings
}

proptest! {
    #[test]
    fn each_node_has_the_settings_of_its_wave_and_labels(history in history()) {
        let mut planner = Planner::default();
        for event in history {
            planner.apply([event]);
            for node in planner.nodes().values() {
                prop_assert_eq!(&node.settings, &given(&planner, node));
            }
        }
    }

    #[test]
    fn a_history_leads_to_the_plans_of_its_end(history in history()) {
        let mut planner = Planner::default();
        for event in history {
            planner.apply([event]);
        }
        let mut fresh = Planner::default();
        fresh.apply(present(&planner));
        prop_assert_eq!(plans(&planner), plans(&fresh));
    }

    #[test]
    fn updates_contain_all_changes_and_nothing_else(history in history(), batch in 1..5usize) {
        let mut planner = Planner::default();
        let mut copy = Plans::default();
        for events in history.chunks(batch) {
            let update = planner.apply(events.to_vec());
            for (id, planned) in &update.services {
                prop_assert_ne!(copy.0.get(id), planned.as_ref(), "{} did not change", id);
            }
            for (name, entry) in &update.nodes {
                prop_assert_ne!(copy.1.get(name), entry.as_ref(), "{} did not change", name);
            }
            follow(&mut copy, update);
        }
        prop_assert_eq!(plans(&planner), copy);
    }

    /// I-1.
    #[test]
    fn the_order_in_which_objects_come_does_not_matter(history in history(), seed in any::<u64>()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let mut events = present(&planner);
        // Any order works; a small generator needs no dependency.
        let mut state = seed | 1;
        for index in (1..events.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            events.swap(index, usize::try_from(state >> 33).unwrap() % (index + 1));
        }
        let mut other = Planner::default();
        for event in events {
            other.apply([event]);
        }
        prop_assert_eq!(plans(&planner), plans(&other));
    }

    #[test]
    fn an_equal_object_touches_nothing(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let before = plans(&planner);
        for event in present(&planner) {
            prop_assert!(planner.apply([event]).is_empty());
        }
        // Even the values are the same: S-12, S-188.
        for (id, planned) in planner.services() {
            prop_assert!(Arc::ptr_eq(planned, &before.0[id]));
        }
    }

    #[test]
    fn an_equal_object_is_not_even_planned_again(history in history()) {
        let mut planner = Planner::default();
        let mut model = ClusterModel::default();
        for event in history {
            model.apply(event.clone());
            planner.apply([event]);
        }
        for event in present(&planner) {
            prop_assert!(model.apply(event).is_empty());
        }
    }

    #[test]
    fn unchanged_parts_are_the_same_value(history in history(), last in event()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let before = plans(&planner);
        planner.apply([last]);
        for (id, planned) in planner.services() {
            let Some(old) = before.0.get(id) else { continue };
            for (key, list) in &planned.lists {
                let same = old.lists.get(key).filter(|old| *old == list);
                prop_assert!(same.is_none_or(|old| Arc::ptr_eq(old, list)));
            }
            for (node, local) in &planned.locals {
                let same = old.locals.get(node).filter(|old| *old == local);
                prop_assert!(same.is_none_or(|old| Arc::ptr_eq(old, local)));
            }
        }
    }

    #[test]
    fn every_frontend_belongs_to_one_service(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let mut owners = BTreeMap::new();
        for (id, planned) in planner.services() {
            for port in &planned.heads[0].ports {
                for frontend in &port.frontends {
                    let place = (frontend.address, frontend.port, port.protocol);
                    prop_assert_eq!(owners.insert(place, id.clone()), None, "two owners");
                }
            }
            // S-14: a health check port conflicts like a node port.
            let health = planned.elsewhere.as_ref().and_then(|local| local.health);
            if let Some(health) = health {
                let owner = owners.insert((None, health.port, Protocol::Tcp), id.clone());
                prop_assert!(owner.is_none_or(|owner| owner == *id), "two owners");
            }
        }
    }
}
