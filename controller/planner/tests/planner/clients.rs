//! Explained treatment of clients, under every mode of local detection (S-66 to S-78).

use std::net::IpAddr;

use crate::build::Cluster;
use portolan_plan::{LocalDetection, ServiceId, Settings};
use portolan_planner::Planner;
use portolan_planner::explain::{
    Client, Group, GroupExplanation, Kept, Masqueraded, Origin, Reach, SourceAddress,
};
use portolan_planner::model::ProxyConfig;

/// One endpoint on node `n1`; a Service with external policy Cluster and one with Local.
const CLUSTER: &str = r#"
services:
- {id: shop/cluster, ips: [10.96.0.1, "fd00::1"], ports: [80/TCP], node_ports: {"": 30080}, external: {}}
- {id: shop/local, ips: [10.96.0.2], ports: [80/TCP], node_ports: {"": 30081}, external: {policy: Local}}
slices:
- {id: shop/cluster-1, service: cluster, ports: [8080/TCP], endpoints: [{address: 10.244.1.5, node: n1}]}
- {id: shop/cluster-2, service: cluster, ports: [8080/TCP], endpoints: [{address: "fd00:244::5", node: n1}]}
- {id: shop/local-1, service: local, ports: [8080/TCP], endpoints: [{address: 10.244.1.5, node: n1}]}
nodes:
- {name: n1, addresses: [192.168.0.1], pods: [10.244.1.0/24]}
- {name: n2, addresses: [192.168.0.2], pods: [10.244.2.0/24]}
"#;

fn planner(settings: Settings) -> Planner {
    let cluster: Cluster = serde_saphyr::from_str(CLUSTER).unwrap();
    let mut planner = Planner::default();
    planner.apply(cluster.events());
    planner.apply([ProxyConfig::of(settings).into()]);
    planner
}

fn with(local_detection: LocalDetection) -> Settings {
    Settings {
        local_detection,
        ..Settings::default()
    }
}

fn all_pods() -> LocalDetection {
    LocalDetection::ClusterCidr {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
    }
}

fn bridge() -> LocalDetection {
    LocalDetection::BridgeInterface {
        bridge: "cbr0".into(),
    }
}

/// The lists of a Service's only port.
fn lists(planner: &Planner, node: &str, service: &str) -> Vec<GroupExplanation> {
    let id = ServiceId::new("shop", service);
    let served = planner.explain(node, &id).unwrap().outcome.unwrap();
    served.ports[0].groups.clone()
}

/// The treatment of pods, other nodes' pods, the node and others: `keep` or `masq` with the reason, `drop`.
fn met(planner: &Planner, node: &str, service: &str, group: Group, six: bool) -> [String; 4] {
    let lists = lists(planner, node, service);
    let is_wanted = |list: &&GroupExplanation| {
        list.group == group && (list.family == portolan_plan::Family::Ipv6) == six
    };
    let list = lists.iter().find(is_wanted).unwrap();
    Client::ALL.map(|client| {
        let treatment = list.clients.iter().find(|t| t.client == client).unwrap();
        match (treatment.reach, treatment.source) {
            (Reach::Served, Some(SourceAddress::Kept(why))) => format!("keep {}", why.code()),
            (Reach::Served, Some(SourceAddress::Masqueraded(why))) => {
                format!("masq {}", why.code())
            }
            (Reach::Refused, None) => "refused".into(),
            (Reach::Dropped, None) => "drop".into(),
            other => panic!("{other:?}"),
        }
    })
}

/// S-73, S-75: in the order pods, other nodes' pods, the node, others.
#[test]
fn cluster_ips_keep_the_addresses_of_pods_only() {
    let cases = [
        (
            LocalDetection::NodeCidr,
            ["keep Pod", "masq NotAPod", "masq Node", "masq NotAPod"],
        ),
        (
            all_pods(),
            ["keep Pod", "keep ClusterRange", "masq Node", "masq NotAPod"],
        ),
        (
            bridge(),
            ["keep Pod", "masq NotAPod", "masq Node", "masq NotAPod"],
        ),
    ];
    for (detection, expected) in cases {
        let planner = planner(with(detection.clone()));
        let found = met(&planner, "n1", "cluster", Group::Internal, false);
        assert_eq!(found, expected, "{detection:?}");
    }
}

/// S-77: a client that is not a pod of this node may be answered by an endpoint on any node.
#[test]
fn other_addresses_of_policy_cluster_masquerade_all_but_pods_of_this_node() {
    let others = ["masq PolicyCluster", "masq Node", "masq PolicyCluster"];
    let cases = [
        (LocalDetection::NodeCidr, "keep Pod"),
        // Its range contains all pods, so it cannot distinguish those of the node.
        (all_pods(), "masq ClusterRange"),
        (bridge(), "keep Pod"),
    ];
    for (detection, pods) in cases {
        let planner = planner(with(detection.clone()));
        let [first, rest @ ..] = met(&planner, "n1", "cluster", Group::External, false);
        assert_eq!(first, pods, "{detection:?}");
        assert_eq!(rest, others, "{detection:?}");
    }
}

/// S-66, S-78; S-22 and S-67 on the node without endpoints.
#[test]
fn policy_local_keeps_addresses_and_drops_external_clients_where_there_is_no_endpoint() {
    let cases = [
        (LocalDetection::NodeCidr, "drop"),
        (all_pods(), "keep PolicyLocal"),
        (bridge(), "drop"),
    ];
    for (detection, other_pods) in cases {
        let planner = planner(with(detection.clone()));
        let kept = "keep PolicyLocal";
        let here = met(&planner, "n1", "local", Group::External, false);
        assert_eq!(here, [kept, kept, "masq Node", kept], "{detection:?}");
        let elsewhere = met(&planner, "n2", "local", Group::External, false);
        assert_eq!(
            elsewhere,
            [kept, other_pods, "masq Node", "drop"],
            "{detection:?}"
        );
    }
}

/// S-70: if pods cannot be recognized, no client is dropped as external, and all are masqueraded.
#[test]
fn a_family_without_a_range_of_pods_knows_no_pods() {
    for detection in [LocalDetection::NodeCidr, all_pods()] {
        let planner = planner(with(detection));
        let internal = met(&planner, "n1", "cluster", Group::Internal, true);
        let unknown = "masq NoRangeOfPods";
        assert_eq!(internal, [unknown, unknown, "masq Node", unknown]);
        let external = met(&planner, "n1", "cluster", Group::External, true);
        let others = "masq PolicyCluster";
        assert_eq!(external, [unknown, others, "masq Node", others]);
    }
}

#[test]
fn if_pods_cannot_be_recognized_no_client_is_dropped() {
    let far: LocalDetection = LocalDetection::ClusterCidr {
        cluster_cidrs: vec!["fd00:244::/32".parse().unwrap()],
    };
    let planner = planner(with(far));
    let kept = "keep PolicyLocal";
    let found = met(&planner, "n2", "local", Group::External, false);
    assert_eq!(found, [kept, kept, "masq Node", kept]);
}

/// S-75.
#[test]
fn masquerade_all_masquerades_pods_to_cluster_ips_and_nowhere_else() {
    let mut settings = Settings::default();
    settings.masquerade.all = true;
    let planner = planner(settings);
    let all = "masq MasqueradeAll";
    let internal = met(&planner, "n1", "cluster", Group::Internal, false);
    assert_eq!(internal, [all, all, "masq Node", all]);
    let external = met(&planner, "n1", "cluster", Group::External, false);
    assert_eq!(external[0], "keep Pod");
    assert_eq!(Masqueraded::All.to_string(), "the setting masquerade.all");
    assert_eq!(Kept::Pod.to_string(), "replies pass this node");
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_address_is_found_at_nodes_then_endpoints_then_ranges_of_pods() {
    use Client::{Node, OtherPod, Outside, Pod};
    let planner = planner(Settings::default());
    let cases = [
        ("192.168.0.1", Node),
        ("192.168.0.2", Outside),
        ("10.244.1.5", Pod),
        ("10.244.1.77", Pod),
        ("10.244.2.77", OtherPod),
        ("203.0.113.1", Outside),
        // By its endpoint; no pod range of the node contains it.
        ("fd00:244::5", Pod),
    ];
    for (text, expected) in cases {
        let found = planner.locate(address(text), "n1").unwrap();
        assert_eq!(found.client, expected, "{text}: {found:?}");
    }
    assert_eq!(planner.locate(address("10.244.1.5"), "nowhere"), None);
    let endpoint = planner.locate(address("10.244.1.5"), "n2").unwrap();
    assert!(
        matches!(endpoint.origin, Origin::Endpoint { .. }),
        "{endpoint:?}"
    );
    let range = planner.locate(address("10.244.1.77"), "n2").unwrap();
    assert!(matches!(range.origin, Origin::PodRange { .. }), "{range:?}");
}

/// S-204: rules use ranges, independent of endpoints.
#[test]
fn a_pod_outside_all_ranges_is_treated_as_external() {
    use Client::{Node, OtherPod, Outside, Pod};
    let cases = [
        (LocalDetection::NodeCidr, "fd00:244::5", Outside),
        (LocalDetection::NodeCidr, "10.244.1.5", Pod),
        (LocalDetection::NodeCidr, "10.244.2.77", OtherPod),
        (all_pods(), "fd00:244::5", Outside),
        (all_pods(), "10.244.1.5", Pod),
        (all_pods(), "10.244.2.77", OtherPod),
        (all_pods(), "10.244.9.9", OtherPod),
        (bridge(), "fd00:244::5", Pod),
        (bridge(), "203.0.113.1", Outside),
        (all_pods(), "192.168.0.1", Node),
    ];
    for (detection, text, expected) in cases {
        let planner = planner(with(detection.clone()));
        let found = planner.locate(address(text), "n1").unwrap();
        assert_eq!(found.taken_for, expected, "{text} under {detection:?}");
    }
}
