//! Leaves drift alone if the settings say so (`drift: Report`).
//!
//! A drifted object counts as unchanged as long as the plan wants the state in which the agent left it, so the drift
//! alone causes no operation. If the plan wants another state, the object counts as found, so that the operations
//! match the kernel's real state.

use std::collections::BTreeSet;

use super::{Drifted, is_fleeting};
use crate::{Desired, Observed, VirtualServer, sysctls};

/// Resets drifted objects in `found` to the state in `left`, unless the plan now wants something else. Returns the
/// objects that were reset, whose drift remains.
pub fn leave(
    found: &mut Observed,
    left: &Observed,
    drifted: &BTreeSet<Drifted>,
    desired: &Desired,
) -> BTreeSet<Drifted> {
    let mut alone = drifted.clone();
    alone.retain(|what| match what {
        Drifted::VirtualServer(_) | Drifted::RealServer(..) | Drifted::Weight(..) => {
            server(found, left, what, desired)
        }
        Drifted::Set(_) | Drifted::Entry(..) => set(found, left, what, desired),
        Drifted::Rules(family, ..) => {
            let was = left.rules.get(family);
            let as_wanted = rules_stay(left, desired, *family);
            if let (true, Some(was)) = (as_wanted, was) {
                found.rules.insert(*family, was.clone());
            }
            as_wanted
        }
        Drifted::Route(_) | Drifted::PolicyRule(_) | Drifted::Device => {
            link(found, left, what, desired)
        }
        Drifted::Timeouts => {
            let as_wanted = desired.timeouts.are_met_by(&left.timeouts);
            if as_wanted {
                found.timeouts = left.timeouts;
            }
            as_wanted
        }
        Drifted::Setting(name) => {
            let (was, wanted) = (left.sysctls.get(name), desired.sysctls.get(name));
            let (Some(was), Some(wanted)) = (was, wanted) else {
                return false;
            };
            let as_wanted = sysctls::is_enough(name, was, wanted);
            if as_wanted {
                found.sysctls.insert(name.clone(), was.clone());
            }
            as_wanted
        }
    });
    alone
}

fn server(found: &mut Observed, left: &Observed, what: &Drifted, desired: &Desired) -> bool {
    let (Drifted::VirtualServer(key) | Drifted::RealServer(key, _) | Drifted::Weight(key, _)) =
        what
    else {
        return false;
    };
    let wanted = desired.virtual_servers.get(key);
    let (Some(was), Some(wanted)) = (left.virtual_servers.get(key), wanted) else {
        return false;
    };
    let now = found.virtual_servers.get_mut(key);
    match (what, now) {
        (Drifted::VirtualServer(_), None) => {
            let as_wanted = is_as_wanted(was, wanted);
            if as_wanted {
                found.virtual_servers.insert(*key, was.clone());
            }
            as_wanted
        }
        (Drifted::VirtualServer(_), Some(now)) => {
            let as_wanted = was.same_service(wanted);
            if as_wanted {
                let real_servers = std::mem::take(&mut now.real_servers);
                *now = VirtualServer {
                    real_servers,
                    ..was.clone()
                };
            }
            as_wanted
        }
        (Drifted::RealServer(_, backend) | Drifted::Weight(_, backend), Some(now)) => {
            let (was, wanted) = (
                was.real_servers.get(backend),
                wanted.real_servers.get(backend),
            );
            let as_wanted = match (was, wanted) {
                // The real server drains.
                (Some(0), None) => true,
                _ => was == wanted,
            };
            if as_wanted {
                match was {
                    Some(weight) => now.real_servers.insert(*backend, weight),
                    None => now.real_servers.remove(backend),
                };
            }
            as_wanted
        }
        _ => false,
    }
}

/// Whether a virtual server was left as the plan wants it, apart from draining real servers.
fn is_as_wanted(was: &VirtualServer, wanted: &VirtualServer) -> bool {
    let served = was
        .real_servers
        .iter()
        .filter(|(backend, weight)| *weight > 0 || wanted.real_servers.contains_key(backend));
    was.same_service(wanted) && served.eq(wanted.real_servers.iter())
}

fn set(found: &mut Observed, left: &Observed, what: &Drifted, desired: &Desired) -> bool {
    let (Drifted::Set(id) | Drifted::Entry(id, _)) = what else {
        return false;
    };
    let (Some(was), Some(wanted)) = (left.sets.get(id), desired.sets.get(id)) else {
        return false;
    };
    match (what, found.sets.get_mut(id)) {
        (Drifted::Entry(_, entry), Some(now)) => {
            let held = was.entries.contains(entry);
            let as_wanted = held == wanted.entries.contains(entry);
            if as_wanted && held {
                now.entries.insert(*entry);
            } else if as_wanted {
                now.entries.remove(entry);
            }
            as_wanted
        }
        (Drifted::Entry(..), None) => false,
        _ => {
            // Rules that have to be loaded need their sets, and a scheduler is changed only if a set can hold new
            // connections during the change.
            let as_wanted = !is_fleeting(*id)
                && was.entries == wanted.entries
                && rules_stay(left, desired, id.family);
            if as_wanted {
                found.sets.insert(*id, was.clone());
            }
            as_wanted
        }
    }
}

/// Whether the rules of a family were left as the plan wants them.
fn rules_stay(left: &Observed, desired: &Desired, family: portolan_plan::Family) -> bool {
    let mut wanted = desired.rules.iter().filter(|rules| rules.family == family);
    wanted.all(|rules| left.rules.get(&family) == Some(&rules.expected()))
}

fn link(found: &mut Observed, left: &Observed, what: &Drifted, desired: &Desired) -> bool {
    match what {
        Drifted::Route(route) => {
            let was = left.routes.contains(route);
            reset_to_left(&mut found.routes, *route, was, &desired.routes)
        }
        Drifted::PolicyRule(rule) => {
            let was = left.policy.contains(rule);
            reset_to_left(&mut found.policy, *rule, was, &desired.policy)
        }
        // A route needs its device.
        _ => {
            let as_wanted = left.routes == desired.routes;
            if as_wanted {
                found.device_up = true;
                found.routes.clone_from(&left.routes);
            }
            as_wanted
        }
    }
}

/// Resets an item to the state in which it was left, if that is the desired state.
fn reset_to_left<T: Ord>(
    found: &mut BTreeSet<T>,
    item: T,
    was: bool,
    wanted: &BTreeSet<T>,
) -> bool {
    let as_wanted = was == wanted.contains(&item);
    if as_wanted && was {
        found.insert(item);
    } else if as_wanted {
        found.remove(&item);
    }
    as_wanted
}
