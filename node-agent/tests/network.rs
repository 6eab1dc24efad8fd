//! The programmer and the node's own network: reactions to added and removed interfaces, addresses and routes. The
//! tests send the notifications themselves, and none waits for the sync period.

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
use portolan_agent::plan_watch::Woken;
use portolan_plan::{FrontendDocument, FrontendKind, Period, PlanDocument};
use portolan_reconcile::Op;
use tempfile::TempDir;

use running::{Running, address, document};

/// A plan with a node port on every address, and a sync period of hours.
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

/// A programmer that has applied the plan, and the folder for its state.
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

/// S-37: an address serves node ports from its addition until its removal.
#[test]
fn node_ports_follow_the_nodes_addresses_without_reading_anything_else() {
    let (running, _state) = programmed();
    let looks = running.kernel.faults().services;
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
    running.plans.disturb();
    running.until("node ports on the new address", |kernel| {
        servers_at(kernel, "192.168.60.7") == known
    });
    let mut kernel = running.kernel.lock();
    kernel.state.host.addresses.retain(|held| *held != added);
    drop(kernel);
    running.plans.disturb();
    running.until("no virtual server on the removed address", |kernel| {
        servers_at(kernel, "192.168.60.7") == 0
    });
    assert_eq!(running.kernel.faults().services, looks, "S-185");
    running.stop();
}

/// A deleted route of the agent, or the deleted device, is restored without waiting for the sync period.
#[test]
fn deleted_routes_and_devices_are_restored() {
    let (running, _state) = programmed();
    let routes = running.kernel.lock().state.routes.clone();
    assert!(routes.len() > 1, "{routes:?}");
    running.kernel.lock().state.routes.pop_first();
    running.plans.disturb();
    running.until("the route", |kernel| kernel.lock().state.routes == routes);
    let mut kernel = running.kernel.lock();
    kernel.state.routes.clear();
    kernel.state.device_up = false;
    drop(kernel);
    running.plans.disturb();
    running.until("the device with its routes", |kernel| {
        let state = &kernel.lock().state;
        state.device_up && state.routes == routes
    });
    running.stop();
}

/// I-4: most events of a node's network do not concern the agent.
#[test]
fn an_event_without_a_change_costs_one_read_and_no_write() {
    let (running, _state) = programmed();
    let before = running.kernel.faults().clone();
    let written = running.kernel.lock().log.len();
    running.plans.disturb();
    running.until("a read", |kernel| kernel.faults().network > before.network);
    let kernel = running.stop();
    let after = kernel.faults().clone();
    assert_eq!(after.network, before.network + 1);
    assert_eq!(after.services, before.services);
    assert_eq!(kernel.lock().log.len(), written);
}

/// The agent's writes cause events as well.
#[test]
fn the_agents_own_changes_cause_no_further_writes() {
    let (running, _state) = programmed();
    let before = running.kernel.faults().network;
    let routes = running.kernel.lock().state.routes.clone();
    running.kernel.lock().state.routes.clear();
    running.plans.disturb();
    running.until("the routes", |kernel| kernel.lock().state.routes == routes);
    let written = running.kernel.lock().log.len();
    // The event of the agent's own write, after two reads without routes.
    running.plans.disturb();
    running.until("one more read", |kernel| {
        kernel.faults().network == before + 3
    });
    let kernel = running.stop();
    assert_eq!(kernel.faults().network, before + 3);
    assert_eq!(kernel.lock().log.len(), written);
}

/// S-37: a list that changed while it was read may lack existing entries.
#[test]
fn a_read_that_is_not_confirmed_by_a_second_one_is_not_used() {
    let (running, _state) = programmed();
    let before = running.kernel.faults().network;
    let written = running.kernel.lock().log.len();
    let whole = running.kernel.lock().state.network();
    let lacking = |count: usize| {
        let mut network = whole.clone();
        network.host.addresses.truncate(count);
        network
    };
    running.kernel.faults().next_networks = [lacking(0), lacking(1)].into();
    running.plans.disturb();
    running.until("three reads", |kernel| {
        kernel.faults().network >= before + 3
    });
    // If no two reads agree, the last one counts, so that a flood of changes does not block the agent.
    let mut four = [0, 1, 0, 1].map(lacking);
    four[3].routes.clear();
    running.kernel.faults().next_networks = four.into();
    running.until("the notification to be processed", |_| {
        running.plans.wait(Duration::ZERO) == Woken::TimedOut
    });
    assert_eq!(running.kernel.lock().log.len(), written);
    running.plans.disturb();
    running.until("the routes that the fourth read lacked", |kernel| {
        kernel.lock().log.len() > written
    });
    let kernel = running.stop();
    assert_eq!(kernel.faults().network, before + 7);
}

#[test]
fn before_the_first_plan_nothing_is_read_or_written() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    for _ in 0..100 {
        running.plans.disturb();
    }
    // This wait does not take the disturbance; only the programmer does.
    running.until("the notification to be processed", |_| {
        running.plans.wait(Duration::ZERO) == Woken::TimedOut
    });
    let kernel = running.stop();
    assert_eq!(kernel.faults().network, 0);
    assert!(kernel.lock().log.is_empty(), "I-4, S-183");
}

const FLOWS: [&str; 2] = [
    "net.netfilter.nf_conntrack_udp_timeout",
    "net.netfilter.nf_conntrack_udp_timeout_stream",
];

/// A plan that sets these to 20 s and 90 s.
fn asking() -> PlanDocument {
    let mut plan = patient();
    plan.settings.conntrack.udp_timeout = Period::seconds(20);
    plan.settings.conntrack.udp_stream_timeout = Period::seconds(90);
    plan
}

/// The settings that are written to a kernel with these values, once the plan requires them.
fn writes(values: [&str; 2]) -> Vec<String> {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    for (name, value) in FLOWS.into_iter().zip(values) {
        let settings = &mut kernel.lock().state.sysctls;
        settings.insert(name.into(), value.into());
    }
    let running = Running::start(kernel, state.path());
    running.program(patient());
    // They are required only now, after the kernel was read.
    running.program(asking());
    let kernel = running.stop();
    let kernel = kernel.lock();
    let own = |op: &&Op| matches!(op, Op::Sysctl(op) if op.name.contains("udp"));
    let written = kernel.log.iter().filter(own);
    written.map(ToString::to_string).collect()
}

/// Correct values are not written: `/proc/sys` may be read-only (S-174, S-235).
#[test]
fn correct_settings_are_read_and_not_written() {
    assert_eq!(writes(["20", "90"]), [""; 0]);
    let written = writes(["30", "90"]);
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].contains("udp_timeout to 20"), "{written:?}");
    assert_eq!(writes(["30", "120"]).len(), 2);
}

/// S-38: the rest continues with the known addresses, and the failure is reported while it lasts.
#[test]
fn while_addresses_cannot_be_read_the_last_known_ones_are_used() {
    let (running, _state) = programmed();
    let known = servers_at(&running.kernel, "192.168.50.1");
    running.kernel.faults().network_unreadable = true;
    running.plans.disturb();
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
    running.kernel.faults().network_unreadable = false;
    running.wait(|applied| applied.failed == 0);
    running.stop();
}

/// Without the node's addresses, the agent would remove node ports and route too much to the node itself.
#[test]
fn nothing_is_written_before_addresses_could_be_read_once() {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    kernel.faults().network_unreadable = true;
    let running = Running::start(kernel, state.path());
    assert_eq!(running.program(patient()).failed, 1);
    assert!(running.kernel.lock().log.is_empty());
    running.kernel.faults().network_unreadable = false;
    running.wait(|applied| applied.failed == 0 && applied.operations > 0);
    running.stop();
}

/// A setting that is not required may be changed by other programs. It is read again when it is required again.
#[test]
fn a_setting_changed_by_others_is_corrected_when_it_is_required_again() {
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

/// S-239: a condition and a warning, but no failure, and the setting is not written.
#[test]
fn disabled_ipv6_forwarding_is_reported_if_ipv6_services_exist() {
    let (state, health) = (TempDir::new().unwrap(), Arc::<Health>::default());
    let running = Running::start_with(SharedModel::default(), state.path(), health.clone());
    let forwards = |value: &str| {
        let mut kernel = running.kernel.lock();
        kernel
            .state
            .sysctls
            .insert(IPV6_FORWARDING.into(), value.into());
    };
    let reported = || {
        health
            .unwritten()
            .borrow()
            .iter()
            .cloned()
            .collect::<Vec<_>>()
    };
    forwards("0");
    assert_eq!(running.program(patient()).failed, 0);
    let now = reported();
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
    assert_eq!(kept.as_deref(), Some("0"), "unchanged");
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
    assert_eq!(reported(), [""; 0], "no Service of the family");
    running.program(patient());
    assert_eq!(reported().len(), 1);
    forwards("1");
    running.program(asking());
    assert_eq!(reported(), [""; 0]);
    running.stop();
}
