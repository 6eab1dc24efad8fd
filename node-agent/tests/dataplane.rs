//! The programmer on a model kernel: the nftables dataplane, and changes between the dataplanes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::time::Duration;

use portolan_agent::kernel::SharedModel;
use portolan_agent::traffic::Traffic;
use portolan_plan::{Dataplane, Family, Period, PlanDocument, Protocol};
use portolan_reconcile::{Flow, VirtualServerKey};
use tempfile::TempDir;

use running::{Running, document};

const WEB: &str = "TCP 10.96.0.20:80";

fn served_by(dataplane: Dataplane) -> PlanDocument {
    let mut document = document();
    document.settings.dataplane = dataplane;
    document
}

/// One endpoint of a Service is gone.
fn with_fewer_endpoints(dataplane: Dataplane) -> PlanDocument {
    let mut document = served_by(dataplane);
    for service in document
        .services
        .iter_mut()
        .filter(|service| &*service.name == "web")
    {
        for port in &mut service.ports {
            let last = port
                .internal
                .endpoints
                .iter()
                .rposition(|it| it.address.is_ipv4());
            port.internal.endpoints.remove(last.unwrap());
        }
    }
    document
}

/// The IPv4 backends of a frontend in the tables.
fn table_backends(kernel: &SharedModel) -> usize {
    let servers = kernel.tables().lock().observed.virtual_servers();
    servers[&WEB.parse().unwrap()].real_servers.len()
}

/// Whether the kernel has nothing of the IPVS dataplane.
fn is_without_ipvs(kernel: &SharedModel) -> bool {
    let state = &kernel.lock().state;
    state.virtual_servers.is_empty()
        && state.rules.values().all(|rules| rules.is_empty())
        && state.sets.is_empty()
        && state.policy.is_empty()
        && state.routes.is_empty()
        && !state.device_up
}

fn tables(kernel: &SharedModel) -> usize {
    kernel.tables().lock().observed.tables.len()
}

fn servers(kernel: &SharedModel) -> Vec<VirtualServerKey> {
    let state = &kernel.lock().state;
    state.virtual_servers.keys().copied().collect()
}

#[test]
fn nftables_serves_without_anything_of_ipvs() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let applied = running.program(served_by(Dataplane::Nftables));
    assert_eq!((applied.failed, &applied.failures), (0, &Vec::new()));
    assert!(is_without_ipvs(&running.kernel));
    assert_eq!(tables(&running.kernel), Family::BOTH.len());
    let settings = running.kernel.lock().state.sysctls.clone();
    assert!(settings.contains_key("net.ipv4.ip_forward"));
    assert!(!settings.keys().any(|name| name.contains(".vs.")));
    running.stop();
}

#[test]
fn a_change_of_a_service_costs_only_that() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = served_by(Dataplane::Nftables);
    running.program(document.clone());
    running.wait(|applied| applied.generation == 1);
    for service in document
        .services
        .iter_mut()
        .filter(|service| &*service.name == "web")
    {
        for port in &mut service.ports {
            port.internal.endpoints.pop();
        }
    }
    let (reads, commits) = {
        let tables = running.kernel.tables().lock();
        (tables.reads, tables.commits.len())
    };
    let applied = running.program(document);
    assert_eq!((applied.failed, applied.services), (0, Some(1)));
    let tables = running.kernel.tables().lock();
    assert_eq!((tables.reads, tables.commits.len()), (reads, commits + 1));
    drop(tables);
    running.stop();
}

#[test]
fn a_change_of_the_dataplane_leaves_nothing_of_the_other_one() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(served_by(Dataplane::Ipvs)).failed, 0);
    let before = servers(&running.kernel);
    assert!(!before.is_empty());
    for _ in 0..2 {
        assert_eq!(running.program(served_by(Dataplane::Nftables)).failed, 0);
        assert_eq!(tables(&running.kernel), Family::BOTH.len());
        running.until("IPVS is gone", is_without_ipvs);
        running.kernel.tables().lock().commits.clear();
        assert_eq!(running.program(served_by(Dataplane::Ipvs)).failed, 0);
        assert_eq!(servers(&running.kernel), before);
        running.until("the tables are gone", |kernel| tables(kernel) == 0);
        let commits = running.kernel.tables().lock().commits.concat();
        assert_eq!(
            commits,
            [
                "replace rules of the IPv4 table",
                "replace rules of the IPv6 table",
                "replace the IPv4 table",
                "replace the IPv6 table",
            ]
        );
    }
    running.stop();
}

#[test]
fn without_nf_tables_ipvs_goes_on_serving() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(served_by(Dataplane::Ipvs));
    let before = running.kernel.lock().state.clone();
    running.kernel.faults().without_nf_tables = true;
    let applied = running.program(served_by(Dataplane::Nftables));
    assert_eq!(applied.failed, 1);
    assert!(applied.failures[0].contains("nf_tables"), "{applied:?}");
    assert_eq!(running.kernel.lock().state, before);
    // It also follows the plan.
    let web: VirtualServerKey = WEB.parse().unwrap();
    let backends = |kernel: &SharedModel| {
        let servers = &kernel.lock().state.virtual_servers;
        servers[&web].real_servers.len()
    };
    let had = backends(&running.kernel);
    assert_eq!(
        running
            .program(with_fewer_endpoints(Dataplane::Nftables))
            .failed,
        1
    );
    assert_eq!(backends(&running.kernel), had - 1);
    running.kernel.faults().without_nf_tables = false;
    running.until("IPVS is gone", is_without_ipvs);
    assert_eq!(tables(&running.kernel), Family::BOTH.len());
    running.stop();
}

/// While IPVS cannot be programmed completely, the tables serve and follow the plan.
#[test]
fn without_rules_of_ipvs_the_tables_go_on_serving() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(served_by(Dataplane::Nftables));
    let had = table_backends(&running.kernel);
    running.kernel.faults().refused_rules = Some(Family::Ipv6);
    assert!(running.program(served_by(Dataplane::Ipvs)).failed > 0);
    assert_eq!(table_backends(&running.kernel), had);
    assert!(
        running
            .program(with_fewer_endpoints(Dataplane::Ipvs))
            .failed
            > 0
    );
    assert_eq!(table_backends(&running.kernel), had - 1);
    running.kernel.faults().refused_rules = None;
    running.until("the tables are gone", |kernel| tables(kernel) == 0);
    running.stop();
}

/// Without the addresses of the node, its node ports are unknown.
#[test]
fn no_table_is_written_before_addresses_could_be_read() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.kernel.faults().network_unreadable = true;
    assert!(running.program(served_by(Dataplane::Nftables)).failed > 0);
    assert_eq!(tables(&running.kernel), 0);
    running.kernel.faults().network_unreadable = false;
    running.until("both tables", |kernel| tables(kernel) == Family::BOTH.len());
    running.stop();
}

#[test]
fn connections_of_ipvs_go_on_until_they_end() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(served_by(Dataplane::Ipvs));
    let web: VirtualServerKey = WEB.parse().unwrap();
    {
        let mut kernel = running.kernel.lock();
        let backends = kernel.state.virtual_servers[&web].real_servers.clone();
        let counts = backends.iter().map(|(backend, _)| (backend, 1)).collect();
        kernel.connections.insert(web, counts);
    }
    assert_eq!(running.program(served_by(Dataplane::Nftables)).failed, 0);
    running.until("only the busy virtual server is left", |kernel| {
        servers(kernel) == [web]
    });
    assert!(!running.draining().is_empty());
    assert!(
        !is_without_ipvs(&running.kernel),
        "its packets still arrive"
    );
    running.kernel.lock().connections.clear();
    running.until("IPVS is gone", is_without_ipvs);
    running.stop();
}

#[test]
fn connections_of_the_tables_go_on_until_they_end() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(served_by(Dataplane::Nftables));
    let flow = |by_rules| Flow {
        source: "10.244.1.9:40000".parse().unwrap(),
        destination: "10.96.0.20:80".parse().unwrap(),
        reply_source: "10.244.2.5:8080".parse().unwrap(),
        zone: 0,
        id: Some(1),
        by_rules,
    };
    let set = |flows: &[Flow]| {
        let mut tables = running.kernel.tables().lock();
        let all = flows.iter().copied().collect();
        drop(tables.flows.insert(Protocol::Tcp, all));
    };
    set(&[flow(true)]);
    let mut document = served_by(Dataplane::Ipvs);
    document.settings.sync.period = Period::seconds(1);
    assert_eq!(running.program(document).failed, 0);
    assert_eq!(servers(&running.kernel).len(), 5);
    running.until("the table of IPv6 is gone", |kernel| tables(kernel) == 1);
    let kept = running.kernel.tables().lock().observed.tables[&Family::Ipv4].clone();
    assert!(kept.frontends.is_empty(), "it takes no new connections");
    let before = running.plans.heartbeat().count();
    std::thread::sleep(Duration::from_millis(500));
    let steps = running.plans.heartbeat().count() - before;
    assert!(steps < 1000, "it waits for the sync period: {steps} steps");
    // One of IPVS is not the table's.
    set(&[flow(false)]);
    running.until("both tables are gone", |kernel| tables(kernel) == 0);
    running.stop();
}

/// An agent that starts with IPVS removes the tables that an earlier one left.
#[test]
fn tables_of_an_earlier_agent_are_removed() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(served_by(Dataplane::Nftables));
    let again = Running::start(running.stop(), state.path());
    assert_eq!(again.program(served_by(Dataplane::Ipvs)).failed, 0);
    again.until("the tables are gone", |kernel| tables(kernel) == 0);
    let again = Running::start(again.stop(), state.path());
    let commits = again.kernel.tables().lock().commits.len();
    assert_eq!(again.program(served_by(Dataplane::Ipvs)).failed, 0);
    assert_eq!(again.kernel.tables().lock().commits.len(), commits);
    again.stop();
}

/// Counters that were there before, and those of the other dataplane, are not traffic.
#[test]
fn connections_are_counted_once_over_a_restart_and_a_change_of_the_dataplane() {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    let web: VirtualServerKey = WEB.parse().unwrap();
    let connections = |kernel: &SharedModel, count: u64| {
        kernel.tables().lock().connections = vec![(web, count)];
    };
    // An earlier agent has left tables.
    connections(&kernel, 500);
    let running = Running::start(kernel, state.path());
    let every_second = |dataplane| {
        let mut document = served_by(dataplane);
        document.settings.sync.period = Period::seconds(1);
        document
    };
    let counted = || {
        let traffic = running.traffic();
        traffic
            .services
            .values()
            .map(|of| of.connections)
            .sum::<u64>()
    };
    let until_counted = |wanted| {
        running.until("the connections are counted", |_| counted() == wanted);
    };
    assert_eq!(running.program(every_second(Dataplane::Nftables)).failed, 0);
    let reads = running.kernel.tables().lock().reads;
    running.until("the tables are read three times", |kernel| {
        kernel.tables().lock().reads >= reads + 3
    });
    assert_eq!(counted(), 0);
    connections(&running.kernel, 507);
    until_counted(7);
    assert!(running.traffic().connections_only);
    let carried = |connections| Traffic {
        connections,
        ..Traffic::default()
    };
    running.kernel.faults().traffic = [(web, carried(700))].into();
    assert_eq!(running.program(every_second(Dataplane::Ipvs)).failed, 0);
    running.until("traffic is that of IPVS", |_| {
        !running.traffic().connections_only
    });
    assert_eq!(counted(), 7);
    running.kernel.faults().traffic = [(web, carried(701))].into();
    until_counted(8);
    running.stop();
}
