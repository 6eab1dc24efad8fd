//! The operations on virtual and real servers. A removed backend gets weight 0 here, and [`crate::drain`] removes it.

use std::iter;

use portolan_plan::Family;

use super::captures_nothing;
use crate::deadlines::drains;
use crate::new_servers::add_real_servers;
use crate::phase::{Batch, Phase};
use crate::reschedule;
use crate::{
    Desired, IpvsOp, Observed, Op, Owned, RealServerKey, RealServers, SetEntry, SetId, SetRole,
    VirtualServer, VirtualServerKey,
};

pub(super) fn servers(batch: &mut Batch, observed: &Observed, desired: &Desired, owned: &Owned) {
    let mut changes = Vec::new();
    let hidden = hidden(batch, observed, desired);
    for (server, wanted) in &desired.virtual_servers {
        let found = observed.virtual_servers.get(server);
        let phase = match (desired.boot_critical.contains(server), found) {
            (true, None) if hidden(server) => Phase::AddUnroutedServers,
            (true, _) => Phase::AddBootCriticalServers,
            (false, _) => Phase::AddServers,
        };
        match found {
            None => {
                batch.push_new(phase, *server);
                continue;
            }
            Some(found) if found.scheduler != wanted.scheduler => {
                changes.push((*server, wanted.scheduling()));
            }
            Some(found) if !found.same_service(wanted) => {
                let op = Op::Ipvs(IpvsOp::EditVirtualServer {
                    server: *server,
                    scheduling: wanted.scheduling(),
                });
                batch.push(phase, op);
            }
            Some(_) => {}
        }
        if let Some(found) = found {
            let found = &found.real_servers;
            real_servers(batch, phase, &desired.node, *server, wanted, found);
        }
    }
    reschedule::schedulers(batch, observed, desired, changes);
    former(batch, observed, desired, owned);
}

/// Removes virtual servers that are not desired. Those of Services that still exist are kept as long as they have
/// connections.
pub(super) fn former(batch: &mut Batch, observed: &Observed, desired: &Desired, owned: &Owned) {
    for (server, held) in &observed.virtual_servers {
        if desired.virtual_servers.contains_key(server) || !owned.contains(server) {
            continue;
        }
        // A virtual server without a Service is removed at once, with all its connections (S-120).
        if desired.resting.contains(server) && !held.real_servers.is_empty() {
            unwanted(batch, *server, held.real_servers.iter());
        } else {
            batch.push(
                Phase::RemoveServers,
                Op::Ipvs(IpvsOp::DeleteVirtualServer { server: *server }),
            );
        }
    }
}

/// Selects the virtual servers that no packet can reach before the policy rules exist, and that have no restrictions:
/// cluster IPs. Only useful if rules have to be loaded.
fn hidden<'a>(
    batch: &Batch,
    observed: &'a Observed,
    desired: &'a Desired,
) -> impl Fn(&VirtualServerKey) -> bool + use<'a> {
    let is_cold = captures_nothing(observed);
    let loads = Family::BOTH.map(|family| (family, batch.loads_rules(family)));
    move |server| {
        let family = Family::of(server.address);
        let role = SetRole::ClusterIp;
        let cluster_ips = desired.sets.get(&SetId { role, family });
        is_cold
            && loads.contains(&(family, true))
            && cluster_ips.is_some_and(|set| set.entries.contains(&SetEntry::of(*server)))
            && !observed.host.owns(server.address)
    }
}

/// Removes real servers, or starts to drain them. Real servers that already drain are left alone: they are removed
/// when they have no connections, and connection counts are not known here.
fn unwanted(
    batch: &mut Batch,
    server: VirtualServerKey,
    backends: impl IntoIterator<Item = (RealServerKey, u32)>,
) {
    for (backend, weight) in backends {
        if !drains(server.protocol) {
            batch.push(
                Phase::RemoveServers,
                Op::Ipvs(IpvsOp::DeleteRealServer { server, backend }),
            );
        } else if weight != 0 {
            let weight = 0;
            batch.push(
                Phase::Drain,
                Op::Ipvs(IpvsOp::EditRealServer {
                    server,
                    backend,
                    weight,
                }),
            );
        }
    }
}

fn real_servers(
    batch: &mut Batch,
    phase: Phase,
    node: &str,
    server: VirtualServerKey,
    wanted: &VirtualServer,
    found: &RealServers,
) {
    if *found == wanted.real_servers {
        return;
    }
    let mut missing = Vec::new();
    let mut gone = Vec::new();
    // Both are sorted, so one pass over each is enough.
    let mut found = found.iter().peekable();
    for (backend, weight) in wanted.real_servers.iter() {
        gone.extend(iter::from_fn(|| found.next_if(|(held, _)| *held < backend)));
        match found.next_if(|(held, _)| *held == backend) {
            None => missing.push((backend, weight)),
            Some((_, held)) if held != weight => {
                batch.push(
                    phase,
                    Op::Ipvs(IpvsOp::EditRealServer {
                        server,
                        backend,
                        weight,
                    }),
                );
            }
            Some(_) => {}
        }
    }
    gone.extend(found);
    if !missing.is_empty() {
        let ops = &mut batch.phases.entry(phase).or_default().ops;
        add_real_servers(ops, node, server, missing.into_iter());
    }
    unwanted(batch, server, gone);
}
