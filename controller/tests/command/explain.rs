//! `portolan-controller explain`: the output for a person who searches for a cause.

use std::fmt::Write as _;

use insta::assert_snapshot;
use portolan_controller::output::explain::ExplanationDocument;

use crate::program::{NODE, SERVICE, folder, transcript};

const CLUSTER: &str = include_str!("../example/explain.yaml");

fn explain_in(cluster: &str, arguments: &[&str]) -> String {
    let folder = folder(&[("cluster.yaml", cluster)]);
    let all = [&["explain", "--manifests", "manifests"], arguments].concat();
    transcript(folder.path(), &all, "")
}

/// Arguments for a Service on a node.
fn explain(node: &str, service: &str) -> String {
    explain_in(CLUSTER, &["--node", node, "--service", service])
}

fn explain_from(node: &str, service: &str, from: &str) -> String {
    let arguments = ["--node", node, "--service", service, "--from", from];
    explain_in(CLUSTER, &arguments)
}

fn output(transcript: &str) -> &str {
    transcript.split_once("--- output\n").unwrap().1
}

/// S-57, S-59.
#[test]
fn zone_hints_in_force() {
    assert_snapshot!(explain("node-a", "shop/search"));
}

/// S-60.
#[test]
fn hints_do_not_help_a_node_without_a_zone() {
    assert_snapshot!(explain("node-d", "shop/search"));
}

/// S-57.
#[test]
fn hints_that_one_endpoint_spoils() {
    assert_snapshot!(explain("node-a", "shop/suggest"));
}

/// S-25, S-66, S-86.
#[test]
fn external_policy_local_with_endpoints_of_its_own() {
    assert_snapshot!(explain("node-b", "shop/cart"));
}

/// S-22, S-44, S-67.
#[test]
fn external_policy_local_without_endpoints_of_its_own() {
    assert_snapshot!(explain("node-c", "shop/cart:http"));
}

/// S-43.
#[test]
fn internal_policy_local_falls_back_to_endpoints_that_end() {
    assert_snapshot!(explain("node-a", "shop/cache"));
}

/// S-23, S-64.
#[test]
fn internal_policy_local_without_endpoints_refuses() {
    assert_snapshot!(explain("node-c", "shop/cache:6379"));
}

/// S-42.
#[test]
fn when_nothing_is_ready_endpoints_that_end_serve() {
    assert_snapshot!(explain("node-a", "shop/report"));
}

/// S-7, S-10, S-14, S-51.
#[test]
fn an_address_of_an_older_service_and_slices_of_no_use() {
    assert_snapshot!(explain("node-a", "shop/squatter"));
}

/// S-21.
#[test]
fn a_service_without_any_slice() {
    assert_snapshot!(explain("node-a", "shop/empty:53/UDP"));
}

/// S-1, S-2: the output states why the Service is not served.
#[test]
fn services_of_other_proxies() {
    let texts = ["shop/mesh", "shop/headless", "shop/elsewhere"].map(|service| {
        let text = explain("node-a", service);
        assert!(text.starts_with("exit code 0\n"), "{text}");
        output(&text).to_owned()
    });
    assert_snapshot!(texts.concat());
}

#[test]
fn a_service_that_cannot_be_read_is_named_with_its_field() {
    let broken = "apiVersion: v1\nkind: Service\nmetadata: {name: broken, namespace: shop}\n\
                  spec: {clusterIP: 10.96.0.300, ports: [{port: 80}]}\n";
    let cluster = format!("{NODE}---\n{SERVICE}---\n{broken}");
    let arguments = ["--node", "node-a", "--service", "shop/broken"];
    assert_snapshot!(explain_in(&cluster, &arguments));
}

/// S-66, S-73, S-75, S-86, S-90: the output depends on the client.
#[test]
fn every_kind_of_client() {
    let clients = [
        "10.244.3.7",
        "10.244.1.31",
        "192.168.50.12",
        "192.168.50.13",
        "203.0.113.50",
        "outside",
        "node",
    ];
    let mut text = String::new();
    for client in clients {
        let shown = explain_from("node-c", "shop/cart", client);
        let shown = output(&shown).lines().filter(|line| {
            let wanted = ["  from", "this client", "dropped at", "IPv4"];
            wanted.iter().any(|word| line.contains(word))
        });
        writeln!(text, "--from {client}").unwrap();
        shown.for_each(|line| writeln!(text, "{line}").unwrap());
    }
    assert_snapshot!(text);
}

/// S-7.
#[test]
fn a_client_of_a_family_that_the_service_lacks_finds_nothing() {
    let shown = explain_from("node-a", "shop/search", "fd00:10:244:1::7");
    let nothing = "this client    nothing: it is IPv6, and the port has no IPv6 address";
    assert!(output(&shown).contains(nothing), "{shown}");
    assert!(!output(&shown).contains("IPv4 ClusterIP:"), "{shown}");
}

/// S-74.
#[test]
fn a_pod_that_reaches_itself_is_masqueraded() {
    let shown = explain_from("node-a", "shop/cart", "10.244.1.31");
    assert!(output(&shown).contains("masqueraded to itself"), "{shown}");
    let other = explain_from("node-a", "shop/cart", "10.244.1.99");
    assert!(!output(&other).contains("to itself"), "{other}");
}

/// S-204: the rules treat a pod outside of its node's pod ranges as an external client.
#[test]
fn a_pod_that_the_node_treats_as_an_external_client() {
    let cluster = CLUSTER.replace(
        "podCIDRs: [\"10.244.1.0/24\", \"fd00:10:244:1::/64\"]",
        "podCIDRs: [\"10.9.0.0/24\"]",
    );
    let arguments = [
        "--node",
        "node-a",
        "--service",
        "shop/search",
        "--from",
        "10.244.1.21",
    ];
    assert_snapshot!(explain_in(&cluster, &arguments));
}

/// S-75.
#[test]
fn settings_that_masquerade_all_clients_are_named() {
    let config = "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {name: default}\n\
                  spec: {settings: {masquerade: {all: true}}}\n";
    let cluster = format!("{CLUSTER}---\n{config}");
    let arguments = [
        "--node",
        "node-a",
        "--service",
        "shop/search",
        "--from",
        "10.244.1.99",
    ];
    let shown = explain_in(&cluster, &arguments);
    assert!(
        output(&shown).contains("this client: served, masqueraded (the setting masquerade.all)"),
        "{shown}"
    );
}

/// Equal nodes are counted, for any number of them.
#[test]
fn many_nodes_are_a_few_lines() {
    let mut cluster = CLUSTER.to_owned();
    for number in 1..=60 {
        let zone = number % 3 + 1;
        write!(
            cluster,
            "---\n{{apiVersion: v1, kind: Node, metadata: {{name: worker-{number:02}, labels: {{topology.kubernetes.io/zone: zone-{zone}}}}}}}\n"
        )
        .unwrap();
    }
    let of = |service: &str| {
        let shown = explain_in(&cluster, &["--node", "node-a", "--service", service]);
        let shown = output(&shown)
            .lines()
            .skip_while(|line| !line.contains("other nodes"));
        shown.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_snapshot!(of("shop/search") + &of("shop/cart"));
}

#[test]
fn json_and_yaml_say_the_same_and_are_read_back() {
    let of = |format| {
        let arguments = ["--node", "node-c", "--service", "shop/cart", "-o", format];
        explain_in(CLUSTER, &arguments)
    };
    let json = of("json");
    let read: ExplanationDocument = serde_json::from_str(output(&json)).unwrap();
    let yaml: ExplanationDocument = serde_saphyr::from_str(output(&of("yaml"))).unwrap();
    assert_eq!(read, yaml);
    assert_snapshot!(json);
}

#[test]
fn a_missing_object_is_named_with_existing_ones() {
    let cases = [
        ("node-x", "shop/cart"),
        ("node-a", "shop/crat"),
        ("node-a", "test/cart"),
        ("node-a", "payment/ledger"),
        ("node-a", "shop/empty:dsn"),
        ("node-a", "shop/empty:53/SCTP"),
        ("node-a", "cart"),
        ("node-a", "shop/cart:"),
    ];
    let mut text = String::new();
    for (node, service) in cases {
        let shown = explain(node, service);
        assert!(shown.starts_with("exit code 2\n"), "{shown}");
        writeln!(text, "--node {node} --service {service}").unwrap();
        let messages = shown.split("--- messages\n").nth(1).unwrap();
        let messages = messages.split("\n--- output").next().unwrap();
        writeln!(text, "{messages}").unwrap();
    }
    let from = explain_from("node-a", "shop/cart", "somewhere");
    assert!(from.starts_with("exit code 2\n"), "{from}");
    assert!(
        from.contains("expected the IP address of a pod, outside, or node"),
        "{from}"
    );
    assert_snapshot!(text);
}

/// Overlong lines would be wrapped by the terminal.
#[test]
fn lines_are_at_most_a_hundred_columns_wide() {
    let services = [
        "search", "suggest", "cart", "cache", "report", "squatter", "empty", "mesh",
    ];
    for node in ["node-a", "node-b", "node-c", "node-d"] {
        for service in services {
            let shown = explain(node, &format!("shop/{service}"));
            let wide = output(&shown)
                .lines()
                .find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{node} {service}");
        }
    }
}
