//! Stale UDP flows on a model kernel: when the programmer searches for them, and which it deletes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_agent::kernel::SharedModel;
use portolan_plan::{Family, PlanDocument};
use portolan_reconcile::Flow;
use tempfile::TempDir;

use running::{Running, document};

const DNS: &str = "10.96.0.10:53";
const BACKENDS: [&str; 2] = ["10.244.1.4:53", "10.244.2.4:53"];

fn flow(client: u16, to: &str, reply_source: &str) -> Flow {
    Flow {
        source: ([10, 244, 1, 9], client).into(),
        destination: to.parse().unwrap(),
        reply_source: reply_source.parse().unwrap(),
        zone: 0,
        id: Some(client.into()),
        by_rules: false,
    }
}

/// A model with flows to the DNS Service that have these reply sources, one client port each.
fn remembering(reply_sources: &[&str]) -> SharedModel {
    let kernel = SharedModel::default();
    remember(&kernel, reply_sources);
    kernel
}

fn remember(kernel: &SharedModel, reply_sources: &[&str]) {
    let flows = (40_000..).zip(reply_sources);
    let flows = flows.map(|(client, reply_source)| flow(client, DNS, reply_source));
    kernel.lock().flows.extend(flows);
}

fn answering(kernel: &SharedModel) -> Vec<String> {
    let model = kernel.lock();
    model
        .flows
        .iter()
        .map(|flow| flow.reply_source.to_string())
        .collect()
}

fn looks(running: &Running) -> BTreeMap<Family, usize> {
    running.kernel.faults().flows.clone()
}

/// The plan with these backends of the UDP port of DNS.
fn with_backends(backends: &[&str]) -> PlanDocument {
    let mut document = document();
    let mut services = document.services.iter_mut();
    let dns = services.find(|service| &*service.name == "dns").unwrap();
    let list = &mut dns.ports[0].internal.endpoints;
    list.retain(|at| backends.contains(&format!("{}:{}", at.address, at.port).as_str()));
    assert_eq!(list.len(), backends.len());
    document
}

/// S-124, S-126, S-129: stale flows from before the start are deleted, and no others.
#[test]
fn after_the_start_stale_flows_are_deleted_once() {
    let state = TempDir::new().unwrap();
    let kernel = remembering(&[BACKENDS[0], "10.244.1.5:53", DNS]);
    let running = Running::start(kernel, state.path());
    assert_eq!(running.program(document()).failed, 0);
    assert_eq!(answering(&running.kernel), [BACKENDS[0]]);
    let counters = running.flow_counters();
    let counter = counters[&Family::Ipv4];
    assert_eq!(
        (counter.cleanups, counter.deleted, counter.failed),
        (1, 2, 0),
        "S-133"
    );
    assert!(
        !counters.contains_key(&Family::Ipv6),
        "no UDP frontend: S-127"
    );
    running.stop();
}

/// S-128: a cleanup reads the whole table.
#[test]
fn flows_are_read_only_after_udp_backends_have_changed() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(with_backends(&BACKENDS));
    let once = [(Family::Ipv4, 1)].into();
    assert_eq!(looks(&running), once);
    let mut without_web = with_backends(&BACKENDS);
    without_web
        .services
        .retain(|service| &*service.name != "web");
    assert_eq!(running.program(without_web).failed, 0);
    running.program(with_backends(&BACKENDS));
    assert_eq!(looks(&running), once, "TCP only");
    remember(&running.kernel, &BACKENDS);
    running.program(with_backends(&BACKENDS[1..]));
    assert_eq!(looks(&running), [(Family::Ipv4, 2)].into());
    assert_eq!(answering(&running.kernel), [BACKENDS[1]]);
    running.stop();
}

/// S-184, S-128: no cleanup in steady state, regardless of the sync period.
#[test]
fn verifying_the_kernel_reads_no_flows_until_something_was_repaired() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = with_backends(&BACKENDS);
    document.settings.sync.period = "20ms".parse().unwrap();
    running.program(document);
    let services = running.kernel.faults().services;
    running.until("some reads of the kernel", |kernel| {
        kernel.faults().services > services + 3
    });
    assert_eq!(looks(&running), [(Family::Ipv4, 1)].into());
    // Without the virtual server, datagrams are tracked without translation.
    let server = format!("UDP {DNS}").parse().unwrap();
    {
        let mut model = running.kernel.lock();
        assert!(model.state.virtual_servers.remove(&server).is_some());
        model.flows.insert(flow(40_009, DNS, DNS));
    }
    running.until("the flow without translation to be deleted", |kernel| {
        kernel.lock().flows.is_empty()
    });
    assert_eq!(looks(&running), [(Family::Ipv4, 2)].into());
    running.stop();
}

/// S-127: an outage of all backends deletes no flow.
#[test]
fn without_backends_no_flow_is_read() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(with_backends(&BACKENDS));
    remember(&running.kernel, &BACKENDS);
    running.program(with_backends(&[]));
    assert_eq!(looks(&running), [(Family::Ipv4, 1)].into());
    assert_eq!(answering(&running.kernel), BACKENDS);
    running.stop();
}

/// S-130: unreadable flows are skipped without a failure of the plan, and read again later.
#[test]
fn unreadable_flows_are_read_again() {
    let state = TempDir::new().unwrap();
    let running = Running::start(remembering(&[DNS]), state.path());
    let mut document = with_backends(&BACKENDS);
    document.settings.sync.period = "20ms".parse().unwrap();
    running.kernel.faults().flows_unreadable = true;
    assert_eq!(running.program(document).failed, 0);
    running.until("a second read", |kernel| {
        kernel.faults().flows.values().sum::<usize>() > 1
    });
    assert_eq!(answering(&running.kernel), [DNS]);
    assert!(running.flow_counters()[&Family::Ipv4].failed > 0);
    running.kernel.faults().flows_unreadable = false;
    running.until("the stale flow to be deleted", |kernel| {
        kernel.lock().flows.is_empty()
    });
    running.stop();
}

/// S-130: an incomplete list is used, and read again.
#[test]
fn a_list_that_changed_while_it_was_read_is_used_and_read_again() {
    let state = TempDir::new().unwrap();
    let running = Running::start(remembering(&[DNS]), state.path());
    let mut document = with_backends(&BACKENDS);
    document.settings.sync.period = "20ms".parse().unwrap();
    running.kernel.faults().interrupted = true;
    running.program(document);
    assert_eq!(answering(&running.kernel), [""; 0]);
    running.until("more reads", |kernel| {
        kernel.faults().flows.values().sum::<usize>() > 2
    });
    running.kernel.faults().interrupted = false;
    let settled = |kernel: &SharedModel| {
        let before = kernel.faults().clone();
        while kernel.faults().services < before.services + 3 {
            std::thread::sleep(Duration::from_millis(2));
        }
        kernel.faults().flows == before.flows
    };
    running.until("the end of the reads", settled);
    running.stop();
}

/// A table with more stale flows than fit in memory is cleaned in one pass.
#[test]
fn more_stale_flows_than_fit_in_memory_are_all_deleted() {
    let state = TempDir::new().unwrap();
    let running = Running::start(remembering(&[DNS; 10]), state.path());
    running.kernel.faults().flows_at_once = Some(3);
    running.program(with_backends(&BACKENDS));
    assert!(answering(&running.kernel).is_empty());
    assert_eq!(running.flow_counters()[&Family::Ipv4].deleted, 10);
    running.stop();
}
