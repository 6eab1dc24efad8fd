//! Counts gathered in one pass equal the counts over each node's whole plan.

use portolan_controller::output::plan_document;
use portolan_controller::publish::{Figures, SettingsRevision, proxy_plan_spec};
use portolan_planner::{HintOutcome, Planner};
use proptest::prelude::*;

use crate::cluster::{known, node, service, slice};

/// A cluster derived from numbers: the node, zone, policy and hint of each object.
fn cluster(nodes: &[u8], services: &[(u8, Vec<(u8, u8)>)]) -> String {
    let mut yaml = String::new();
    for (index, zone) in nodes.iter().enumerate() {
        yaml += &node(&format!("node-{index}"), &format!("zone-{}", zone % 3));
    }
    for (index, (policy, endpoints)) in services.iter().enumerate() {
        let name = format!("web-{index}");
        let policy = if policy % 4 == 0 { "Local" } else { "Cluster" };
        yaml += &service(&name, &format!("10.96.0.{}", index + 1), policy);
        let endpoints: Vec<_> = endpoints
            .iter()
            .enumerate()
            .map(|(number, (node, hint))| {
                let hint = match hint % 5 {
                    4 => String::new(),
                    zone => format!(" zone-{zone}"),
                };
                let node = usize::from(*node) % nodes.len();
                format!("10.244.{index}.{} node-{node}{hint}", number + 1)
            })
            .collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        yaml += &slice(&name, &endpoints);
    }
    yaml
}

/// Services whose hints are used on a node, and those whose hints are not.
fn hints(planner: &Planner, node: &str) -> (usize, Vec<String>) {
    let entry = planner.node(node).unwrap();
    let (mut used, mut ignored) = (0, Vec::new());
    for (id, planned) in planner.services() {
        let outcomes: Vec<_> = planned
            .hints_on(entry)
            .map(|(_, outcome)| outcome)
            .collect();
        if outcomes.iter().any(|o| matches!(o, HintOutcome::Used(_))) {
            used += 1;
        } else if !outcomes.is_empty() {
            ignored.push(id.to_string());
        }
    }
    (used, ignored)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn figures_of_a_node_equal_counting_its_whole_plan(
        nodes in prop::collection::vec(0u8..3, 1..5),
        services in prop::collection::vec(
            (0u8..8, prop::collection::vec((0u8..5, 0u8..5), 0..5)),
            0..6,
        ),
    ) {
        let known = known(&cluster(&nodes, &services));
        let figures = Figures::of(&known.planner);
        let revision = SettingsRevision::default();
        for name in known.planner.nodes().keys() {
            let objects = proxy_plan_spec(&known, &figures, &revision, true, name).unwrap();
            let counts = objects.plan.counts;
            let plan = plan_document(&known.planner, name).unwrap();
            let ports = || plan.services.iter().flat_map(|service| &service.ports);
            let frontends: usize = ports().map(|port| port.frontends.len()).sum();
            let endpoints: usize = ports().map(|port| port.internal.endpoints.len()).sum();
            let counted = [plan.services.len(), frontends, endpoints, plan.local_endpoints.len()];
            let reported = [counts.services, counts.frontends, counts.endpoints, counts.local_endpoints];
            prop_assert_eq!(reported.map(|count| usize::try_from(count).unwrap()), counted);

            let topology = objects.plan.topology.unwrap_or_default();
            let shown: Vec<_> = topology.ignored_hints.into_iter().map(|h| h.service).collect();
            let reported = (usize::try_from(topology.hinted_services).unwrap(), shown);
            prop_assert_eq!(reported, hints(&known.planner, name));
            prop_assert_eq!(topology.ignored_hints_omitted, 0);
        }
    }
}
