//! Services that a change of another object affects: after the change they are planned as from scratch.
//!
//! The laws check the same for random histories, where some changes rarely affect anything.

use crate::build::Cluster;
use portolan_planner::Planner;
use portolan_planner::model::{Event, ObjectChange, SliceId};
use std::net::IpAddr;

/// `after` holds all objects of `before`, changed or not, and perhaps more.
fn follows(before: &str, after: &str) {
    let events = |text: &str| {
        let cluster: Cluster = serde_saphyr::from_str(text).expect("a cluster");
        cluster.events()
    };
    let mut planner = Planner::default();
    planner.apply(events(before));
    let old = planner.services().clone();
    planner.apply(events(after));
    let mut fresh = Planner::default();
    fresh.apply(events(after));
    assert_ne!(
        &old,
        fresh.services(),
        "the change makes no difference at all"
    );
    assert_eq!(planner.services(), fresh.services());
}

#[test]
fn the_name_in_the_settings_decides_about_services_that_are_there_already() {
    // S-2.
    let services = "services:
    - {id: shop/mine, ips: [10.96.0.1], ports: [80/TCP], proxy_name: portolan}
    - {id: shop/plain, ips: [10.96.0.2], ports: [80/TCP]}";
    let named = format!("settings: {{service_proxy_name: portolan}}\n{services}");
    follows(services, &named);
    follows(&named, services);
}

#[test]
fn ranges_in_the_settings_decide_about_external_ips_that_are_there_already() {
    // S-16.
    let service = "services:
    - {id: shop/web, ips: [10.96.0.1], ports: [80/TCP], external: {ips: [203.0.113.1]}}";
    let limited = format!("settings: {{allowed: [192.0.2.0/24]}}\n{service}");
    follows(service, &limited);
    follows(&limited, service);
}

#[test]
fn a_node_port_comes_before_an_external_ip_that_was_there_already() {
    // S-25, S-31.
    let external = "nodes: [{name: a, addresses: [192.168.1.1]}]
services:
    - {id: shop/web, ips: [10.96.0.1], ports: [30080/TCP], external: {ips: [192.168.1.1]}}
    - {id: shop/other, ips: [10.96.0.2], ports: [80/TCP]";
    let without = format!("{external}}}");
    let with = format!("{external}, node_ports: {{\"\": 30080}}}}");
    follows(&without, &with);
    follows(&with, &without);
}

#[test]
fn an_api_server_that_moves_takes_its_address_from_services_that_were_there_already() {
    // S-17.
    let cluster = |address: &str| {
        format!(
            "services:
    - {{id: shop/web, ips: [10.96.0.1], ports: [6443/TCP], external: {{balancer: [203.0.113.1]}}}}
slices:
    - id: default/kubernetes
      service: kubernetes
      ports: [https 6443/TCP]
      endpoints: [{{address: {address}}}]"
        )
    };
    follows(&cluster("192.168.1.1"), &cluster("203.0.113.1"));
    follows(&cluster("203.0.113.1"), &cluster("192.168.1.1"));
}

#[test]
fn an_api_server_that_changes_its_port_takes_it_from_services_that_were_there_already() {
    // S-18.
    let cluster = |port: u16| {
        format!(
            "services:
    - {{id: shop/web, ips: [10.96.0.1], ports: [6443/TCP], external: {{balancer: [203.0.113.1]}}}}
slices:
    - id: default/kubernetes
      service: kubernetes
      ports: [https {port}/TCP]
      endpoints: [{{address: 203.0.113.1}}]"
        )
    };
    follows(&cluster(8443), &cluster(6443));
    follows(&cluster(6443), &cluster(8443));
}

#[test]
fn a_node_that_gets_an_address_keeps_its_kubelet_from_services_that_were_there_already() {
    // S-25.
    let service = "services:
    - {id: shop/web, ips: [10.96.0.1], ports: [10250/TCP], external: {ips: [192.168.1.9]}}";
    let node =
        |addresses: &str| format!("nodes: [{{name: a, addresses: [{addresses}]}}]\n{service}");
    follows(&node("192.168.1.1"), &node("192.168.1.1, 192.168.1.9"));
    follows(&node("192.168.1.9"), &node("192.168.1.1"));
}

#[test]
fn a_change_of_exclude_cidrs_warns_about_existing_services() {
    // S-236.
    let service = "services: [{id: shop/web, ips: [10.96.0.1], ports: [80/TCP]}]";
    let excluded = format!("settings: {{excluded: [10.96.0.0/24]}}\n{service}");
    follows(service, &excluded);
    follows(&excluded, service);
}

#[test]
fn an_endpoint_decides_about_an_external_ip_that_is_there_already() {
    // S-215.
    let service = "services:
    - {id: shop/web, ips: [10.96.0.1], ports: [80/TCP], external: {ips: [10.244.1.9]}}";
    let pod = format!(
        "slices: [{{id: bank/vault-1, service: vault, ports: [443/TCP], endpoints: [{{address: 10.244.1.9}}]}}]\n{service}"
    );
    follows(service, &pod);
}

/// S-115: agents use this when they drain; no plan contains it.
#[test]
fn an_address_has_an_endpoint_as_long_as_some_slice_and_its_node_are_there() {
    let at = IpAddr::from([10, 244, 1, 5]);
    let slice = |name: &str| {
        let text = format!(
            "slices: [{{id: shop/{name}, service: web, ports: [8080/TCP], endpoints: [{{address: {at}, node: a, ready: false, serving: false}}]}}]"
        );
        let cluster: Cluster = serde_saphyr::from_str(&text).expect("a cluster");
        cluster.events()
    };
    let gone = |name: &str| {
        let id = SliceId {
            namespace: "shop".into(),
            name: name.into(),
        };
        vec![Event::EndpointSlice(ObjectChange::Remove(id))]
    };
    let node = |text: &str| {
        let cluster: Cluster = serde_saphyr::from_str(text).expect("a cluster");
        cluster.events()
    };
    let mut planner = Planner::default();
    let mut resident = |events| planner.apply(events).residents.get(&at).copied();
    assert_eq!(
        resident(slice("web-x")),
        Some(false),
        "its node is not there"
    );
    assert_eq!(resident(node("nodes: [{name: a}]")), Some(true));
    assert_eq!(resident(node("nodes: [{name: b}]")), None);
    assert_eq!(resident(slice("web-y")), Some(true));
    assert_eq!(resident(gone("web-x")), Some(true));
    assert_eq!(resident(slice("web-y")), None, "nothing happened");
    let removed = Event::Node(ObjectChange::Remove("a".into()));
    assert_eq!(resident(vec![removed]), Some(false));
    assert_eq!(resident(node("nodes: [{name: a}]")), Some(true));
    assert_eq!(resident(gone("web-y")), Some(false));
}
