//! The second question asked twice: where does a Service answer on a node? Once to the planner, which
//! looks at rivals by indexes, and once to a walk over all Services, the oldest first, in which each
//! takes what is still free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::histories::history;
use portolan_plan::{
    Family, Frontend, FrontendKind, LocalDetection, NodeEntry, Protocol, ServiceId,
};
use portolan_planner::model::{ClusterModel, Service};
use portolan_planner::{Planner, is_usable_address};
use proptest::prelude::*;

/// A place that one Service has: an address with a port, or a port of the nodes.
type Place = (Option<IpAddr>, u16, Protocol);
/// A frontend, with the place in the Service of its port.
type Answer = (ServiceId, usize, Frontend);

fn is_ours(service: &Service, proxy_name: &str) -> bool {
    let labelled = service.proxy_name.as_deref().unwrap_or_default();
    let is_labelled = service.proxy_name.is_some();
    let ours = is_labelled != proxy_name.is_empty() && labelled == proxy_name;
    ours && !service.cluster_ips.is_empty()
}

/// S-7, S-29, and addresses that may be a pod's.
fn may_answer(
    model: &ClusterModel,
    service: &Service,
    kind: FrontendKind,
    address: IpAddr,
) -> bool {
    if kind == FrontendKind::ClusterIp {
        return is_usable_address(address);
    }
    let pods = model
        .nodes()
        .any(|node| node.pod_cidrs.iter().any(|range| range.contains(&address)));
    let settings = model.settings();
    let of_cluster = match &settings.local_detection {
        LocalDetection::ClusterCidr { cluster_cidrs } => cluster_cidrs.clone(),
        _ => Vec::new(),
    };
    let allowed = settings
        .external_ips
        .allowed_cidrs
        .iter()
        .any(|range| range.contains(&address));
    let family = service
        .cluster_ips
        .iter()
        .any(|own| Family::of(*own) == Family::of(address));
    is_usable_address(address)
        && family
        && !pods
        && !of_cluster.iter().any(|range| range.contains(&address))
        && (kind == FrontendKind::LoadBalancer || allowed)
}

fn is_api_server(model: &ClusterModel, place: Place) -> bool {
    model.slices().any(|slice| {
        let of = slice
            .service_id()
            .is_some_and(|id| id == ServiceId::new("default", "kubernetes"));
        let port = slice
            .ports
            .iter()
            .any(|port| (port.port, port.protocol) == (place.1, place.2));
        of && port
            && slice
                .endpoints
                .iter()
                .any(|endpoint| Some(endpoint.address) == place.0)
    })
}

/// Everything that a Service may have, each place once, by port.
fn wishes(model: &ClusterModel, service: &Service) -> Vec<(usize, Frontend)> {
    let mut wishes = Vec::new();
    for (at, port) in service.ports.iter().enumerate() {
        let mut seen = BTreeSet::new();
        let own = service
            .cluster_ips
            .iter()
            .map(|address| (FrontendKind::ClusterIp, *address));
        for (kind, address) in own.chain(service.external_addresses()) {
            if seen.insert(address) && may_answer(model, service, kind, address) {
                wishes.push((
                    at,
                    Frontend {
                        kind,
                        address: Some(address),
                        port: port.port,
                    },
                ));
            }
        }
        if let Some(number) = port.node_port {
            wishes.push((
                at,
                Frontend {
                    kind: FrontendKind::NodePort,
                    address: None,
                    port: number,
                },
            ));
        }
    }
    wishes
}

/// S-14 to S-19, S-25, S-31: where each Service answers on one node. Cluster IPs are given first.
fn expected(model: &ClusterModel, node: &NodeEntry) -> BTreeSet<Answer> {
    let proxy_name = model.settings().service_proxy_name;
    let mut services: Vec<_> = model
        .services()
        .filter(|s| is_ours(s, &proxy_name))
        .collect();
    services.sort_by_key(|service| (service.created.unwrap_or(i64::MAX), service.id.clone()));
    let mut taken: BTreeMap<Place, ServiceId> = BTreeMap::new();
    let mut answers: BTreeSet<Answer> = BTreeSet::new();
    for cluster_ips in [true, false] {
        for service in &services {
            if let Some(port) = service.health_port().filter(|_| !cluster_ips) {
                taken
                    .entry((None, port, Protocol::Tcp))
                    .or_insert(service.id.clone());
            }
            for (at, frontend) in wishes(model, service) {
                if (frontend.kind == FrontendKind::ClusterIp) != cluster_ips {
                    continue;
                }
                let place = (frontend.address, frontend.port, service.ports[at].protocol);
                let has_it = *taken.entry(place).or_insert(service.id.clone()) == service.id;
                let served = |address: IpAddr| {
                    answers.iter().any(|(id, other, won)| {
                        (id, *other, won.kind) == (&service.id, at, FrontendKind::ClusterIp)
                            && won
                                .address
                                .is_some_and(|won| Family::of(won) == Family::of(address))
                    })
                };
                let free = cluster_ips
                    || frontend
                        .address
                        .is_none_or(|a| served(a) && !is_api_server(model, place));
                if has_it && free {
                    answers.insert((service.id.clone(), at, frontend));
                }
            }
        }
    }
    answers.retain(|answer| stays_on(model, node, &taken, answer));
    answers
}

/// On a node's own address only that node answers, and not where somebody has that node port.
fn stays_on(
    model: &ClusterModel,
    node: &NodeEntry,
    taken: &BTreeMap<Place, ServiceId>,
    (id, at, frontend): &Answer,
) -> bool {
    let Some(address) = frontend
        .address
        .filter(|_| frontend.kind != FrontendKind::ClusterIp)
    else {
        return true;
    };
    let owners: Vec<_> = model
        .nodes()
        .filter(|node| node.addresses.contains(&address))
        .collect();
    let port = &model.service(id).unwrap().ports[*at];
    let node_port = taken
        .get(&(None, frontend.port, port.protocol))
        .filter(|owner| {
            let owner = model.service(owner).unwrap();
            owner
                .cluster_ips
                .iter()
                .any(|own| Family::of(*own) == Family::of(address))
        });
    let own = owners.iter().any(|owner| owner.name == node.name);
    let same_port = port.node_port == Some(frontend.port);
    owners.is_empty() || (own && node_port.is_none_or(|other| other == id && same_port))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_service_answers_where_a_walk_over_all_of_them_says(history in history()) {
        let mut planner = Planner::default();
        for event in history {
            planner.apply([event]);
        }
        let stranger = NodeEntry { name: "stranger".into(), ..NodeEntry::default() };
        for node in planner.nodes().values().map(|node| (**node).clone()).chain([stranger]) {
            let mut found = BTreeSet::new();
            for (id, planned) in planner.services() {
                for (at, port) in planned.head_for(&node).ports.iter().enumerate() {
                    found.extend(port.frontends.iter().map(|frontend| (id.clone(), at, *frontend)));
                }
            }
            let mut owners = BTreeMap::new();
            for (id, at, frontend) in &found {
                // A node port on the port's own number may stand beside the node's address.
                let protocol = planner.model().service(id).unwrap().ports[*at].protocol;
                let place = (frontend.address, frontend.port, protocol);
                prop_assert_eq!(owners.insert(place, (id, at)), None, "two owners of {:?}", place);
            }
            prop_assert_eq!(&found, &expected(planner.model(), &node), "on {}", node.name);
        }
    }
}
