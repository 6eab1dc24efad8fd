//! How fast the kernel accepts virtual servers: `ipvs-rs` with 1 and 64 messages per send, beside
//! `ipvsadm -R` on the same input. Times are printed and never checked; the resulting state is.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipvs_rs::{Destination, Protocol, Request, Service, ServiceKey, Socket};

use super::{Checks, Scenario, Stage};
use crate::console::Table;
use crate::namespace::{Namespace, Temporary};
use crate::program::Program;
use crate::topology::PREFIX;
use crate::{stop, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "ipvs-rate",
    shows: "operations a second of ipvs-rs beside ipvsadm -R (printed, not judged)",
    run,
};

/// Number of virtual servers in the short and in the long form.
const SERVERS: u32 = 1000;
const SERVERS_LONG: u32 = 10_000;
const BACKENDS: u32 = 10;

/// A way to write this many virtual servers.
type Writer = fn(u32) -> Result<Duration>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let servers = match stage.long {
        true => SERVERS_LONG,
        false => SERVERS,
    };
    let operations = servers * (1 + BACKENDS);
    let ways: [(&str, Writer); 3] = [
        ("ipvs-rs, 64 messages a send", |servers| {
            through_socket(servers, 64)
        }),
        ("ipvs-rs, 1 message a send", |servers| {
            through_socket(servers, 1)
        }),
        ("ipvsadm -R", through_ipvsadm),
    ];
    let mut measured = Vec::new();
    // All namespaces stay until the end: taking one down is work for the kernel, which would
    // slow the next measurement.
    let mut namespaces = Vec::new();
    for (number, (name, write)) in ways.into_iter().enumerate() {
        stop::check()?;
        let namespace = Temporary::make(&format!("{PREFIX}rate-{number}"))?;
        let took = namespace
            .namespace()
            .inside(|| write(servers))
            .context(name)?;
        checks.check(
            &format!("{name}: the kernel holds all of it"),
            holds_all(namespace.namespace(), servers),
        );
        measured.push((name, took));
        namespaces.push(namespace);
    }
    let slowest = measured.iter().map(|way| way.1).max().unwrap_or_default();
    let mut table = Table::new(["WRITER", "SECONDS", "OPERATIONS/s", "TIMES ipvsadm"]);
    let ipvsadm = measured.last().map_or(slowest, |way| way.1);
    for (name, took) in measured {
        table.row([
            name.to_owned(),
            format!("{:7.2}", took.as_secs_f64()),
            format!("{:12.0}", f64::from(operations) / took.as_secs_f64()),
            format!("{:13.1}", ipvsadm.as_secs_f64() / took.as_secs_f64()),
        ]);
    }
    stage.console.line(&format!(
        "{servers} virtual servers x {BACKENDS} real servers = {operations} operations"
    ));
    stage.console.table(&table);
    Ok(())
}

/// Virtual servers from 10.96.0.0, each with backends of its own from 10.128.0.0.
fn addresses(servers: u32) -> impl Iterator<Item = (Ipv4Addr, Vec<Ipv4Addr>)> {
    let from = |base: [u8; 4], n: u32| Ipv4Addr::from(u32::from(Ipv4Addr::from(base)) + n);
    (0..servers).map(move |server| {
        let backends = (0..BACKENDS).map(|n| from([10, 128, 0, 0], server * BACKENDS + n));
        (from([10, 96, 0, 0], server), backends.collect())
    })
}

fn through_socket(servers: u32, per_send: usize) -> Result<Duration> {
    let mut requests = Vec::new();
    for (server, backends) in addresses(servers) {
        let key = ServiceKey::address(Protocol::Tcp, IpAddr::V4(server), 80);
        requests.push(Request::NewService(Service::new(key, "rr")));
        for backend in backends {
            let backend = Destination::masquerade(IpAddr::V4(backend), 8080, 1);
            requests.push(Request::NewDestination(key, backend));
        }
    }
    let start = Instant::now();
    let mut socket = Socket::open()?;
    let results = socket.execute(&requests, per_send);
    let took = start.elapsed();
    ensure!(results.len() == requests.len(), "{} results", results.len());
    // The error names its request.
    results.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(took)
}

fn through_ipvsadm(servers: u32) -> Result<Duration> {
    let mut input = String::new();
    for (server, backends) in addresses(servers) {
        writeln!(input, "-A -t {server}:80 -s rr")?;
        for backend in backends {
            writeln!(input, "-a -t {server}:80 -r {backend}:8080 -m -w 1")?;
        }
    }
    let start = Instant::now();
    Program::Ipvsadm.run_with_input(&["-R"], &input)?;
    Ok(start.elapsed())
}

/// Counts by a dump of `ipvs-rs`: the same state through `ipvsadm -Sn` takes ten times longer.
fn holds_all(namespace: &Namespace, servers: u32) -> Result<()> {
    namespace.inside(|| {
        let mut socket = Socket::open()?;
        let found = socket.services()?;
        let mut backends = 0;
        for server in &found {
            backends += socket.destinations(&server.key)?.len();
        }
        ensure!(
            found.len() == servers as usize && backends == (servers * BACKENDS) as usize,
            "{} virtual servers and {backends} real servers",
            found.len()
        );
        Ok(())
    })
}
