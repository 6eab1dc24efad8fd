//! Clusters that users reported to service proxies and load balancers because traffic was served wrongly. The
//! manifests follow the reports; the numbers are those of the issue trackers. Each snapshot of a plan is the right one.

use std::path::Path;

use insta::assert_snapshot;

use crate::program::{folder, transcript};

/// The output of a command about a node.
fn run(name: &str, command: &str, arguments: &[&str]) -> String {
    let path = Path::new("tests/command/reported").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let folder = folder(&[(name, &text)]);
    let arguments = [&[command, "--manifests", "manifests"], arguments].concat();
    transcript(folder.path(), &arguments, "")
}

/// The output of `plan` for a node.
fn plan(name: &str, node: &str) -> String {
    run(name, "plan", &["--node", node])
}

/// The output of `explain` for a Service on a node.
fn explain(name: &str, node: &str, service: &str) -> String {
    run(name, "explain", &["--node", node, "--service", service])
}

/// kubernetes#121556, #114440: of several copies of one endpoint the ready one counts (S-217).
#[test]
fn an_endpoint_that_is_there_twice() {
    assert_snapshot!(plan("dup-notready-before-ready.yaml", "node-a"));
}

/// kubernetes#105987, #118376: of equally usable copies of an endpoint, one that names a node counts. The local
/// frontend serves it to external clients (S-245).
#[test]
fn an_endpoint_with_a_copy_without_a_node() {
    let name = "endpoint-copy-without-node.yaml";
    assert_snapshot!(plan(name, "node-a"));
    assert_snapshot!(explain(name, "node-a", "prod/db"));
}

/// kubernetes#59119, #47221: the first of two ports with one number is served, and so are all others (S-218).
#[test]
fn a_port_that_is_there_twice() {
    assert_snapshot!(plan("duplicate-port-number.yaml", "node-a"));
}

/// kubernetes#66966, #93175, #121272: a tenant's external IP is an endpoint of the API server (S-214, S-215).
#[test]
fn an_external_ip_that_is_the_api_servers() {
    assert_snapshot!(plan("externalip-is-apiserver-other-port.yaml", "node-b"));
}

/// kubernetes#66354, #97073: a pod of one node is served at another node's address under policy Local (S-67).
#[test]
fn an_external_ip_that_is_a_nodes_address() {
    assert_snapshot!(plan("externalip-node-ip-local.yaml", "node-a"));
}

/// kube-vip#741, openelb#384: some Node object still names a balancer's address as its own (S-216).
#[test]
fn a_balancers_address_that_a_node_reports() {
    assert_snapshot!(plan("vip-reported-as-node-address.yaml", "node-b"));
}

/// calico#2720, kops#16340: an unused range of pods holds a balancer's address.
#[test]
fn a_balancers_address_in_an_unused_range_of_pods() {
    assert_snapshot!(plan("lbip-in-unused-podcidr.yaml", "node-a"));
}

/// metallb#775: source ranges and policy Local hold, though the balancer's address is the cluster IP (S-86).
#[test]
fn a_balancers_address_that_is_the_cluster_ip() {
    assert_snapshot!(plan("lbip-equals-clusterip.yaml", "node-a"));
}

/// kubernetes#96879: a Node object has addresses on which no node port can answer (S-34, S-35).
#[test]
fn a_node_with_addresses_of_no_use() {
    assert_snapshot!(plan("node-address-unusable.yaml", "node-a"));
}

/// YAML as kubectl prints it: a line separator inside of a text (S-241).
#[test]
fn an_annotation_with_a_line_separator() {
    assert_snapshot!(plan("line-separator-in-annotation.yaml", "node-a"));
}

/// YAML as kubectl prints it: `oN` and `tRue` are text (S-241).
#[test]
fn texts_that_look_like_booleans() {
    assert_snapshot!(plan("mixed-case-booleans.yaml", "node-b"));
}

/// No control character of a name reaches a terminal (S-241).
#[test]
fn names_with_control_characters() {
    assert_snapshot!(plan("names-with-escapes.yaml", "n1"));
}
