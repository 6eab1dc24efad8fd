//! ProxyPlans as shown to users.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_controller::publish::{
    ConfigJudged, Figures, NodeObjects, SettingsRevision, config_status, proxy_plan_spec,
};
use portolan_crds::{ProxyPlan, limit};
use portolan_planner::model::ObjectId;

use crate::cluster::{known, node, service, shop, slice};
use crate::world::at;
use portolan_controller::cluster_state::ClusterState;

fn objects(known: &ClusterState, slices: bool, node: &str) -> NodeObjects {
    let settings = known.planner.model().settings();
    let revision = SettingsRevision {
        known: Some((5, settings)),
    };
    let figures = Figures::of(&known.planner);
    proxy_plan_spec(known, &figures, &revision, slices, node).unwrap()
}

#[test]
fn a_plan_contains_what_is_specific_to_its_node() {
    let known = known(&shop());
    let plan = ProxyPlan::new("node-a", objects(&known, true, "node-a").plan);
    insta::assert_yaml_snapshot!(plan);
}

#[test]
fn a_plan_of_a_node_that_shares_everything_is_small() {
    let known = known(&shop());
    let plan = ProxyPlan::new("node-c", objects(&known, true, "node-c").plan);
    insta::assert_yaml_snapshot!(plan);
}

#[test]
fn settings_of_another_generation_are_recognised_by_a_hash() {
    let known = known(&shop());
    let figures = Figures::of(&known.planner);
    let mut others = known.planner.model().settings();
    others.scheduler = "sh".into();
    let text = |known_revision| {
        let revision = SettingsRevision {
            known: known_revision,
        };
        let objects = proxy_plan_spec(&known, &figures, &revision, true, "node-a").unwrap();
        objects.plan.settings_revision
    };
    let hash = text(None);
    assert!(hash.starts_with("settings-") && hash.len() == 17, "{hash}");
    assert_eq!(text(Some((7, others))), hash);
    assert_eq!(
        text(Some((7, known.planner.model().settings()))),
        "default-7"
    );
}

#[test]
fn there_is_no_plan_for_a_node_that_is_not_there() {
    let known = known(&shop());
    let figures = Figures::of(&known.planner);
    let revision = SettingsRevision::default();
    assert_eq!(
        proxy_plan_spec(&known, &figures, &revision, true, "node-x"),
        None
    );
}

/// `services` Services with policy Local and `endpoints` endpoints on one node.
fn many_local(services: usize, endpoints: usize) -> ClusterState {
    let mut yaml = node("node-a", "zone-1");
    for number in 0..services {
        let name = format!("web-{number}");
        let address = format!("10.96.{}.{}", number / 250, number % 250 + 1);
        yaml += &service(&name, &address, "Local");
        let endpoints: Vec<_> = (0..endpoints)
            .map(|n| format!("10.{}.{}.{} node-a", number % 200, n / 250, n % 250 + 1))
            .collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        yaml += &slice(&name, &endpoints);
    }
    known(&yaml)
}

#[test]
fn a_plan_that_is_too_large_goes_on_in_slices_of_its_node() {
    let known = many_local(900, 2);
    let NodeObjects { plan, overflow } = objects(&known, true, "node-a");
    assert!(bytes(&plan) < 100_000, "{}", bytes(&plan));
    assert!(overflow.iter().all(|slice| bytes(slice) < 100_000));
    let overflow_status = plan.overflow.clone().unwrap();
    let shown = plan.services.len();
    assert_eq!(
        usize::try_from(overflow_status.services).unwrap(),
        900 - shown
    );
    assert_eq!(
        usize::try_from(overflow_status.slices).unwrap(),
        overflow.len()
    );
    let in_slices: usize = overflow.iter().map(|slice| slice.services.len()).sum();
    assert_eq!(shown + in_slices, 900, "nothing is lost");
    assert!(
        overflow_status.note.contains("node-node-a-0"),
        "{}",
        overflow_status.note
    );

    let without = objects(&known, false, "node-a");
    assert!(without.overflow.is_empty());
    let overflow_status = without.plan.overflow.unwrap();
    assert_eq!(overflow_status.slices, 0);
    assert!(
        overflow_status
            .note
            .contains("kubectl proxyplan show node-a")
    );
}

#[test]
fn a_node_has_only_a_few_slices_of_its_own_whatever_the_cluster_holds() {
    let known = many_local(4000, 1);
    let NodeObjects { plan, overflow } = objects(&known, true, "node-a");
    assert_eq!(overflow.len(), 4);
    assert!(plan.overflow.unwrap().note.contains("some of the rest"));
}

#[test]
fn endpoints_beyond_the_limit_are_counted() {
    let known = many_local(1, 700);
    let plan = objects(&known, true, "node-a").plan;
    let endpoints = plan.services[0].ports[0]
        .internal
        .endpoints
        .clone()
        .unwrap();
    assert_eq!(endpoints.len(), limit::OWN_ENDPOINTS);
    assert_eq!(endpoints.last().unwrap(), "(188 more)");
    assert_eq!(plan.counts.local_endpoints, 700);
}

#[test]
fn an_unreadable_node_has_a_warning_in_its_plan_only() {
    let mut known = known(&shop());
    let id = ObjectId::Node("node-a".into());
    known
        .left_out
        .insert(id, "status.addresses[0]: \"x\" is no address".into());
    let warnings = objects(&known, true, "node-a").plan.warnings;
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].object, "Node node-a");
    assert!(warnings[0].message.contains("\"x\" is no address"));
    assert!(objects(&known, true, "node-b").plan.warnings.is_empty());
    let status = config_status(&known, &known.planner.outside_ranges(), None, at(0), &[]);
    assert!(status.warnings.is_empty(), "{:?}", status.warnings);
}

#[test]
fn warnings_about_services_and_slices_are_in_the_status_of_the_proxyconfig() {
    let mut yaml = shop();
    yaml += &service("twin", "10.96.0.1", "Cluster");
    yaml += "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, \
             name: no-service}, addressType: IPv4, ports: [], endpoints: []}\n";
    let mut known = known(&yaml);
    let id = ObjectId::ServiceCidr("broken".into());
    known
        .left_out
        .insert(id, "spec.cidrs[0]: \"x\" is no range".into());
    let judged = ConfigJudged {
        generation: 3,
        problem: None,
        in_waves: false,
    };
    let status = config_status(
        &known,
        &known.planner.outside_ranges(),
        Some(&judged),
        at(0),
        &[],
    );
    insta::assert_yaml_snapshot!(status);
}

#[test]
fn of_many_warnings_the_first_are_shown_and_all_are_counted() {
    let mut yaml = node("node-a", "zone-1");
    for number in 0..150 {
        yaml += &format!(
            "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{namespace: \
             shop, name: s-{number:03}}}, addressType: IPv4, ports: [], endpoints: []}}\n"
        );
    }
    let known = known(&yaml);
    let status = config_status(&known, &known.planner.outside_ranges(), None, at(0), &[]);
    assert_eq!(status.counts.unwrap().warnings, 150);
    assert_eq!(status.warnings.len(), limit::CONFIG_WARNINGS);
    assert_eq!(status.warnings[0].object, "EndpointSlice shop/s-000");
    assert!(status.warnings.is_sorted());
}

/// The size of a value as JSON.
fn bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).unwrap().len()
}

#[test]
fn pods_outside_the_ranges_of_their_nodes_are_a_condition_and_a_warning_of_the_node() {
    let ranges = "spec: {podCIDRs: [10.244.1.0/24]}, status";
    let fine = shop().replacen("status", ranges, 1);
    let status = |yaml: &str, previous: &[Condition], now| {
        let known = known(yaml);
        config_status(
            &known,
            &known.planner.outside_ranges(),
            None,
            at(now),
            previous,
        )
        .conditions
    };
    // Nodes without ranges are ignored.
    let unknown = status(&shop(), &[], 1);
    insta::assert_yaml_snapshot!("pods_nothing_to_compare", unknown);
    let known_good = status(&fine, &unknown, 2);
    insta::assert_yaml_snapshot!("pods_in_ranges", known_good);

    let moved = fine.replace("nodeName: node-b", "nodeName: node-a");
    let outside = status(&moved, &known_good, 3);
    insta::assert_yaml_snapshot!("pods_outside_ranges", outside);
    // Unchanged since then.
    assert_eq!(status(&moved, &outside, 4), outside);

    let known = known(&moved);
    let warnings = objects(&known, true, "node-a").plan.warnings;
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].reason, "PodsOutsideRanges");
    assert_eq!(objects(&known, true, "node-b").plan.warnings, []);
}
