//! The rules of Kubernetes as tables. Each case has a contrast: the same cluster with one field changed and another
//! result, so that no case can pass for the wrong reason.

use std::fmt::Write as _;

use crate::build::Cluster;
use portolan_plan::{
    BackendList, ExternalClients, Family, Frontend, FrontendKind, Head, HeadPort, ListChoice,
    ListKey, ListUse, Local, NodeEntry, Scope, ScopeKind,
};
use portolan_planner::{HintKind, HintOutcome, HintState, PlannedService, Planner};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The claim, with its S-numbers.
    claim: String,
    given: Value,
    expect: Vec<String>,
    contrast: Contrast,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contrast {
    /// The field that changes, as a JSON pointer …
    field: String,
    /// … and its other value.
    value: Value,
    expect: Vec<String>,
}

/// All plans, one line for each fact.
fn facts(given: &Value) -> Vec<String> {
    let cluster: Cluster = serde_json::from_value(given.clone()).expect("a cluster");
    let mut planner = Planner::default();
    planner.apply(cluster.events());
    let mut facts = Vec::new();
    for planned in planner.services().values() {
        service_facts(planned, &mut facts);
        for node in planner.nodes().values() {
            node_facts(planned, node, &mut facts);
        }
        hint_facts(planned, &mut facts);
    }
    for node in planner.nodes().values() {
        let zone = node.zone.as_deref().unwrap_or("-");
        let leaving = if node.eligible { "" } else { " leaving" };
        facts.push(format!(
            "node {} zone {zone} {:?} {:?}{leaving}",
            node.name, node.addresses, node.service_cidrs
        ));
    }
    let first = planner.nodes().values().next().cloned().unwrap_or_default();
    for warning in planner.warnings(&first) {
        facts.push(format!(
            "warning {} {}",
            warning.reason.code(),
            warning.object
        ));
    }
    facts
}

fn service_facts(planned: &PlannedService, facts: &mut Vec<String>) {
    let head = &planned.heads[0];
    let id = &planned.id;
    let mut flags = String::new();
    if head.boot_critical {
        flags += " boot-critical";
    }
    if let Some(scheduler) = &head.scheduler {
        write!(flags, " scheduler {scheduler}").unwrap();
    }
    if let Some(seconds) = head.drain_seconds {
        write!(flags, " drain {seconds}s").unwrap();
    }
    if !flags.is_empty() {
        facts.push(format!("{id}{flags}"));
    }
    for port in &head.ports {
        for place in places(port) {
            let choice = place.list(port).choice(place.family);
            let key = key(planned, port, place.family, choice.scope);
            if let Some(list) = planned.lists.get(&key) {
                let text = format!("{}{}", place.text, extras(head, port, place.frontend));
                let external_clients = external_clients(choice);
                facts.push(format!(
                    "{id} {text}{external_clients} -> {}",
                    backends(list)
                ));
            }
        }
    }
    for (node, local) in &planned.locals {
        facts.push(format!("{id} on {node}: {}", local_text(local)));
    }
    if let Some(local) = &planned.elsewhere {
        facts.push(format!("{id} elsewhere: {}", local_text(local)));
    }
}

fn local_text(local: &Local) -> String {
    let endpoints = local.endpoints.iter();
    let endpoints = endpoints.map(|e| format!("{} {}/{}", e.address, e.port, e.protocol));
    let health = local.health.iter();
    let health = health.map(|h| format!("health {}: {}+{}", h.port, h.ipv4, h.ipv6));
    endpoints.chain(health).collect::<Vec<_>>().join(", ")
}

/// The properties of a frontend besides its list.
fn extras(head: &Head, port: &HeadPort, frontend: Frontend) -> String {
    let mut text = String::new();
    if let Some(seconds) = port.affinity_seconds {
        write!(text, " affinity {seconds}s").unwrap();
    }
    let ranges = head.source_ranges_of(port);
    if frontend.kind == FrontendKind::LoadBalancer && !ranges.is_empty() {
        let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
        write!(text, " from {}", ranges.join(" ")).unwrap();
    }
    text
}

fn external_clients(choice: ListChoice) -> &'static str {
    match choice.external_clients {
        ExternalClients::Allow => "",
        ExternalClients::Drop => " without external clients",
    }
}

/// A frontend in one family.
struct Place {
    text: String,
    frontend: Frontend,
    family: Family,
}

impl Place {
    fn list<'a>(&self, port: &'a HeadPort) -> &'a ListUse {
        match self.frontend.kind {
            FrontendKind::ClusterIp => &port.internal,
            _ => port
                .external
                .as_ref()
                .expect("there is an external frontend"),
        }
    }
}

/// Each frontend; a node port once for each family of the Service.
fn places(port: &HeadPort) -> Vec<Place> {
    let mut places = Vec::new();
    for frontend in &port.frontends {
        let kind = match frontend.kind {
            FrontendKind::ClusterIp => String::new(),
            kind => format!("{} ", kind.as_str()),
        };
        let end = format!("{}/{}", frontend.port, port.protocol);
        let mut add = |text, family| {
            places.push(Place {
                text,
                frontend: *frontend,
                family,
            });
        };
        match frontend.address {
            Some(address) => add(format!("{kind}{address} {end}"), Family::of(address)),
            None => {
                for family in Family::BOTH.into_iter().filter(|f| port.has_family(*f)) {
                    add(format!("{kind}{family} {end}"), family);
                }
            }
        }
    }
    places
}

/// The key of a list that does not belong to one node or zone.
fn key(planned: &PlannedService, port: &HeadPort, family: Family, scope: ScopeKind) -> ListKey {
    ListKey {
        service: planned.id.clone(),
        port: port.name.clone(),
        family,
        scope: NodeEntry::default().complete(scope),
    }
}

/// What a node has that other nodes have not, and why hints are ignored on it.
fn node_facts(planned: &PlannedService, node: &NodeEntry, facts: &mut Vec<String>) {
    let (id, name) = (&planned.id, &node.name);
    let head = planned.head_for(node);
    for (port, plain) in head.ports.iter().zip(&planned.heads[0].ports) {
        for place in places(port) {
            let choice = place.list(port).choice(place.family);
            let scope = node.complete(choice.scope);
            if scope == Scope::Cluster && plain.frontends.contains(&place.frontend) {
                continue;
            }
            let mut key = key(planned, port, place.family, choice.scope);
            key.scope = scope.clone();
            let list = planned.lists.get(&key);
            let list = list.map_or("none".into(), |list| backends(list));
            let (text, scope) = (&place.text, scope.shown());
            let external_clients = external_clients(choice);
            facts.push(format!(
                "{id} {text} on {name} by {scope}{external_clients} -> {list}"
            ));
        }
    }
    for (hints, outcome) in planned.hints_on(node) {
        let in_force = [&hints.nodes, &hints.zones].contains(&&HintState::InForce);
        if let (true, HintOutcome::Ignored(reason)) = (in_force, outcome) {
            let family = hints.family;
            facts.push(format!("{id} {family} hints ignored on {name}: {reason}"));
        }
    }
}

/// The outcome of hints in the whole cluster.
fn hint_facts(planned: &PlannedService, facts: &mut Vec<String>) {
    for hints in &planned.hints {
        for (kind, state) in [
            (HintKind::Node, &hints.nodes),
            (HintKind::Zone, &hints.zones),
        ] {
            let outcome = match state {
                HintState::Absent => continue,
                HintState::InForce => "in force".into(),
                HintState::Ignored(reason) => format!("ignored: {reason}"),
            };
            let (id, family, kind) = (&planned.id, hints.family, kind.as_str());
            facts.push(format!("{id} {family} {kind} hints {outcome}"));
        }
    }
}

fn backends(list: &BackendList) -> String {
    if list.is_empty() {
        return "none".into();
    }
    let texts = list.as_slice().iter().map(|backend| {
        assert_eq!(backend.weight, 1, "S-100");
        format!("{} {}", backend.address, backend.port)
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn check(table: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(table).expect("a table of cases");
    assert!(!cases.is_empty());
    for case in cases {
        let Case {
            claim,
            given,
            expect,
            contrast,
        } = case;
        assert!(claim.contains("S-"), "{claim}: cites no rule");
        assert_ne!(
            expect, contrast.expect,
            "{claim}: the contrast changes nothing"
        );
        assert_eq!(facts(&given), expect, "{claim}");
        let mut changed = given.clone();
        let field = changed.pointer_mut(&contrast.field);
        let field = field.unwrap_or_else(|| panic!("{claim}: {} is not given", contrast.field));
        assert_ne!(
            *field, contrast.value,
            "{claim}: the field has this value already"
        );
        *field = contrast.value;
        assert_eq!(facts(&changed), contrast.expect, "{claim} (contrast)");
    }
}

#[test]
fn services_and_ports_that_are_proxied() {
    check(include_str!("../cases/a-services.yaml"));
}

#[test]
fn frontends() {
    check(include_str!("../cases/b-frontends.yaml"));
}

#[test]
fn node_port_addresses() {
    check(include_str!("../cases/c-node-ports.yaml"));
}

#[test]
fn endpoints_that_receive_traffic() {
    check(include_str!("../cases/d-endpoints.yaml"));
}

#[test]
fn topology_hints() {
    check(include_str!("../cases/e-hints.yaml"));
}

#[test]
fn traffic_policies() {
    check(include_str!("../cases/f-policies.yaml"));
}

#[test]
fn source_ranges() {
    check(include_str!("../cases/h-source-ranges.yaml"));
}

#[test]
fn affinity_and_schedulers() {
    check(include_str!("../cases/i-affinity.yaml"));
    check(include_str!("../cases/j-schedulers.yaml"));
}

#[test]
fn health_check_ports() {
    check(include_str!("../cases/m-health.yaml"));
}

#[test]
fn nodes() {
    check(include_str!("../cases/t-nodes.yaml"));
}

#[test]
fn warnings_about_one_service_are_limited() {
    let addresses = |count: u8| (1..=count).map(|n| format!("127.0.0.{n}"));
    let warnings = |count| {
        let ips: Vec<_> = addresses(count).collect();
        let service = serde_json::json!({
            "id": "shop/web", "ips": ["10.96.0.1"], "ports": ["80/TCP"], "external": {"ips": ips},
        });
        let given = serde_json::json!({"services": [service]});
        let facts = facts(&given).into_iter();
        facts.filter(|fact| fact.starts_with("warning")).collect()
    };
    let all: Vec<String> = warnings(20);
    assert_eq!(all, vec!["warning UnusableAddress Service shop/web"; 20]);
    let more: Vec<String> = warnings(23);
    assert_eq!(more.len(), 21);
    let last = "warning MoreWarnings Service shop/web".to_owned();
    assert!(more.contains(&last), "{more:?}");
}
