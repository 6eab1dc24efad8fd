//! `portolan-controller plan --diff`, `--without-zone`, `--without-node`: what would change.

use insta::assert_snapshot;
use serde_json::Value;

use crate::program::{NODE, SERVICE, folder, transcript};

const ZONES: &str = include_str!("../example/zones.yaml");

/// The output for the cluster with two zones, optionally compared with a changed one.
fn asked(then: Option<&str>, arguments: &[&str]) -> String {
    let folder = folder(&[("cluster.yaml", ZONES)]);
    let mut all = vec!["plan", "--manifests", "manifests"];
    if let Some(then) = then {
        std::fs::write(folder.path().join("next.yaml"), then).unwrap();
        all.extend(["--diff", "next.yaml"]);
    }
    all.extend(arguments);
    transcript(folder.path(), &all, "")
}

/// The cluster with one text replaced.
fn with(from: &str, to: &str) -> String {
    assert_eq!(ZONES.matches(from).count(), 1, "{from}");
    ZONES.replace(from, to)
}

fn output(transcript: &str) -> &str {
    transcript.split_once("--- output\n").unwrap().1
}

fn json(then: Option<&str>, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["-o", "json"]].concat();
    serde_json::from_str(output(&asked(then, &arguments))).unwrap()
}

#[test]
fn a_service_that_loses_its_last_endpoints_comes_first() {
    let unready = "conditions: {ready: false}, nodeName: node-c, zone: zone-2}";
    let then = ZONES
        .replace(
            "[10.244.3.21], nodeName: node-c, zone: zone-2}",
            &format!("[10.244.3.21], {unready}"),
        )
        .replace(
            "[10.244.3.22], nodeName: node-c, zone: zone-2}",
            &format!("[10.244.3.22], {unready}"),
        )
        .replace(
            "- {addresses: [10.244.1.41], nodeName: node-a, zone: zone-1}\n",
            "",
        );
    assert_snapshot!(asked(Some(&then), &[]));
}

#[test]
fn a_lost_zone() {
    assert_snapshot!(asked(None, &["--without-zone", "zone-2"]));
}

#[test]
fn a_lost_zone_as_json() {
    assert_snapshot!(asked(None, &["--without-zone", "zone-2", "-o", "json"]));
}

#[test]
fn a_lost_node() {
    assert_snapshot!(asked(None, &["--without-node", "node-c"]));
}

#[test]
fn everything_lost() {
    let both = ["--without-zone", "zone-1", "--without-zone", "zone-2"];
    assert_snapshot!(asked(None, &both));
}

#[test]
fn changed_policies_and_the_like() {
    let then = with(
        "  clusterIP: 10.96.0.20\n",
        "  clusterIP: 10.96.0.20\n  internalTrafficPolicy: Local\n  sessionAffinity: ClientIP\n",
    )
    .replace(
        "{name: mail, namespace: shop}",
        "{name: mail, namespace: shop, annotations: {proxy.portolan.dev/scheduler: mh}}",
    )
    .replace("  clusterIP: 10.96.0.40\n", "  clusterIP: 10.96.0.41\n");
    assert_snapshot!(asked(Some(&then), &[]));
}

#[test]
fn services_and_nodes_that_come_go_and_change() {
    let config = "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\n\
        metadata: {name: default}\nspec: {settings: {scheduler: lc, drain: {deadline: 30s}}}\n";
    let new = SERVICE
        .replace("10.96.0.10", "10.96.0.50")
        .replace("cart", "till");
    let then = with(
        "{name: cart, namespace: shop}",
        "{name: basket, namespace: shop}",
    )
    .replace("192.168.50.11", "192.168.60.11")
    .replace(
        "{name: node-b, labels: {topology.kubernetes.io/zone: zone-1}}",
        "{name: node-b, labels: {topology.kubernetes.io/zone: zone-2}}",
    )
    .replace("{name: node-d, ", "{name: node-e, ");
    let then = format!("{then}---\n{new}---\n{NODE}---\n{config}").replace(
        "metadata: {name: node-a}\nstatus: {addresses: [{type: InternalIP, address: 192.168.50.11}]}",
        "metadata: {name: node-f}\nstatus: {addresses: [{type: InternalIP, address: 192.168.50.16}]}",
    );
    assert_snapshot!(asked(Some(&then), &[]));
}

#[test]
fn frontends_for_external_clients() {
    let front = "apiVersion: v1\nkind: Service\nmetadata: {name: front, namespace: shop}\nspec:\n  \
        clusterIP: 10.96.0.60\n  type: LoadBalancer\n  externalTrafficPolicy: Local\n  \
        healthCheckNodePort: 32000\n  ports: [{name: http, port: 80, nodePort: 30080}]\n\
        status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}\n---\n\
        apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
        metadata: {name: front-1, namespace: shop, labels: {kubernetes.io/service-name: front}}\n\
        addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints:\n\
        - {addresses: [10.244.1.61], nodeName: node-a}\n\
        - {addresses: [10.244.3.61], nodeName: node-c}\n";
    let now = format!("{ZONES}---\n{front}");
    let then = now
        .replace("- {addresses: [10.244.3.61], nodeName: node-c}\n", "")
        .replace("healthCheckNodePort: 32000", "healthCheckNodePort: 32001")
        .replace("nodePort: 30080", "nodePort: 30081")
        .replace(
            "  type: Load",
            "  loadBalancerSourceRanges: [198.51.100.0/24]\n  type: Load",
        );
    let folder = folder(&[("cluster.yaml", &now)]);
    std::fs::write(folder.path().join("next.yaml"), then).unwrap();
    let arguments = ["plan", "--manifests", "manifests", "--diff", "next.yaml"];
    assert_snapshot!(transcript(folder.path(), &arguments, ""));
}

#[test]
fn nothing_changed() {
    assert_snapshot!(asked(Some(ZONES), &[]));
    let json = json(Some(ZONES), &[]);
    assert_eq!(json["services"], Value::Array(Vec::new()));
    assert_eq!(json["nodes"], Value::Array(Vec::new()));
}

#[test]
fn differences_for_one_node() {
    let then = with(
        "- {addresses: [10.244.1.41], nodeName: node-a, zone: zone-1}\n",
        "",
    );
    assert_snapshot!(asked(Some(&then), &["--node", "node-a"]));
    let other = json(Some(&then), &["--node", "node-b"]);
    assert_eq!(other["services"], Value::Array(Vec::new()));
    // For one node, only the endpoints that serve it count.
    let web = &json(None, &["--without-zone", "zone-2", "--node", "node-a"])["services"][2];
    assert_eq!(
        (&web["name"], &web["endpoints"][0]["before"]),
        (&"web".into(), &3.into())
    );
    assert_eq!(web["nodes"]["of"], 1);
}

#[test]
fn a_loss_after_a_change_is_one_of_the_changed_cluster() {
    let moved = with(
        "[10.244.3.22], nodeName: node-c, zone: zone-2}",
        "[10.244.1.22], nodeName: node-a}",
    );
    let answer = json(Some(&moved), &["--without-zone", "zone-2"]);
    assert_eq!(answer["summary"]["leftWithNothing"], 0);
    let cart = &answer["services"][1];
    assert_eq!(
        (&cart["name"], &cart["endpoints"][0]["after"]),
        (&"cart".into(), &1.into())
    );
    assert_eq!(
        json(None, &["--without-zone", "zone-2"])["summary"]["leftWithNothing"],
        1
    );
}

#[test]
fn yaml_and_json_say_the_same() {
    let lost = ["--without-node", "node-c"];
    let yaml = asked(None, &[&lost[..], &["-o", "yaml"]].concat());
    let yaml: Value = serde_saphyr::from_str(output(&yaml)).unwrap();
    assert_eq!(yaml, json(None, &lost));
}

#[test]
fn an_unknown_name_is_rejected_with_the_known_ones() {
    let node = |name| asked(None, &["--without-node", name]);
    let folder = folder(&[]);
    let twice = ["plan", "--manifests", "-", "--diff", "-"];
    let answers = [
        asked(None, &["--without-zone", "zone-9"]),
        node("node-x"),
        asked(Some(ZONES), &["--node", "node-x"]),
        transcript(folder.path(), &twice, ZONES),
        asked(None, &[]),
    ];
    assert_snapshot!(answers.join("===\n"));
}

#[test]
fn an_object_of_either_side_that_is_left_out_is_an_exit_code() {
    let broken = with(
        "{name: http, port: 80}]\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: cart-1",
        "{name: http, port: 0}]\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: cart-1",
    );
    let text = asked(Some(&broken), &["-o", "json"]);
    assert!(text.starts_with("exit code 1\n"), "{text}");
    assert!(
        text.contains("next.yaml: document 4") && text.contains("1 object left out"),
        "{text}"
    );
    let answer: Value = serde_json::from_str(output(&text)).unwrap();
    assert_eq!(answer["services"][0]["change"], "Gone");
}
