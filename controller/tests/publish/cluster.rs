//! Builders for a cluster's objects, and the state after reading them.

use portolan_controller::cluster_state::{ClusterState, Shared};
use portolan_controller::manifests::FileContents;
use portolan_planner::Update;
use portolan_planner::model::Event;
use portolan_planner::model::ObjectId;

/// The events of the objects in a YAML text; nothing in it may be left out.
pub(crate) fn events(yaml: &str) -> Vec<Event> {
    let contents = FileContents::read("test", yaml);
    assert!(contents.left_out.is_empty(), "{:?}", contents.problems);
    let objects = contents.objects.iter();
    objects.map(|(_, found)| found.present()).collect()
}

/// The state of a cluster with these objects.
pub(crate) fn known(yaml: &str) -> ClusterState {
    let mut known = ClusterState::default();
    known.planner.apply(events(yaml));
    known
}

/// Applies new or changed objects.
pub(crate) fn take_in(shared: &Shared, yaml: &str) -> Update {
    shared.write().planner.apply(events(yaml))
}

/// Removes objects.
pub(crate) fn take_out(shared: &Shared, ids: impl IntoIterator<Item = ObjectId>) -> Update {
    let events: Vec<_> = ids.into_iter().map(|id| id.removed()).collect();
    shared.write().planner.apply(events)
}

/// A Node in a zone.
pub(crate) fn node(name: &str, zone: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: \
         {{topology.kubernetes.io/zone: {zone}}}}}, status: {{addresses: \
         [{{type: InternalIP, address: 192.168.0.1}}]}}}}\n"
    )
}

/// A Service; `policy` is its internal traffic policy.
pub(crate) fn service(name: &str, address: &str, policy: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Service, metadata: {{namespace: shop, name: {name}}}, spec: \
         {{clusterIP: {address}, clusterIPs: [{address}], internalTrafficPolicy: {policy}, ports: \
         [{{name: http, port: 80, protocol: TCP}}]}}}}\n"
    )
}

/// A slice of a Service: endpoints as `address node` or `address node zone`, the zone by a hint.
pub(crate) fn slice(service: &str, endpoints: &[&str]) -> String {
    let endpoint = |text: &&str| {
        let words: Vec<_> = text.split(' ').collect();
        let hints = words.get(2).map_or(String::new(), |zone| {
            format!(", hints: {{forZones: [{{name: {zone}}}]}}")
        });
        format!(
            "{{addresses: [{}], nodeName: {}, conditions: {{ready: true}}{hints}}}",
            words[0], words[1]
        )
    };
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    format!(
        "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{namespace: shop, \
         name: {service}-1, labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
         ports: [{{name: http, port: 8080, protocol: TCP}}], endpoints: [{}]}}\n",
        endpoints.join(", ")
    )
}

/// Two zones, three nodes, and a Service of each kind.
pub(crate) fn shop() -> String {
    [
        node("node-a", "zone-1"),
        node("node-b", "zone-2"),
        node("node-c", "zone-1"),
        service("cart", "10.96.0.1", "Cluster"),
        slice("cart", &["10.244.1.1 node-a", "10.244.2.1 node-b"]),
        service("local", "10.96.0.2", "Local"),
        slice("local", &["10.244.1.2 node-a", "10.244.1.3 node-a"]),
        service("near", "10.96.0.3", "Cluster"),
        slice(
            "near",
            &["10.244.1.4 node-a zone-1", "10.244.2.4 node-b zone-2"],
        ),
        service("half", "10.96.0.4", "Cluster"),
        slice("half", &["10.244.1.5 node-a zone-1", "10.244.2.5 node-b"]),
    ]
    .concat()
}
