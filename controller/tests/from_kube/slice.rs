//! EndpointSlices.

use portolan_controller::manifests::FileContents;
use portolan_planner::model::{EndpointSlice, Object};

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
        Object::EndpointSlice(slice) => slice,
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
fn ports_and_endpoints_without_content_are_skipped() {
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
    let Object::EndpointSlice(headless) =
        found(&read_slice(labels, &endpoints("{addresses: [10.0.0.1]}")))
    else {
        panic!("no slice")
    };
    assert_eq!(headless.endpoints, []);
}

/// The messages about a slice.
fn messages(slice: &EndpointSlice) -> Vec<String> {
    slice.ignored.iter().map(ToString::to_string).collect()
}

#[test]
fn an_endpoint_without_a_usable_address_or_node_is_left_out_and_the_others_stay() {
    for (wrong, message) in [
        (
            "{addresses: [x]}",
            "endpoints[1].addresses[0]: \"x\" is not an IP address; write one like 10.96.0.10 or fd00::10; \
             the endpoint is left out",
        ),
        (
            "{addresses: ['fd00::1']}",
            "endpoints[1].addresses[0]: fd00::1 is IPv6, addressType is IPv4; the endpoint is left out",
        ),
        (
            "{addresses: [127.0.0.1]}",
            "endpoints[1].addresses[0]: 127.0.0.1 is loopback, link-local, multicast or unspecified; \
             the endpoint is left out",
        ),
        (
            "{addresses: [10.0.0.2], nodeName: a/b}",
            "endpoints[1].nodeName: \"a/b\" is not 1 to 253 lower-case letters, digits, '-' and '.'; \
             the endpoint is left out",
        ),
    ] {
        let text = format!("{{addresses: [10.0.0.1]}}, {wrong}, {{addresses: [10.0.0.3]}}");
        let slice = slice(&endpoints(&text));
        let left: Vec<_> = slice
            .endpoints
            .iter()
            .map(|e| e.address.to_string())
            .collect();
        assert_eq!(left, ["10.0.0.1", "10.0.0.3"]);
        assert_eq!(messages(&slice), [message]);
    }
}

#[test]
fn an_unusable_zone_or_hint_is_passed_over_and_its_endpoint_stays() {
    // S-56: only the hints count, not their author.
    let good = "{addresses: [10.0.0.1], zone: z1, \
                hints: {forZones: [{name: z1}, {name: z2}], forNodes: [{name: n1}]}}";
    let slice = slice(&endpoints(good));
    assert_eq!(messages(&slice), [] as [&str; 0]);
    let names =
        |names: &[std::sync::Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&slice.endpoints[0].for_zones), ["z1", "z2"]);
    assert_eq!(names(&slice.endpoints[0].for_nodes), ["n1"]);

    let zone = "z".repeat(64);
    let wrong = format!(
        "{{addresses: [10.0.0.1], zone: {zone}, \
         hints: {{forZones: [{{name: a/b}}, {{name: z2}}, {{name: ''}}], forNodes: [{{name: N1}}]}}}}"
    );
    let slice = self::slice(&endpoints(&wrong));
    let [endpoint] = &slice.endpoints[..] else {
        panic!("{slice:?}")
    };
    assert_eq!(endpoint.zone, None);
    assert_eq!(names(&endpoint.for_zones), ["z2"]);
    assert_eq!(endpoint.for_nodes, []);
    let warnings = messages(&slice);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert!(
        warnings[0].starts_with("endpoints[0].zone: \"zzz")
            && warnings[0].ends_with("counts as without a zone")
    );
    assert!(
        warnings[1].starts_with("endpoints[0].hints.forNodes: \"N1\"")
            && warnings[1].ends_with("the hint has no effect")
    );
    assert!(warnings[2].starts_with("endpoints[0].hints.forZones: \"a/b\""));
    assert!(warnings[3].starts_with("endpoints[0].hints.forZones: \"\""));
}

/// Untrusted values must not fill the log and the warnings.
#[test]
fn a_slice_full_of_mistakes_is_reported_in_a_few_lines() {
    let slice = slice(&endpoints(
        &"{addresses: [10.0.0.1], zone: a/b}, ".repeat(1000),
    ));
    assert_eq!(slice.endpoints.len(), 1000);
    let warnings = messages(&slice);
    assert_eq!(warnings.len(), 9);
    assert_eq!(
        warnings[8],
        "endpoints: 992 more values have no effect, for reasons like these"
    );
}

#[test]
fn an_invalid_slice_is_rejected_as_a_whole() {
    let refused = |rest: &str| refused(&read_slice("kubernetes.io/service-name: web", rest));
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

/// As written by the Kubernetes controller for a Service without pods.
#[test]
fn a_slice_without_a_service_is_no_reason_for_a_warning() {
    let slice = slice("addressType: IPv4\nports: null\nendpoints: null\n");
    assert_eq!((slice.endpoints.len(), slice.ignored.len()), (0, 0));
}
