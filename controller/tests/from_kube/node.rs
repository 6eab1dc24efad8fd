//! Nodes, and names of objects.

use portolan_planner::model::{Node, Object};

use crate::{found, read, refused};

fn node(metadata: &str, rest: &str) -> Node {
    match found(&read(
        "Node\napiVersion: v1",
        &format!("name: n1{metadata}"),
        rest,
    )) {
        Object::Node(node) => node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_has_its_addresses_in_order_and_no_host_names() {
    let text = "status: {addresses: [{type: Hostname, address: n1}, {type: InternalIP, address: 10.0.0.2}, \
                {type: ExternalIP, address: 'fd00::2'}, {type: InternalIP, address: 10.0.0.2}, \
                {type: InternalDNS, address: n1.local}, {type: InternalIP, address: oops}]}\n";
    let node = node("", text);
    let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.2", "fd00::2"]);
    assert_eq!(
        node.ignored.len(),
        1,
        "an address that cannot be read does not take the Node away"
    );
}

/// S-202: such a Node is planned, with a warning about what will not work.
#[test]
fn a_node_without_an_address_is_one_warning() {
    let warnings = |status: &str| {
        let ignored = node("", status).ignored;
        ignored.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let missing = "status.addresses: neither an InternalIP nor an ExternalIP; the node has no address \
                   for node ports and its own connections, check its kubelet and cloud provider";
    assert_eq!(warnings(""), [missing]);
    assert_eq!(
        warnings("status: {addresses: [{type: Hostname, address: n1}]}\n"),
        [missing]
    );
    let external = "status: {addresses: [{type: ExternalIP, address: 203.0.113.6}]}\n";
    assert_eq!(warnings(external), [] as [&str; 0]);
    let broken = warnings("status: {addresses: [{type: InternalIP, address: oops}]}\n");
    assert_eq!(broken.len(), 1, "the reason is reported once: {broken:?}");
}

#[test]
fn zone_ranges_and_end_of_a_node_are_read() {
    let plain = node("", "");
    assert_eq!(
        (plain.zone, plain.deleted, plain.scaled_away),
        (None, false, false)
    );
    // S-60: a label without a value is not a zone
    assert_eq!(
        node(", labels: {topology.kubernetes.io/zone: ''}", "").zone,
        None
    );
    let zoned = node(
        ", labels: {topology.kubernetes.io/zone: z1}",
        "spec: {podCIDR: 10.1.0.0/24}\n",
    );
    assert_eq!(zoned.zone.as_deref(), Some("z1"));
    assert_eq!(zoned.pod_cidrs, ["10.1.0.0/24".parse().unwrap()]);
    // S-149
    assert!(node(", deletionTimestamp: '2026-01-01T00:00:00Z'", "").deleted);
    let taint =
        "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: PreferNoSchedule}]}\n";
    assert!(node("", taint).scaled_away);
    let other = "spec: {taints: [{key: other, effect: NoExecute}]}\n";
    assert!(!node("", other).scaled_away);
}

#[test]
fn an_object_needs_a_name_that_kubernetes_would_take() {
    let contents = read("Node\napiVersion: v1", "labels: {}", "");
    assert!(refused(&contents).starts_with("metadata.name: missing"));
    let contents = read("Node\napiVersion: v1", "name: ../../etc", "");
    assert!(refused(&contents).starts_with("metadata.name: \"../../etc\""));
}

/// S-34: the first address of a family is the primary one, and never an external one if there is an internal one.
#[test]
fn internal_addresses_come_before_external_ones() {
    let node = node(
        "",
        "status: {addresses: [{type: ExternalIP, address: 203.0.113.6}, {type: InternalIP, address: 10.0.0.2}]}\n",
    );
    let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.2", "203.0.113.6"]);
}

/// kubectl prints such a digest without quotes, although it is text.
#[test]
fn a_label_that_looks_like_a_number_too_large_is_text() {
    let node = node(", labels: {git-sha: 12e4567}", "");
    assert_eq!(&*node.name, "n1");
}
