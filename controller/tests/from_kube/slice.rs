//! EndpointSlices.

use portolan_controller::manifests::{FileContents, Found};
use portolan_planner::model::EndpointSlice;

use crate::{found, read, refused};

fn read_slice(labels: &str, rest: &str) -> FileContents {
    let metadata = format!("name: web-1, namespace: shop, generation: 7, labels: {{{labels}}}");
    read(
        "EndpointSlice\napiVersion: discovery.k8s.io/v1",
        &metadata,
        rest,
    )
}

fn slice(rest: &str) -> EndpointSlice {
    match found(&read_slice("kubernetes.io/service-name: web", rest)) {
        Found::EndpointSlice(slice) => slice,
        other => panic!("{other:?}"),
    }
}

fn endpoints(endpoints: &str) -> String {
    format!("addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{endpoints}]\n")
}

#[test]
fn an_endpoint_without_conditions_is_ready_and_serving() {
    // S-40, S-52
    let slice = slice(&endpoints(
        "{addresses: [10.0.0.1, 10.0.0.2]}, \
         {addresses: [10.0.0.3], nodeName: n1, zone: z1, conditions: {ready: false, serving: false, terminating: true}}",
    ));
    assert_eq!(
        (slice.generation, slice.service_id().unwrap().to_string()),
        (7, "shop/web".into())
    );
    let [first, second] = &slice.endpoints[..] else {
        panic!("{:?}", slice.endpoints)
    };
    assert_eq!(first.address.to_string(), "10.0.0.1");
    assert_eq!(
        (first.ready, first.serving, first.terminating),
        (true, true, false)
    );
    assert_eq!(
        (second.ready, second.serving, second.terminating),
        (false, false, true)
    );
    assert_eq!(
        (second.node.as_deref(), second.zone.as_deref()),
        (Some("n1"), Some("z1"))
    );
}

#[test]
fn ports_and_endpoints_that_say_nothing_are_passed_over() {
    // S-9
    let slice = slice(
        "addressType: IPv4\nports: [{port: 1}, {name: a}, {name: b, port: 0}, {name: '', port: 2}]\n\
         endpoints: [{addresses: []}, {addresses: [10.0.0.1]}]\n",
    );
    assert_eq!(slice.ports.len(), 1);
    assert_eq!((&*slice.ports[0].name, slice.ports[0].port), ("", 2));
    assert_eq!((slice.endpoints.len(), slice.ignored.len()), (1, 4));
    let all_ports = self::slice("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\n");
    assert_eq!((all_ports.ports.len(), all_ports.ignored.len()), (0, 1));
}

#[test]
fn slices_of_names_and_of_headless_services_are_kept_without_endpoints() {
    // S-53, S-3
    let names =
        slice("addressType: FQDN\nports: []\nendpoints: [{addresses: [web.example.org]}]\n");
    assert_eq!(names.endpoints, []);
    let labels = "kubernetes.io/service-name: web, service.kubernetes.io/headless: ''";
    let Found::EndpointSlice(headless) =
        found(&read_slice(labels, &endpoints("{addresses: [10.0.0.1]}")))
    else {
        panic!("no slice")
    };
    assert_eq!(headless.endpoints, []);
}

#[test]
fn a_slice_with_a_value_that_makes_no_sense_is_refused() {
    let refused = |rest: &str| refused(&read_slice("kubernetes.io/service-name: web", rest));
    let of = |more: &str| refused(&endpoints(more));
    assert!(
        of("{addresses: [x]}").starts_with("endpoints[0].addresses[0]: \"x\" is no IP address")
    );
    assert!(of("{addresses: ['fd00::1']}").contains("fd00::1 is IPv6, addressType says IPv4"));
    assert!(of("{addresses: [10.0.0.1], nodeName: a/b}").starts_with("endpoints[0].nodeName"));
    assert!(of("{addresses: [10.0.0.1], zone: a/b}").starts_with("endpoints[0].zone"));
    let zone = "z".repeat(64);
    assert!(
        of(&format!("{{addresses: [10.0.0.1], zone: {zone}}}")).starts_with("endpoints[0].zone")
    );
    assert!(refused("addressType: IPv5\nports: []\n").contains("write IPv4 or IPv6"));
    assert!(
        refused("addressType: IPv4\nports: [{name: a, port: 65536}]\n")
            .starts_with("ports[0].port")
    );
    assert!(
        refused("addressType: IPv4\nports: [{name: a, port: 1, protocol: ICMP}]\n")
            .starts_with("ports[0].protocol")
    );
}

/// As the controller of Kubernetes writes it for a Service without pods.
#[test]
fn a_slice_of_nobody_is_no_reason_for_a_warning() {
    let slice = slice("addressType: IPv4\nports: null\nendpoints: null\n");
    assert_eq!((slice.endpoints.len(), slice.ignored.len()), (0, 0));
}
