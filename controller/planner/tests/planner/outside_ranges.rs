//! Endpoints outside of the ranges by which their nodes recognize pods (S-70): number and first example.

use portolan_plan::{LocalDetection, Settings};
use portolan_planner::model::ProxyConfig;
use portolan_planner::{OutsideRanges, Planner};

use crate::build::Cluster;

const CLUSTER: &str = "
nodes:
- {name: a, pods: [10.244.1.0/24, 10.244.9.0/24]}
- {name: b, pods: [10.244.2.0/24]}
slices:
- {id: shop/web-1, service: web, ports: [80/TCP], endpoints: [{address: 10.244.1.2, node: a}, {address: 10.244.9.2, node: a}]}
- {id: shop/web-2, service: web, ports: [80/TCP], endpoints: [{address: 10.9.0.2, node: b}, {address: 10.9.0.1, node: b}, {address: 10.244.2.1, node: b}]}
";

fn planner() -> Planner {
    let cluster: Cluster = serde_saphyr::from_str(CLUSTER).unwrap();
    let mut planner = Planner::default();
    planner.apply(cluster.events());
    planner
}

/// The nodes with endpoints outside, with the counts.
fn counts(outside_ranges: &OutsideRanges) -> Vec<(&str, usize, usize)> {
    let nodes = outside_ranges.nodes().iter();
    nodes
        .map(|(name, node)| (&**name, node.outside, node.checked))
        .collect()
}

#[test]
fn a_node_may_have_several_ranges_in_a_family() {
    let outside_ranges = planner().outside_ranges();
    assert_eq!(outside_ranges.checked(), 5);
    assert_eq!(counts(&outside_ranges), [("b", 2, 3)]);
}

#[test]
fn the_warning_names_the_first_endpoint_the_ranges_and_the_next_check() {
    let warning = planner()
        .outside_ranges()
        .warning(&"b".into())
        .unwrap()
        .document();
    assert_eq!(warning.object, "Node b");
    assert_eq!(
        warning.message,
        "2 of 3 endpoints on the node are outside of its pod ranges, 10.244.2.0/24, for example 10.9.0.2 of \
         EndpointSlice shop/web-2: the node treats such pods as external clients and masquerades them at \
         cluster IPs; check its spec.podCIDRs, or spec.settings.localDetection of the ProxyConfig if the \
         network assigns addresses differently"
    );
}

#[test]
fn nodes_that_recognize_pods_by_interfaces_have_none() {
    let mut planner = planner();
    let ways = [
        LocalDetection::BridgeInterface {
            bridge: "cni0".into(),
        },
        LocalDetection::InterfaceNamePrefix {
            prefix: "cali".into(),
        },
    ];
    for local_detection in ways {
        let settings = Settings {
            local_detection,
            ..Settings::default()
        };
        planner.apply([ProxyConfig::of(settings).into()]);
        assert_eq!(planner.outside_ranges(), OutsideRanges::default());
    }
}

#[test]
fn a_node_without_endpoints_outside_has_no_warning() {
    let mut planner = planner();
    let moved = CLUSTER.replace("10.9.0.", "10.244.2.1");
    let cluster: Cluster = serde_saphyr::from_str(&moved).unwrap();
    planner.apply(cluster.events());
    let outside_ranges = planner.outside_ranges();
    assert_eq!(
        (outside_ranges.checked(), outside_ranges.nodes().len()),
        (5, 0)
    );
    assert_eq!(outside_ranges.warning(&"b".into()), None);
}
