//! Node ports on loopback addresses (S-234), with real sockets and streams.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod ports;
#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_agent::kernel::SharedModel;
use portolan_agent::loopback;
use portolan_plan::{EndpointDocument, FrontendDocument, FrontendKind, PlanDocument};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use ports::free_port;
use running::{Running, document};

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// A server that sends its name and echoes its input.
fn server(address: IpAddr, name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut input = String::new();
            stream.read_to_string(&mut input).unwrap();
            stream
                .write_all(format!("{name} got {input}").as_bytes())
                .unwrap();
        }
    });
    place
}

/// The reply to a client that shuts down its half of the stream.
fn ask(place: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"hello")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "timeout: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve(running: &Running) -> impl Future<Output = ()> + use<> {
    loopback::serve(running.plans.clone(), running.applied(), Arc::default())
}

/// A plan with one node port and these backends.
fn plan(words: &[&str], port: u16, backends: &[SocketAddr]) -> PlanDocument {
    let mut document = document();
    document.settings.node_port_addresses = words.iter().map(ToString::to_string).collect();
    document.settings.sync.period = "5h".parse().unwrap();
    let mut ports = document
        .services
        .iter_mut()
        .flat_map(|service| &mut service.ports);
    let served = ports.find(|port| port.frontends.len() > 1).unwrap();
    served.frontends.push(FrontendDocument {
        kind: FrontendKind::NodePort,
        address: None,
        port,
    });
    let mut external = served.internal.clone();
    external.endpoints = backends
        .iter()
        .map(|backend| EndpointDocument {
            address: backend.ip(),
            port: backend.port(),
            weight: 1,
        })
        .collect();
    // Internal and external lists with the same scope are one entry, so both have to be equal.
    served.internal.clone_from(&external);
    served.external = Some(external);
    document
}

#[test]
fn clients_of_the_node_are_proxied_to_a_backend_of_the_current_plan() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let runtime = Runtime::new().unwrap();
    runtime.spawn(serve(&running));
    let port = free_port();
    let places = LOOPBACK.map(|address| SocketAddr::new(address, port));
    let servers = LOOPBACK.map(|address| server(address, "first"));
    running.program(plan(&["primary"], port, &servers));
    for place in places {
        assert!(
            TcpStream::connect(place).is_err(),
            "{place} is open without the setting"
        );
    }
    running.program(plan(&["primary", "localhost"], port, &servers));
    for place in places {
        until("an open port", || ask(place).is_ok());
        assert_eq!(ask(place).unwrap(), "first got hello", "{place}");
    }
    // A backend that does not answer costs an attempt, but not the connection.
    let dead = SocketAddr::new(LOOPBACK[0], free_port());
    let second = LOOPBACK.map(|address| server(address, "second"));
    running.program(plan(&["localhost"], port, &[&[dead], &second[..]].concat()));
    for place in places.iter().cycle().take(6) {
        assert_eq!(ask(*place).unwrap(), "second got hello", "{place}");
    }
    running.program(plan(&["localhost"], port, &[]));
    for place in places {
        assert_eq!(ask(place).unwrap_or_default(), "", "{place} has no backend");
    }
    running.program(plan(&["primary"], port, &second));
    for place in places {
        until("a closed port", || TcpStream::connect(place).is_err());
    }
    running.stop();
}

#[test]
fn a_port_in_use_is_opened_when_it_is_free() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let runtime = Runtime::new().unwrap();
    runtime.spawn(serve(&running));
    let daemon = TcpListener::bind((LOOPBACK[0], 0)).unwrap();
    let place = daemon.local_addr().unwrap();
    let servers = LOOPBACK.map(|address| server(address, "pod"));
    running.program(plan(&["localhost"], place.port(), &servers));
    let other = SocketAddr::new(LOOPBACK[1], place.port());
    until("the other family", || ask(other).is_ok());
    drop(daemon);
    until("the port", || {
        ask(place).is_ok_and(|answer| answer == "pod got hello")
    });
    running.stop();
}
