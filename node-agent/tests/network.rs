//! The programmer and the node's own network: what it does when an interface, an address or a route
//! comes or goes, and what it does not do. The bell is rung by hand; nothing waits for a period.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::sync::Arc;
use std::time::Duration;

use portolan_agent::health::Health;
use portolan_agent::kernel::{IPV6_FORWARDING, SharedModel};
use portolan_agent::slot::Woken;
use portolan_plan::{FrontendDocument, FrontendKind, Period, PlanDocument};
use portolan_reconcile::Op;
use tempfile::TempDir;

use running::{Running, address, document};

/// A plan with a node port on every address, and hours until somebody looks by himself.
fn patient() -> PlanDocument {
    let mut document = document();
    document.settings.node_port_addresses.clear();
    document.settings.sync.period = "5h".parse().unwrap();
    let ports = document.services.iter_mut().flat_map(|s| &mut s.ports);
    for (number, port) in (30_080..).zip(ports) {
        port.external = Some(port.internal.clone());
        port.frontends.push(FrontendDocument {
            kind: FrontendKind::NodePort,
            address: None,
            port: number,
        });
    }
    document
}

/// Has the plan programmed, and a folder that lives as long.
fn programmed() -> (Running, TempDir) {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(patient()).failed, 0);
    (running, state)
}

fn servers_at(kernel: &SharedModel, address: &str) -> usize {
    let address: std::net::IpAddr = address.parse().unwrap();
    let servers = &kernel.lock().state.virtual_servers;
    servers.keys().filter(|key| key.address == address).count()
}

/// S-37: an address serves node ports as soon as it is there, and no longer than it is.
#[test]
fn node_ports_follow_the_nodes_addresses_without_a_look_at_anything_else() {
    let (running, _state) = programmed();
    let looks = running.kernel.eyes().services;
    let known = servers_at(&running.kernel, "192.168.50.1");
    assert!(known > 0 && servers_at(&running.kernel, "192.168.60.7") == 0);
    let added = address("192.168.60.7/24");
    running
        .kernel
        .lock()
        .state
        .host
        .addresses
        .push(added.clone());
    running.slot.disturb();
    running.until("node ports on the new address", |kernel| {
        servers_at(kernel, "192.168.60.7") == known
    });
    let mut kernel = running.kernel.lock();
    kernel.state.host.addresses.retain(|held| *held != added);
    drop(kernel);
    running.slot.disturb();
    running.until("no virtual server on the address that is gone", |kernel| {
        servers_at(kernel, "192.168.60.7") == 0
    });
    assert_eq!(running.kernel.eyes().services, looks, "S-185");
    running.stop();
}

/// Somebody deletes a route of ours, or the whole device: it is back without waiting for a period.
#[test]
fn routes_and_the_device_are_put_back_when_somebody_deletes_them() {
    let (running, _state) = programmed();
    let routes = running.kernel.lock().state.routes.clone();
    assert!(routes.len() > 1, "{routes:?}");
    running.kernel.lock().state.routes.pop_first();
    running.slot.disturb();
    running.until("the route", |kernel| kernel.lock().state.routes == routes);
    let mut kernel = running.kernel.lock();
    kernel.state.routes.clear();
    kernel.state.device_up = false;
    drop(kernel);
    running.slot.disturb();
    running.until("the device with its routes", |kernel| {
        let state = &kernel.lock().state;
        state.device_up && state.routes == routes
    });
    running.stop();
}

/// I-4: most of what happens to a node's network is nothing to us.
#[test]
fn a_disturbance_that_changed_nothing_costs_one_look_and_no_write() {
    let (running, _state) = programmed();
    let before = running.kernel.eyes().clone();
    let written = running.kernel.lock().log.len();
    running.slot.disturb();
    running.until("a look", |kernel| kernel.eyes().network > before.network);
    let kernel = running.stop();
    let after = kernel.eyes().clone();
    assert_eq!(after.network, before.network + 1);
    assert_eq!(after.services, before.services);
    assert_eq!(kernel.lock().log.len(), written);
}

/// What is written causes events in turn.
#[test]
fn an_answer_to_a_disturbance_is_not_answered_again() {
    let (running, _state) = programmed();
    let before = running.kernel.eyes().network;
    let routes = running.kernel.lock().state.routes.clone();
    running.kernel.lock().state.routes.clear();
    running.slot.disturb();
    running.until("the routes", |kernel| kernel.lock().state.routes == routes);
    let written = running.kernel.lock().log.len();
    // The echo of what was just written, after two looks that saw no routes.
    running.slot.disturb();
    running.until("one more look", |kernel| {
        kernel.eyes().network == before + 3
    });
    let kernel = running.stop();
    assert_eq!(kernel.eyes().network, before + 3);
    assert_eq!(kernel.lock().log.len(), written);
}

/// S-37: a list that changed while it was read lacks what is there all the time.
#[test]
fn a_look_that_no_second_look_confirms_is_not_believed() {
    let (running, _state) = programmed();
    let before = running.kernel.eyes().network;
    let written = running.kernel.lock().log.len();
    let whole = running.kernel.lock().state.network();
    let lacking = |count: usize| {
        let mut network = whole.clone();
        network.host.addresses.truncate(count);
        network
    };
    running.kernel.eyes().glimpses = [lacking(0), lacking(1)].into();
    running.slot.disturb();
    running.until("three looks", |kernel| kernel.eyes().network >= before + 3);
    // Never twice the same: what is seen last counts, or a flood would keep us from following.
    let mut four = [0, 1, 0, 1].map(lacking);
    four[3].routes.clear();
    running.kernel.eyes().glimpses = four.into();
    running.until("the bell to be heard", |_| {
        running.slot.wait(Duration::ZERO) == Woken::TimedOut
    });
    assert_eq!(running.kernel.lock().log.len(), written);
    running.slot.disturb();
    running.until("what the fourth look lacked", |kernel| {
        kernel.lock().log.len() > written
    });
    let kernel = running.stop();
    assert_eq!(kernel.eyes().network, before + 7);
}

#[test]
fn before_a_first_plan_nothing_is_looked_at_and_nothing_written() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    for _ in 0..100 {
        running.slot.disturb();
    }
    // Waiting takes nothing: only the programmer makes it end otherwise.
    running.until("the bell to be heard", |_| {
        running.slot.wait(Duration::ZERO) == Woken::TimedOut
    });
    let kernel = running.stop();
    assert_eq!(kernel.eyes().network, 0);
    assert!(kernel.lock().log.is_empty(), "I-4, S-183");
}

const FLOWS: [&str; 2] = [
    "net.netfilter.nf_conntrack_udp_timeout",
    "net.netfilter.nf_conntrack_udp_timeout_stream",
];

/// A plan that asks for 20 s and 90 s of these.
fn asking() -> PlanDocument {
    let mut plan = patient();
    plan.settings.conntrack.udp_timeout = Period::seconds(20);
    plan.settings.conntrack.udp_stream_timeout = Period::seconds(90);
    plan
}

/// What is written to a kernel that has these values once they are asked for.
fn writes(values: [&str; 2]) -> Vec<String> {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    for (name, value) in FLOWS.into_iter().zip(values) {
        let settings = &mut kernel.lock().state.sysctls;
        settings.insert(name.into(), value.into());
    }
    let running = Running::start(kernel, state.path());
    running.program(patient());
    // Only now they are asked for: the kernel was looked at before.
    running.program(asking());
    let kernel = running.stop();
    let kernel = kernel.lock();
    let ours = |op: &&Op| matches!(op, Op::Sysctl(op) if op.name.contains("udp"));
    let written = kernel.log.iter().filter(ours);
    written.map(ToString::to_string).collect()
}

/// Values that are right are not written: `/proc/sys` may be read-only (S-174, S-235).
#[test]
fn settings_that_are_right_are_read_and_not_written() {
    assert_eq!(writes(["20", "90"]), [""; 0]);
    let written = writes(["30", "90"]);
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].contains("udp_timeout to 20"), "{written:?}");
    assert_eq!(writes(["30", "120"]).len(), 2);
}

/// S-38: the rest goes on with what was known, and the failure is told until it is over.
#[test]
fn while_addresses_cannot_be_read_those_last_known_count() {
    let (running, _state) = programmed();
    let known = servers_at(&running.kernel, "192.168.50.1");
    running.kernel.eyes().blind = true;
    running.slot.disturb();
    let failed = running.wait(|applied| applied.failed > 0);
    assert!(
        failed.failures[0].starts_with("read addresses"),
        "{failed:?}"
    );
    let mut without_web = patient();
    without_web
        .services
        .retain(|service| &*service.name != "web");
    let web = "TCP 10.96.0.20:80".parse().unwrap();
    assert!(
        running
            .kernel
            .lock()
            .state
            .virtual_servers
            .contains_key(&web)
    );
    running.program(without_web);
    assert!(
        !running
            .kernel
            .lock()
            .state
            .virtual_servers
            .contains_key(&web)
    );
    let left = servers_at(&running.kernel, "192.168.50.1");
    assert!(left > 0 && left < known, "{left} of {known}");
    running.kernel.eyes().blind = false;
    running.wait(|applied| applied.failed == 0);
    running.stop();
}

/// Without ever having seen the node's addresses, it would take its node ports away and route too
/// much to itself.
#[test]
fn nothing_is_written_before_addresses_could_be_read_once() {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    kernel.eyes().blind = true;
    let running = Running::start(kernel, state.path());
    assert_eq!(running.program(patient()).failed, 1);
    assert!(running.kernel.lock().log.is_empty());
    running.kernel.eyes().blind = false;
    running.wait(|applied| applied.failed == 0 && applied.operations > 0);
    running.stop();
}

/// Not asked for, a setting may be changed by others; asked for again, it is looked at again.
#[test]
fn what_others_changed_while_it_was_not_asked_for_is_put_right_when_it_is_again() {
    let (running, _state) = programmed();
    let name = FLOWS[0];
    let value = |kernel: &SharedModel| kernel.lock().state.sysctls.get(name).cloned();
    running.program(asking());
    assert_eq!(value(&running.kernel).as_deref(), Some("20"), "S-235");
    running.program(patient());
    assert_eq!(value(&running.kernel).as_deref(), Some("20"), "not undone");
    let mut kernel = running.kernel.lock();
    kernel.state.sysctls.insert(name.into(), "30".into());
    drop(kernel);
    running.program(asking());
    assert_eq!(value(&running.kernel).as_deref(), Some("20"), "S-235");
    running.stop();
}

/// S-239: a condition and a warning, no failure; and nothing is written.
#[test]
fn ipv6_that_is_not_forwarded_is_told_where_services_of_the_family_are() {
    let (state, health) = (TempDir::new().unwrap(), Arc::<Health>::default());
    let running = Running::start_with(SharedModel::default(), state.path(), health.clone());
    let forwards = |value: &str| {
        let mut kernel = running.kernel.lock();
        kernel
            .state
            .sysctls
            .insert(IPV6_FORWARDING.into(), value.into());
    };
    let told = || {
        health
            .unwritten()
            .borrow()
            .iter()
            .cloned()
            .collect::<Vec<_>>()
    };
    forwards("0");
    assert_eq!(running.program(patient()).failed, 0);
    let now = told();
    assert!(
        matches!(&*now, [one] if one.starts_with("net.ipv6.conf.all.forwarding is 0")),
        "{now:?}"
    );
    let kept = running
        .kernel
        .lock()
        .state
        .sysctls
        .get(IPV6_FORWARDING)
        .cloned();
    assert_eq!(kept.as_deref(), Some("0"), "left as it is");
    let mut of_ipv4 = patient();
    for port in of_ipv4
        .services
        .iter_mut()
        .flat_map(|service| &mut service.ports)
    {
        port.frontends
            .retain(|frontend| frontend.address.is_some_and(|address| address.is_ipv4()));
    }
    running.program(of_ipv4);
    assert_eq!(told(), [""; 0], "no Service of the family");
    running.program(patient());
    assert_eq!(told().len(), 1);
    forwards("1");
    running.program(asking());
    assert_eq!(told(), [""; 0]);
    running.stop();
}
