//! The programmer on a model kernel: connection draining (section K).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_agent::kernel::SharedModel;
use portolan_plan::PlanDocument;
use portolan_reconcile::{IpvsOp, Op, RealServerKey, UDP_GRACE, VirtualServerKey};
use tempfile::TempDir;

use running::{Running, document};

const WEB: &str = "TCP 10.96.0.20:80";
const DNS: &str = "UDP 10.96.0.10:53";

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

fn backend(text: &str) -> RealServerKey {
    let socket: std::net::SocketAddr = text.parse().unwrap();
    RealServerKey {
        address: socket.ip(),
        port: socket.port(),
    }
}

/// The plan without some endpoints of a Service.
fn without(service: &str, gone: impl Fn(IpAddr) -> bool) -> PlanDocument {
    let mut document = document();
    for found in &mut document.services {
        if &*found.name == service {
            for port in &mut found.ports {
                port.internal.endpoints.retain(|e| !gone(e.address));
            }
        }
    }
    document
}

fn is_first(address: IpAddr) -> bool {
    address == IpAddr::from([10, 244, 1, 5])
}

fn set_connections(kernel: &SharedModel, server: &str, real: &str, count: u64) {
    let connections = &mut kernel.lock().connections;
    let counts = connections.entry(key(server)).or_default();
    counts.insert(backend(real), count);
}

fn weight(kernel: &SharedModel, server: &str, real: &str) -> Option<u32> {
    let kernel = kernel.lock();
    let held = kernel.state.virtual_servers.get(&key(server))?;
    held.real_servers.get(&backend(real))
}

/// S-113, S-114: idle real servers are removed at once, busy ones when they become idle. S-116: those of UDP after a
/// second.
#[test]
fn a_real_server_is_removed_with_its_last_connection() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    set_connections(&running.kernel, WEB, "10.244.1.5:8080", 2);
    set_connections(&running.kernel, DNS, "10.244.1.4:53", 2);
    running.program(without("web", |address| {
        address.is_ipv6() || is_first(address)
    }));
    assert_eq!(weight(&running.kernel, WEB, "10.244.1.5:8080"), Some(0));
    assert_eq!(running.draining(), BTreeSet::from([[10, 244, 1, 5].into()]));
    let idle = "TCP [fd00:10:96::20]:80";
    assert!(
        !running
            .kernel
            .lock()
            .state
            .virtual_servers
            .contains_key(&key(idle))
    );
    let first = IpAddr::from([10, 244, 1, 4]);
    running.program(without("dns", |address| address == first));
    assert_eq!(weight(&running.kernel, DNS, "10.244.1.4:53"), Some(0));
    assert_eq!(
        weight(&running.kernel, WEB, "10.244.1.5:8080"),
        Some(1),
        "S-117"
    );
    assert!(running.draining().is_empty(), "it is wanted again");
    running.until("the UDP real server is gone", |kernel| {
        weight(kernel, DNS, "10.244.1.4:53").is_none()
    });
    running.program(without("web", is_first));
    set_connections(&running.kernel, WEB, "10.244.1.5:8080", 0);
    running.until("the real server is gone", |kernel| {
        weight(kernel, WEB, "10.244.1.5:8080").is_none()
    });
    running.until_drained();
    running.stop();
}

/// S-116, also if it had left before. A time that is not forgotten when the real server returns would end its flows at once.
#[test]
fn a_udp_real_server_that_leaves_again_keeps_its_flows_again() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let first = IpAddr::from([10, 244, 1, 4]);
    let leaves = || without("dns", |address| address == first);
    for returns_early in [false, false, true] {
        running.program(document());
        set_connections(&running.kernel, DNS, "10.244.1.4:53", 2);
        if returns_early {
            running.program(leaves());
            running.program(document());
            // For its first departure, it would be over now.
            std::thread::sleep(UDP_GRACE);
        }
        let begin = Instant::now();
        running.program(leaves());
        running.until("the real server is gone", |kernel| {
            weight(kernel, DNS, "10.244.1.4:53").is_none()
        });
        assert!(begin.elapsed() >= UDP_GRACE);
    }
    running.stop();
}

/// S-115: only an endpoint that left the cluster has a deadline.
#[test]
fn the_deadline_runs_from_when_the_endpoint_is_gone() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let fast = |mut document: PlanDocument| {
        for service in &mut document.services {
            service.drain_seconds = Some(0);
        }
        document
    };
    running.program(document());
    for real in ["10.244.1.5:8080", "10.244.2.5:8080"] {
        set_connections(&running.kernel, WEB, real, 1);
    }
    let second = IpAddr::from([10, 244, 2, 5]);
    running.program(fast(without("web", |a| is_first(a) || a == second)));
    running.plans.set_gone(BTreeSet::from([second]));
    running.until("the endpoint that left is removed", |kernel| {
        weight(kernel, WEB, "10.244.2.5:8080").is_none()
    });
    assert_eq!(weight(&running.kernel, WEB, "10.244.1.5:8080"), Some(0));
    running.stop();
}

/// S-115, for an address that another pod had before: its deadline does not run from when that one left.
#[test]
fn the_deadline_of_an_address_that_is_used_again_runs_from_its_last_endpoint() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let slow = |mut document: PlanDocument| {
        for service in &mut document.services {
            service.drain_seconds = Some(1);
        }
        document
    };
    let first = IpAddr::from([10, 244, 1, 5]);
    for _ in 0..2 {
        running.plans.set_gone(BTreeSet::new());
        running.program(slow(document()));
        set_connections(&running.kernel, WEB, "10.244.1.5:8080", 1);
        running.plans.set_gone(BTreeSet::from([first]));
        let begin = Instant::now();
        running.program(slow(without("web", is_first)));
        running.until("its deadline has passed", |kernel| {
            weight(kernel, WEB, "10.244.1.5:8080").is_none()
        });
        assert!(begin.elapsed() >= Duration::from_secs(1));
    }
    running.stop();
}

/// S-118: draining has no saved state, so a restart loses nothing.
#[test]
fn draining_continues_after_a_restart() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    set_connections(&running.kernel, WEB, "10.244.1.5:8080", 1);
    running.program(without("web", is_first));
    let kernel = running.stop();
    kernel.lock().log.clear();
    let again = Running::start(kernel, state.path());
    again.program(without("web", is_first));
    assert!(again.kernel.lock().log.is_empty(), "nothing is written");
    assert_eq!(again.draining(), BTreeSet::from([[10, 244, 1, 5].into()]));
    set_connections(&again.kernel, WEB, "10.244.1.5:8080", 0);
    again.until_drained();
    assert_eq!(weight(&again.kernel, WEB, "10.244.1.5:8080"), None);
    again.stop();
}

/// S-114, S-120, S-121: without endpoints a virtual server stays for its connections; without its Service it is
/// removed at once.
#[test]
fn a_service_without_endpoints_keeps_its_connections_and_a_deleted_one_does_not() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    set_connections(&running.kernel, WEB, "10.244.1.5:8080", 1);
    let applied = running.program(without("web", |_| true));
    assert_eq!(applied.failures, [""; 0]);
    assert_eq!(weight(&running.kernel, WEB, "10.244.1.5:8080"), Some(0));
    let kernel = running.kernel.clone();
    let left = move || {
        kernel.lock().state.virtual_servers[&key(WEB)]
            .real_servers
            .len()
    };
    assert_eq!(left(), 1, "the idle ones are removed");
    // The endpoints come back, then the Service is deleted.
    running.program(document());
    assert_eq!(left(), 3);
    let mut gone = document();
    gone.services.retain(|service| &*service.name != "web");
    running.program(gone);
    assert!(
        !running
            .kernel
            .lock()
            .state
            .virtual_servers
            .contains_key(&key(WEB))
    );
    assert!(running.draining().is_empty());
    running.program(document());
    let fresh = |op: &Op| matches!(op, Op::Ipvs(IpvsOp::DeleteRealServer { .. }));
    running.kernel.lock().log.clear();
    running.program(without("web", is_first));
    assert_eq!(weight(&running.kernel, WEB, "10.244.1.5:8080"), Some(0));
    // A virtual server that exists only for draining is removed with its last connection.
    running.program(without("web", |_| true));
    assert!(running.kernel.lock().log.iter().any(fresh));
    set_connections(&running.kernel, WEB, "10.244.1.5:8080", 0);
    running.until("the virtual server is gone", |kernel| {
        !kernel.lock().state.virtual_servers.contains_key(&key(WEB))
    });
    running.stop();
}
