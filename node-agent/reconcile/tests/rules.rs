//! Tests that rules depend on the settings, and not on the size of the cluster.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use portolan_plan::{Family, LocalDetection, PlanDocument, Settings};
use portolan_reconcile::rules::{ObservedRules, Rules, restore_text};
use portolan_reconcile::{
    Desired, DesiredDocument, HostNetwork, Observed, ObservedSet, Op, Owned, Phase, SetEntry,
    SetId, SetKind, SetRole, diff, ready,
};

fn text(rules: &Rules) -> String {
    restore_text(rules, &ObservedRules::default()).unwrap()
}

/// The rules that are missing (`-`) or additional (`+`) compared with those of the default settings.
fn against_default(settings: &Settings, recognises_pods: bool) -> String {
    let mut words = String::new();
    for family in Family::BOTH {
        let (usual, here) = (
            text(&Rules::new(family, &Settings::default(), true)),
            text(&Rules::new(family, settings, recognises_pods)),
        );
        words += &format!("{family}\n");
        for line in usual
            .lines()
            .filter(|line| !here.lines().any(|l| l == *line))
        {
            words += &format!("- {line}\n");
        }
        for line in here
            .lines()
            .filter(|line| !usual.lines().any(|l| l == *line))
        {
            words += &format!("+ {line}\n");
        }
    }
    words
}

fn detection(local_detection: LocalDetection) -> Settings {
    Settings {
        local_detection,
        ..Settings::default()
    }
}

/// S-72, S-75, S-77, S-173, S-204.
#[test]
fn rules_differ_from_the_default_rules_according_to_the_settings() {
    let mut settings = Settings::default();
    assert_eq!(against_default(&settings, true), "IPv4\nIPv6\n");
    insta::assert_snapshot!("without_known_pods", against_default(&settings, false));
    settings.masquerade.all = true;
    insta::assert_snapshot!("masquerade_all", against_default(&settings, true));
    settings = Settings::default();
    settings.masquerade.bit = 31;
    insta::assert_snapshot!("another_mark_bit", against_default(&settings, true));
    settings = Settings::default();
    settings.drop_invalid = false;
    let tolerant = against_default(&settings, true);
    insta::assert_snapshot!("invalid_packets_pass", tolerant);
    settings = Settings::default();
    settings.conntrack.tcp_be_liberal = true;
    assert_eq!(against_default(&settings, true), tolerant, "S-173");
    settings = Settings::default();
    settings.healthz.port = 4711;
    insta::assert_snapshot!("another_health_port", against_default(&settings, true));
    let cluster_cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    let cluster = detection(LocalDetection::ClusterCidr { cluster_cidrs });
    insta::assert_snapshot!("cluster_cidr", against_default(&cluster, true));
    let bridge = "cni0".to_owned();
    let bridge = detection(LocalDetection::BridgeInterface { bridge });
    insta::assert_snapshot!("bridge_interface", against_default(&bridge, true));
    let prefix = "cali".to_owned();
    let prefix = detection(LocalDetection::InterfaceNamePrefix { prefix });
    insta::assert_snapshot!("interface_name_prefix", against_default(&prefix, true));
}

/// The desired state of a plan with this many Services.
fn desired(services: u32) -> Desired {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let model = document
        .services
        .iter()
        .find(|service| &*service.name == "web");
    let model = model.unwrap_or(&document.services[1]).clone();
    document.services = (0..services)
        .map(|number| {
            let mut service = model.clone();
            service.name = format!("service-{number}").into();
            for frontend in service
                .ports
                .iter_mut()
                .flat_map(|port| &mut port.frontends)
            {
                frontend.address = frontend.address.map(|address| match address {
                    std::net::IpAddr::V4(_) => (0x0a60_0100 + number).to_be_bytes().into(),
                    std::net::IpAddr::V6(_) => (0xfd00_0010_0096_u128 << 80 | u128::from(number))
                        .to_be_bytes()
                        .into(),
                });
            }
            service
        })
        .collect();
    Desired::new(&document.into_plan().unwrap(), &HostNetwork::default()).unwrap()
}

#[test]
fn rules_are_the_same_for_one_service_and_for_ten_thousand() {
    let (one, many) = (desired(1), desired(10_000));
    let frontends = |desired: &Desired| desired.virtual_servers.len();
    assert!(frontends(&one) > 0 && frontends(&many) == 10_000 * frontends(&one));
    assert_eq!(one.rules, many.rules, "S-164");
    let routes = |desired: &Desired| desired.routes.len();
    assert_eq!(routes(&one), routes(&many), "one for each service range");
}

/// S-144: also on nodes without an endpoint, and in both families regardless of those of the Service.
#[test]
fn health_check_ports_are_in_the_sets_of_both_families() {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document.health_checks = serde_json::from_str(
        r#"[{"namespace": "shop", "name": "far", "port": 32103, "localEndpoints": {"IPv4": 0, "IPv6": 0}},
            {"namespace": "shop", "name": "both", "port": 32102, "localEndpoints": {"IPv4": 1, "IPv6": 0}}]"#,
    )
    .unwrap();
    let plan = document.into_plan().unwrap();
    let desired = Desired::new(&plan, &HostNetwork::default()).unwrap();
    for family in Family::BOTH {
        let role = SetRole::Health;
        let set = &desired.sets[&SetId { role, family }];
        let ports = [SetEntry::Port(32102), SetEntry::Port(32103)];
        assert_eq!(set.entries, ports.into());
        assert_eq!(set.max_elements, SetKind::PORTS);
    }
    let printed = DesiredDocument::from(&desired);
    assert_eq!(printed.sets["PORTOLAN-HEALTH"].entries, ["32102", "32103"]);
}

/// S-180: if the kernel lacks a set type, that failure is reported, and no rules are loaded that would fail because
/// of it.
#[test]
fn rules_wait_for_the_sets_that_they_use() {
    let document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let plan = document.into_plan().unwrap();
    let desired = Desired::new(&plan, &HostNetwork::default()).unwrap();
    let mut state = Observed::default();
    let phases = diff(&state, &desired, &Owned::default());
    let rules: Vec<Op> = phases
        .into_iter()
        .filter(|(phase, _)| *phase == Phase::LoadRules)
        .flat_map(|(_, ops)| ops)
        .collect();
    let goes = |state: &Observed| ready(rules.clone(), state, &desired).0.len();
    assert_eq!((rules.len(), goes(&state)), (2, 0));
    let sets = desired.sets.keys();
    state.sets = sets.map(|id| (*id, ObservedSet::default())).collect();
    assert_eq!(goes(&state), 2);
    let allow = SetId {
        role: SetRole::Allow,
        family: Family::Ipv6,
    };
    state.sets.remove(&allow);
    assert_eq!(goes(&state), 1);
}
