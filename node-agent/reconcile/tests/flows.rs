//! Tests which UDP flows are stale, case by case, and the laws of when flows have to be scanned.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use portolan_plan::{Family, PlanDocument, Protocol};
use portolan_reconcile::{
    Desired, Draining, Flow, HostNetwork, LinkOp, ModelKernel, Op, Owned, RealServerKey, Refusal,
    VirtualServer, VirtualServerKey, diff, families_with_flows, leaves_stale_flows,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

/// A list of backends as in the plan.
fn list(policy: &str, endpoints: &[&str]) -> Value {
    let endpoint = |text: &&str| {
        let at: SocketAddr = text.parse().unwrap();
        json!({"address": at.ip(), "port": at.port(), "weight": 1})
    };
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    json!({
        "policy": policy,
        "scope": if policy == "Local" { "node/node-a" } else { "cluster" },
        "endpoints": endpoints,
        "whenEmpty": "Reject",
        "externalClients": "Allow",
    })
}

/// A Service with one port; frontends as kind, address and port.
fn service(
    name: &str,
    protocol: &str,
    frontends: &[(&str, Option<&str>, u16)],
    internal: &Value,
    external: &Value,
) -> Value {
    let frontend = |(kind, address, port): &(&str, Option<&str>, u16)| json!({"kind": kind, "address": address, "port": port});
    let frontends: Vec<_> = frontends.iter().map(frontend).collect();
    json!({
        "namespace": "default",
        "name": name,
        "bootCritical": false,
        "drainSeconds": null,
        "ports": [{
            "name": "port",
            "protocol": protocol,
            "frontends": frontends,
            "internal": internal,
            "external": external,
            "affinitySeconds": null,
            "scheduler": "rr",
            "sourceRanges": [],
        }],
    })
}

fn desired(services: Vec<Value>, excluded: &[&str]) -> Desired {
    let mut document: Value =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document["services"] = services.into();
    document["settings"]["excludeCIDRs"] = json!(excluded);
    let document: PlanDocument = serde_json::from_value(document).unwrap();
    Desired::new(&document.into_plan().unwrap(), &HostNetwork::default()).unwrap()
}

const BACKENDS: [&str; 3] = [
    "10.244.1.4:5353",
    "10.244.2.4:5353",
    "[fd00:10:244:1::4]:5353",
];

/// A cluster with every kind of frontend.
fn cluster() -> Vec<Value> {
    let frontends = [
        ("ClusterIP", Some("10.96.0.10"), 53),
        ("ClusterIP", Some("fd00:10:96::a"), 53),
        ("ExternalIP", Some("198.51.100.10"), 53),
        ("LoadBalancer", Some("203.0.113.7"), 53),
        ("NodePort", None, 30053),
    ];
    let everywhere = list("Cluster", &BACKENDS);
    let here = list("Local", &BACKENDS[..1]);
    vec![
        service("dns", "UDP", &frontends, &everywhere, &here),
        service(
            "over-tcp",
            "TCP",
            &[("ClusterIP", Some("10.96.0.11"), 53)],
            &everywhere,
            &Value::Null,
        ),
        service(
            "empty",
            "UDP",
            &[("ClusterIP", Some("10.96.0.12"), 53)],
            &list("Cluster", &[]),
            &Value::Null,
        ),
        service(
            "excluded",
            "UDP",
            &[("ClusterIP", Some("10.96.9.1"), 53)],
            &everywhere,
            &Value::Null,
        ),
    ]
}

fn flow(to: &str, reply_source: &str) -> Flow {
    let to: SocketAddr = to.parse().unwrap();
    let client = if to.is_ipv4() {
        "10.244.1.9:40000"
    } else {
        "[fd00:10:244:1::9]:40000"
    };
    Flow {
        source: client.parse().unwrap(),
        destination: to,
        reply_source: reply_source.parse().unwrap(),
        zone: 0,
        id: Some(1),
        by_rules: false,
    }
}

/// Destination, reply source, whether the flow is stale, and why.
const CASES: &[(&str, &str, bool, &str)] = &[
    (
        "10.96.0.10:53",
        "10.244.1.4:5353",
        false,
        "a backend, S-124",
    ),
    (
        "10.96.0.10:53",
        "10.244.2.4:5353",
        false,
        "a backend elsewhere, S-124",
    ),
    (
        "[fd00:10:96::a]:53",
        "[fd00:10:244:1::4]:5353",
        false,
        "over IPv6, S-124",
    ),
    (
        "10.96.0.10:53",
        "10.244.1.5:5353",
        true,
        "a backend that has gone, S-124",
    ),
    (
        "[fd00:10:96::a]:53",
        "[fd00:10:244:2::4]:5353",
        true,
        "the same over IPv6, S-124",
    ),
    (
        "10.96.0.10:53",
        "10.244.1.4:53",
        true,
        "a backend on another port, S-125",
    ),
    (
        "10.96.0.10:53",
        "10.96.0.10:53",
        true,
        "older than the rules, S-126",
    ),
    (
        "[fd00:10:96::a]:53",
        "[fd00:10:96::a]:53",
        true,
        "older, over IPv6, S-126",
    ),
    (
        "203.0.113.7:53",
        "203.0.113.7:53",
        true,
        "older than the balancer's address, S-126",
    ),
    (
        "203.0.113.7:53",
        "10.244.1.4:5353",
        false,
        "a balancer's address, S-124",
    ),
    (
        "198.51.100.10:53",
        "10.244.1.5:5353",
        true,
        "an external IP, S-124",
    ),
    (
        "203.0.113.7:53",
        "10.244.2.4:5353",
        true,
        "a backend of another list, S-124",
    ),
    (
        "192.168.50.1:30053",
        "10.244.1.5:5353",
        true,
        "a node port here, S-124",
    ),
    (
        "192.168.50.1:30053",
        "192.168.50.1:30053",
        true,
        "older than a node port, S-126",
    ),
    (
        "192.168.50.1:30053",
        "10.244.1.4:5353",
        false,
        "a node port here, S-124",
    ),
    (
        "192.168.50.2:30053",
        "192.168.50.2:30053",
        false,
        "that port elsewhere, S-131",
    ),
    (
        "8.8.8.8:30053",
        "8.8.8.8:30053",
        false,
        "that port of an outside server, S-131",
    ),
    (
        "10.96.0.10:30053",
        "10.96.0.10:30053",
        false,
        "that port of a cluster IP, S-131",
    ),
    (
        "10.96.0.10:54",
        "10.244.1.5:5353",
        false,
        "a port of no Service, S-124",
    ),
    (
        "10.96.0.11:53",
        "10.96.0.11:53",
        false,
        "a frontend of TCP only, S-123",
    ),
    (
        "10.96.0.12:53",
        "10.244.1.4:5353",
        false,
        "no backends, S-127",
    ),
    (
        "10.96.0.12:53",
        "10.96.0.12:53",
        false,
        "older, no backends, S-127",
    ),
    (
        "10.96.9.1:53",
        "10.96.9.1:53",
        false,
        "an excluded range, S-108",
    ),
    (
        "10.244.1.4:5353",
        "10.244.1.4:5353",
        false,
        "straight to a backend, S-124",
    ),
    (
        "10.244.1.9:53",
        "10.96.0.10:53",
        false,
        "from a frontend, S-124",
    ),
];

#[test]
fn flows_are_stale_case_by_case() {
    let desired = desired(cluster(), &["10.96.9.0/24"]);
    for (to, reply_source, stale, why) in CASES {
        assert_eq!(
            flow(to, reply_source).is_stale(&desired, &Draining::new()),
            *stale,
            "{why}"
        );
    }
}

/// S-127: families without a UDP frontend with backends have no stale flows.
#[test]
fn only_families_of_udp_frontends_with_backends_have_stale_flows() {
    let families = |services| families_with_flows(&desired(services, &[]));
    assert_eq!(families(cluster()), Family::BOTH.into());
    let [_, over_tcp, empty, excluded] = cluster().try_into().unwrap();
    assert_eq!(families(vec![over_tcp, empty]), [].into());
    assert_eq!(families(vec![excluded]), [Family::Ipv4].into());
}

#[test]
fn a_flow_is_deleted_once_and_another_of_the_same_client_is_not_it() {
    let mut kernel = ModelKernel::default();
    let old = flow("10.96.0.10:53", "10.244.1.5:5353");
    let new = Flow { id: Some(2), ..old };
    kernel.flows.insert(new);
    assert_eq!(kernel.forget(&old), Err(Refusal::NotFound));
    assert_eq!(kernel.forget(&new), Ok(()));
    assert_eq!(kernel.forget(&new), Err(Refusal::NotFound));
}

/// The operations that lead from the state of one plan to that of another.
fn change(before: &Desired, after: &Desired) -> Vec<Op> {
    let mut kernel = ModelKernel::default();
    let mut owned = Owned::default();
    for desired in [before, after] {
        owned.claim(desired);
        kernel.log.clear();
        for op in diff(&kernel.state, desired, &owned)
            .into_iter()
            .flat_map(|(_, ops)| ops)
        {
            kernel
                .apply(&op)
                .unwrap_or_else(|refusal| panic!("{op}: {refusal}"));
        }
    }
    kernel.log
}

fn looked_at(before: &Desired, after: &Desired) -> BTreeSet<Family> {
    let ops = change(before, after);
    ops.iter()
        .filter_map(|op| leaves_stale_flows(op, after))
        .collect()
}

/// S-128: changes that do not concern UDP require no scan.
#[test]
fn changes_of_tcp_services_require_no_flow_scan() {
    let before = desired(cluster(), &[]);
    let mut services = cluster();
    services[1] = service(
        "over-tcp",
        "TCP",
        &[
            ("ClusterIP", Some("10.96.0.11"), 53),
            ("ExternalIP", Some("198.51.100.11"), 53),
        ],
        &list("Cluster", &["10.244.1.5:5353"]),
        &list("Cluster", &["10.244.1.5:5353"]),
    );
    let after = desired(services.clone(), &[]);
    assert!(!change(&before, &after).is_empty());
    assert_eq!(looked_at(&before, &after), [].into());
    assert_eq!(looked_at(&after, &after), [].into(), "nothing at all");
    // S-129: the same frontend of a UDP Service requires one.
    services[2] = service(
        "empty",
        "UDP",
        &[
            ("ClusterIP", Some("10.96.0.12"), 53),
            ("ExternalIP", Some("198.51.100.12"), 53),
        ],
        &list("Cluster", &["10.244.1.5:5353"]),
        &list("Cluster", &["10.244.1.5:5353"]),
    );
    assert_eq!(
        looked_at(&after, &desired(services, &[])),
        [Family::Ipv4].into()
    );
}

/// S-129: without the policy rule, datagrams bypassed the frontend.
#[test]
fn a_restored_policy_rule_requires_a_flow_scan_for_families_with_udp_frontends() {
    let desired = desired(cluster(), &[]);
    let asked = |desired: &Desired| -> Vec<_> {
        let rules = desired.policy.iter();
        let ops = rules.map(|rule| Op::Link(LinkOp::AddPolicyRule { rule: *rule }));
        ops.filter_map(|op| leaves_stale_flows(&op, desired))
            .collect()
    };
    let all = asked(&desired);
    assert!(
        all.contains(&Family::Ipv4) && all.contains(&Family::Ipv6),
        "{all:?}"
    );
    let mut of_ipv4 = desired;
    of_ipv4
        .virtual_servers
        .retain(|key, _| key.address.is_ipv4());
    assert!(asked(&of_ipv4).iter().all(|family| *family == Family::Ipv4));
}

/// Virtual servers on a few addresses, with few backends, so that two of them often collide.
fn servers() -> impl Strategy<Value = Vec<(VirtualServerKey, Vec<RealServerKey>)>> {
    let frontend = (
        0..2u8,
        select(vec![53u16, 54]),
        select(vec![Protocol::Udp, Protocol::Tcp]),
        any::<bool>(),
    );
    let server = (frontend, subsequence((1..4u8).collect::<Vec<_>>(), 0..4));
    let address = |v6: bool, last: u8| -> IpAddr {
        if v6 {
            [0xfd00, 0x10, 0x96, 0, 0, 0, 0, last.into()].into()
        } else {
            [10, 96, 0, last].into()
        }
    };
    let server = server.prop_map(move |((last, port, protocol, v6), backends)| {
        let key = VirtualServerKey {
            address: address(v6, last),
            port,
            protocol,
        };
        let backend = |number: &u8| RealServerKey {
            address: address(v6, number + 100),
            port: 5353,
        };
        (key, backends.iter().map(backend).collect())
    });
    prop::collection::vec(server, 0..6)
}

fn with_servers(servers: Vec<(VirtualServerKey, Vec<RealServerKey>)>) -> Desired {
    let mut desired = desired(Vec::new(), &[]);
    for (key, backends) in servers
        .into_iter()
        .filter(|(_, backends)| !backends.is_empty())
    {
        let server = VirtualServer {
            scheduler: "rr".into(),
            flags: 0,
            timeout: 0,
            real_servers: backends.into_iter().map(|backend| (backend, 1)).collect(),
        };
        desired.virtual_servers.insert(key, server);
    }
    desired
}

/// All possible flows between these frontends and backends, translated or not.
fn all_flows(of: [&Desired; 2]) -> BTreeSet<Flow> {
    let servers = of.iter().flat_map(|desired| &desired.virtual_servers);
    let backends = servers
        .clone()
        .flat_map(|(_, server)| server.real_servers.keys());
    let backends: BTreeSet<_> = backends
        .map(|b| SocketAddr::new(b.address, b.port))
        .collect();
    let mut flows = BTreeSet::new();
    for (key, _) in servers {
        let to = SocketAddr::new(key.address, key.port);
        let same_family = backends.iter().filter(|b| b.is_ipv4() == to.is_ipv4());
        for reply_source in same_family.chain([&to]) {
            flows.insert(flow(&to.to_string(), &reply_source.to_string()));
        }
    }
    flows
}

proptest! {
    /// S-128, S-129: every change that makes a flow stale contains an operation that requires a scan.
    #[test]
    fn every_change_that_makes_a_flow_stale_requires_a_flow_scan(first in servers(), second in servers()) {
        let (before, after) = (with_servers(first), with_servers(second));
        let looked_at = looked_at(&before, &after);
        let none = Draining::new();
        for flow in all_flows([&before, &after]) {
            if flow.is_stale(&after, &none) && !flow.is_stale(&before, &none) {
                prop_assert!(looked_at.contains(&flow.family()), "{flow:?}");
                prop_assert!(families_with_flows(&after).contains(&flow.family()));
            }
        }
    }

    /// S-124, S-127, S-131: a flow is stale exactly if its frontend has backends, but not this one.
    #[test]
    fn a_stale_flow_has_a_frontend_and_a_fresh_one_a_backend(
        first in servers(),
        second in servers(),
    ) {
        let (known, judge) = (with_servers(first), with_servers(second));
        for flow in all_flows([&known, &judge]) {
            let mut udp = judge.virtual_servers.iter().filter(|(key, _)| {
                key.protocol == Protocol::Udp
                    && SocketAddr::new(key.address, key.port) == flow.destination
            });
            let stale = udp.next().is_some_and(|(_, server)| {
                let mut backends = server.real_servers.keys();
                backends.all(|b| SocketAddr::new(b.address, b.port) != flow.reply_source)
            });
            prop_assert_eq!(flow.is_stale(&judge, &Draining::new()), stale, "{:?}", flow);
        }
    }
}
