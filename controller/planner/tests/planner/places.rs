//! An independent model of frontends: the planner finds conflicts by indexes; this model visits all Services, in the
//! order of precedence, and assigns what is still free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::histories::history;
use portolan_plan::{Family, Frontend, FrontendKind, NodeEntry, Policy, Protocol, ServiceId};
use portolan_planner::model::{ClusterModel, Service};
use portolan_planner::{Planner, is_usable_address};
use proptest::prelude::*;

/// A claimed address and port, or a node port.
type Place = (Option<IpAddr>, u16, Protocol);
/// A frontend, with the index of its port in the Service.
type Answer = (ServiceId, usize, Frontend);

fn is_ours(service: &Service, proxy_name: &str) -> bool {
    let labelled = service.proxy_name.as_deref().unwrap_or_default();
    let is_labelled = service.proxy_name.is_some();
    let ours = is_labelled != proxy_name.is_empty() && labelled == proxy_name;
    ours && !service.cluster_ips.is_empty()
}

/// S-7, S-29, and an external IP that is the address of an endpoint and not of a node (S-215).
fn may_answer(
    model: &ClusterModel,
    service: &Service,
    kind: FrontendKind,
    address: IpAddr,
) -> bool {
    if kind == FrontendKind::ClusterIp {
        return is_usable_address(address);
    }
    let of_pod = model
        .slices()
        .any(|slice| slice.endpoints.iter().any(|e| e.address == address));
    let settings = model.settings();
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
        && (kind == FrontendKind::LoadBalancer
            || (allowed && (!of_pod || is_of_node(model, address))))
}

fn is_of_node(model: &ClusterModel, address: IpAddr) -> bool {
    model.nodes().any(|node| node.addresses.contains(&address))
}

/// Ports of node components are never served for external IPs.
fn is_of_the_node_itself(model: &ClusterModel, kind: FrontendKind, place: Place) -> bool {
    let settings = model.settings();
    let ports = [10250, settings.healthz.port, settings.metrics.port];
    kind == FrontendKind::ExternalIp
        && place.2 == Protocol::Tcp
        && ports.contains(&place.1)
        && place.0.is_some_and(|address| is_of_node(model, address))
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

/// All possible frontends of a Service, without duplicates, by port.
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

/// The order of precedence (S-215).
const CLASSES: [&[FrontendKind]; 3] = [
    &[FrontendKind::ClusterIp],
    &[FrontendKind::LoadBalancer],
    &[FrontendKind::ExternalIp, FrontendKind::NodePort],
];

/// S-14 to S-19, S-31: the frontends of each Service, on every node.
fn expected(model: &ClusterModel) -> BTreeSet<Answer> {
    let proxy_name = model.settings().service_proxy_name;
    let mut services: Vec<_> = model
        .services()
        .filter(|s| is_ours(s, &proxy_name))
        .collect();
    services.sort_by_key(|service| (service.created.unwrap_or(i64::MAX), service.id.clone()));
    let mut taken: BTreeMap<Place, ServiceId> = BTreeMap::new();
    let mut answers: BTreeSet<Answer> = BTreeSet::new();
    for (class, kinds) in CLASSES.iter().enumerate() {
        for service in &services {
            if let Some(port) = service.health_port().filter(|_| class == 2) {
                taken
                    .entry((None, port, Protocol::Tcp))
                    .or_insert(service.id.clone());
            }
            for (at, frontend) in wishes(model, service) {
                if !kinds.contains(&frontend.kind) {
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
                let is_taken = is_api_server(model, place)
                    || is_of_the_node_itself(model, frontend.kind, place);
                let free = class == 0 || frontend.address.is_none_or(|a| served(a) && !is_taken);
                if has_it && free {
                    answers.insert((service.id.clone(), at, frontend));
                }
            }
        }
    }
    answers
        .into_iter()
        .map(|(id, at, frontend)| {
            let service = services.iter().find(|service| service.id == id);
            let kind = guarded_kind(service.unwrap(), &frontend);
            (id, at, Frontend { kind, ..frontend })
        })
        .collect()
}

/// S-86: if the load balancer address is the cluster IP, source ranges protect both.
fn guarded_kind(service: &Service, frontend: &Frontend) -> FrontendKind {
    let is_balancers = service.external.as_ref().is_some_and(|external| {
        let guarded = external.policy == Policy::Local || external.source_ranges.is_some();
        let address = frontend.address;
        guarded && address.is_some_and(|address| external.balancer_ips.contains(&address))
    });
    match frontend.kind {
        FrontendKind::ClusterIp if is_balancers => FrontendKind::LoadBalancer,
        kind => kind,
    }
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
                // A node port with the number of the port itself may exist beside the node's address.
                let protocol = planner.model().service(id).unwrap().ports[*at].protocol;
                let place = (frontend.address, frontend.port, protocol);
                prop_assert_eq!(owners.insert(place, (id, at)), None, "two owners of {:?}", place);
            }
            prop_assert_eq!(&found, &expected(planner.model()), "on {}", node.name);
        }
    }
}
