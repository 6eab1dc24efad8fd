//! Session affinity: clients stay with their pod for the timeout, and no longer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{CLIENTS, Checks, Lab, POD, Service, answered};
use crate::files::SCHEDULERS;
use crate::harness::manifest_name;
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::client;
use crate::traffic::line::{self, Line};
use crate::waits::{ANSWER, LATER};

const ON: &str =
    "sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}";
const SHORT: &str =
    "sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 3}}";
const OFF: &str = "sessionAffinity: None";
/// Behind the Service `sticky`.
const BACKENDS: [Pod; 3] = [Node::A.pod(1), Node::B.pod(1), Node::B.pod(2)];
const LINES: u16 = 7070;

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("affinity");
    for pod in BACKENDS {
        line::serve(lab.topology.of(Resident::Pod(pod))?, &pod.name(), LINES)?;
    }
    for family in Family::ALL {
        stays(lab, checks, family);
        let what = format!("{family}: a pod with weight 0 loses its clients at once (S-98)");
        checks.check(&what, quiescent(lab, family));
    }
    for family in Family::ALL {
        let what = format!("{family}: a client whose pod is removed gets another at once (S-99)");
        checks.check(&what, leaves(lab, family));
    }
    switches(lab, checks)?;
    expires(lab, checks)
}

fn stays(lab: &Lab<'_>, checks: &mut Checks, family: Family) {
    let to = Service::Sticky.at(family, 80);
    for (kind, protocol, at) in frontends(family) {
        let port = at.port();
        let what = format!(
            "{family}: {kind}, {protocol} port {port}: shows the flag and the timeout (S-95)"
        );
        let shown = lab.shown(protocol, at).and_then(|shown| {
            ensure!(shown == "rr persistent 10800", "{shown:?}");
            Ok(())
        });
        checks.check(&what, shown);
    }
    for from in CLIENTS {
        let client = from.name();
        let what = format!("{family}: ten connections of {client} meet one pod (S-94)");
        checks.check(&what, one(lab, from, to).map(drop));
    }
    let what = format!("{family}: clients are kept apart (S-94)");
    checks.check(
        &what,
        templates(lab, to).and_then(|clients| {
            let wanted = [POD, Resident::Outside].map(|who| who.address(family).to_string());
            ensure!(
                wanted.iter().all(|who| clients.contains(who)),
                "only {clients:?}"
            );
            Ok(())
        }),
    );
}

/// Every frontend of `sticky` on node-a.
fn frontends(family: Family) -> Vec<(&'static str, &'static str, SocketAddr)> {
    let balancer: IpAddr = match family {
        Family::IPv4 => [203, 0, 113, 63].into(),
        Family::IPv6 => [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 0x63].into(),
    };
    let node = Node::A.address(family);
    let ports = [("TCP", 80, 30094), ("UDP", 53, 30095), ("TCP", 7000, 30096)];
    let of_port = |(protocol, port, node_port)| {
        [
            ("cluster IP", protocol, Service::Sticky.at(family, port)),
            ("balancer's address", protocol, (balancer, port).into()),
            ("node port", protocol, (node, node_port).into()),
        ]
    };
    ports.into_iter().flat_map(of_port).collect()
}

/// The one pod that a client meets.
fn one(lab: &Lab<'_>, from: Resident, to: SocketAddr) -> Result<String> {
    let names: BTreeSet<_> = lab.ask(from, to, 10)?.into_iter().collect();
    ensure!(names.len() == 1, "{} met {names:?}", from.name());
    names.into_iter().next().context("no endpoint answered")
}

/// The clients that the kernel of node-a keeps for a virtual server.
fn templates(lab: &Lab<'_>, server: SocketAddr) -> Result<BTreeSet<String>> {
    let listed = lab.tool(Node::A, Program::Ipvsadm, "-Lcn")?;
    let server = server.to_string();
    let mut clients = BTreeSet::new();
    for line in listed.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, client, virtual_server, _] = words[..] else {
            continue;
        };
        if virtual_server != server {
            continue;
        }
        // The port of a template's client is 0.
        if let Some(client) = client.strip_suffix(":0") {
            clients.insert(client.trim_matches(['[', ']']).to_owned());
        }
    }
    Ok(clients)
}

fn backend(name: &str, family: Family) -> Result<SocketAddr> {
    let pod = BACKENDS.into_iter().find(|pod| pod.name() == name);
    let pod = pod.with_context(|| format!("{name} is not behind the Service"))?;
    Ok((pod.address(family), 8080).into())
}

/// Set manually, as for a slowly terminating pod; the agent corrects it at its next resync.
fn quiescent(lab: &Lab<'_>, family: Family) -> Result<()> {
    let to = Service::Sticky.at(family, 80);
    let chosen = one(lab, POD, to)?;
    let real = backend(&chosen, family)?;
    let weigh = |weight| {
        let line = format!("-e -t {to} -r {real} -m -w {weight}");
        lab.tool(Node::A, Program::Ipvsadm, &line)
    };
    weigh("0")?;
    let next = lab.ask(POD, to, 1);
    weigh("1")?;
    let next = next?;
    ensure!(
        next != [chosen.clone()],
        "the next connection met {chosen} again"
    );
    Ok(())
}

fn leaves(lab: &Lab<'_>, family: Family) -> Result<()> {
    let to = Service::Sticky.at(family, 80);
    let chosen = one(lab, POD, to)?;
    let address = backend(&chosen, family)?.ip();
    let (file, slices) = (manifest_name(SCHEDULERS[1]), &lab.state.slices);
    lab.put(&file, &without(slices, "sticky", &address.to_string())?)?;
    let next = lab.ask(POD, to, 3);
    lab.put(&file, slices)?;
    let next = next?;
    ensure!(
        !next.contains(&chosen),
        "connections met {next:?} after {chosen} was removed"
    );
    Ok(())
}

/// The slices without one endpoint of one Service.
fn without(slices: &str, service: &str, address: &str) -> Result<String> {
    let mut gone = 0;
    let mut documents = Vec::new();
    for document in slices.split("---\n") {
        let ours = document.contains(&format!("service-name: {service}}}"));
        let mut text = String::new();
        for line in document.lines() {
            if ours && line.contains(&format!("[\"{address}\"]")) {
                gone += 1;
            } else {
                text += line;
                text.push('\n');
            }
        }
        documents.push(text);
    }
    ensure!(
        gone == 1,
        "{address} is {gone} times in the slices of {service}"
    );
    Ok(documents.join("---\n"))
}

/// S-97: off and on again, with a connection open all the while.
fn switches(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let deadline = lab.limit(ANSWER);
    let mut lines = Vec::new();
    for family in Family::ALL {
        let to = Service::Sticky.at(family, 7000);
        let mut line = Line::open(lab.topology.of(POD)?, to, deadline)?;
        line.lives()?;
        lines.push((family, line));
    }
    for (from, to, shown) in [
        (ON, OFF, "rr"),
        (OFF, SHORT, "rr persistent 3"),
        (SHORT, ON, "rr persistent 10800"),
    ] {
        lab.change_services(from, to)?;
        for (family, line) in &mut lines {
            let what = format!(
                "{family}: {shown:?} is set in place and an open connection goes on (S-97)"
            );
            let now = lab.shown("TCP", Service::Sticky.at(*family, 7000))?;
            checks.check(
                &what,
                if now == shown {
                    line.lives()
                } else {
                    Err(anyhow::anyhow!("{now:?}"))
                },
            );
        }
    }
    Ok(())
}

/// Over UDP, because the kernel keeps a client at least as long as its connections, and a TCP
/// connection that was closed is kept for two minutes (S-96).
fn expires(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.tool(Node::A, Program::Ipvsadm, "--set 0 0 1")?;
    lab.change_services(ON, SHORT)?;
    for family in Family::ALL {
        let what =
            format!("{family}: after the timeout a client is forgotten, not before (S-94, S-96)");
        checks.check(&what, forgotten(lab, family));
    }
    lab.change_services(SHORT, ON)
}

fn forgotten(lab: &Lab<'_>, family: Family) -> Result<()> {
    let to = Service::Sticky.at(family, 53);
    let me = POD.address(family).to_string();
    let first = datagram(lab, to)?;
    let mut last = Instant::now();
    for _ in 0..3 {
        last = Instant::now();
        let next = datagram(lab, to)?;
        ensure!(next == first, "met {next} and {first} within the timeout");
    }
    ensure!(
        templates(lab, to)?.contains(&me),
        "the kernel keeps no client"
    );
    lab.eventually("the kernel to forget the client", LATER, || {
        ensure!(!templates(lab, to)?.contains(&me), "it is there");
        Ok(())
    })?;
    let after = last.elapsed();
    // It counts in seconds from the last datagram, and rounds.
    ensure!(
        after >= Duration::from_secs(2),
        "forgotten after {} ms",
        after.as_millis()
    );
    let next = datagram(lab, to)?;
    ensure!(
        next != first,
        "another would have been next, but {next} answered again"
    );
    Ok(())
}

fn datagram(lab: &Lab<'_>, to: SocketAddr) -> Result<String> {
    let deadline = lab.limit(ANSWER);
    let attempt = lab.inside(POD, || Ok(client::udp(to, deadline)))?;
    answered(attempt.outcome)
}
