//! Compares the found state with the state that the agent left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::Family;

use super::{Drifted, is_fleeting};
use crate::rules::ObservedRules;
use crate::{
    Desired, Network, Observed, Owned, RealServerKey, VirtualServer, VirtualServerKey, sysctls,
};

/// The owned objects whose `found` state differs from the state that the agent left. `left` is the state after the
/// previous pass. Objects that are not `owned` belong to other programs and are ignored. A setting that satisfies
/// `desired` is not drift.
pub fn drift(
    left: &Observed,
    found: &Observed,
    owned: &Owned,
    desired: &Desired,
) -> BTreeSet<Drifted> {
    let mut drifted = drift_of_network(&left.network(), &left.sysctls, found, desired);
    for (key, was) in &left.virtual_servers {
        if owned.contains(key) {
            let wanted = desired.virtual_servers.get(key);
            let drains = |backend: &RealServerKey| {
                !wanted.is_some_and(|wanted| wanted.real_servers.contains_key(backend))
            };
            server(
                &mut drifted,
                *key,
                was,
                found.virtual_servers.get(key),
                drains,
            );
        }
    }
    sets(&mut drifted, left, found);
    // Timeouts that the settings do not define may be changed by any program.
    if desired.timeouts.are_met_by(&left.timeouts) && !desired.timeouts.are_met_by(&found.timeouts)
    {
        drifted.insert(Drifted::Timeouts);
    }
    let nothing = ObservedRules::default();
    for family in Family::BOTH {
        if let Some(was) = left.rules.get(&family)
            && !found.unread_rules.contains_key(&family)
        {
            let now = found.rules.get(&family).unwrap_or(&nothing);
            let differences = was.differences(now);
            drifted.extend(
                differences
                    .into_iter()
                    .map(|(table, what)| Drifted::Rules(family, table, what)),
            );
        }
    }
    drifted
}

/// The part of [`drift`] that concerns links, routes and kernel settings.
pub fn drift_of_network(
    left: &Network,
    left_settings: &BTreeMap<Arc<str>, Arc<str>>,
    found: &Observed,
    desired: &Desired,
) -> BTreeSet<Drifted> {
    let mut drifted = BTreeSet::new();
    if left.device_up && !found.device_up {
        // Its routes were removed with it.
        drifted.insert(Drifted::Device);
    } else {
        let routes = left.routes.symmetric_difference(&found.routes);
        drifted.extend(routes.map(|route| Drifted::Route(*route)));
    }
    let policy = left.policy.symmetric_difference(&found.policy);
    drifted.extend(policy.map(|rule| Drifted::PolicyRule(*rule)));
    for (name, was) in left_settings {
        let (Some(now), Some(wanted)) = (found.sysctls.get(name), desired.sysctls.get(name)) else {
            continue;
        };
        if now != was && !sysctls::is_enough(name, now, wanted) {
            drifted.insert(Drifted::Setting(name.clone()));
        }
    }
    drifted
}

fn server(
    drifted: &mut BTreeSet<Drifted>,
    key: VirtualServerKey,
    was: &VirtualServer,
    now: Option<&VirtualServer>,
    drains: impl Fn(&RealServerKey) -> bool,
) {
    let Some(now) = now else {
        drifted.insert(Drifted::VirtualServer(key));
        return;
    };
    if !now.same_service(was) {
        drifted.insert(Drifted::VirtualServer(key));
    }
    if now.real_servers == was.real_servers {
        return;
    }
    for (backend, weight) in was.real_servers.iter() {
        match now.real_servers.get(&backend) {
            // A draining real server is removed as soon as its connections have ended.
            None if weight == 0 && drains(&backend) => {}
            None => {
                drifted.insert(Drifted::RealServer(key, backend));
            }
            Some(found) if found != weight => {
                drifted.insert(Drifted::Weight(key, backend));
            }
            Some(_) => {}
        }
    }
    let new = |backend: &RealServerKey| !was.real_servers.contains_key(backend);
    let new = now.real_servers.keys().filter(new);
    drifted.extend(new.map(|backend| Drifted::RealServer(key, backend)));
}

fn sets(drifted: &mut BTreeSet<Drifted>, left: &Observed, found: &Observed) {
    for (id, was) in &left.sets {
        let Some(now) = found.sets.get(id) else {
            drifted.insert(Drifted::Set(*id));
            continue;
        };
        let room = usize::try_from(now.max_elements).unwrap_or(usize::MAX);
        let like = (now.kind, now.timeout_seconds) == (was.kind, was.timeout_seconds);
        if !like || room < was.entries.len() {
            drifted.insert(Drifted::Set(*id));
        } else if !is_fleeting(*id) {
            let entries = was.entries.symmetric_difference(&now.entries);
            drifted.extend(entries.map(|entry| Drifted::Entry(*id, *entry)));
        }
    }
}
