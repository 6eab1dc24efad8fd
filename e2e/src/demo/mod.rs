//! `cargo demo`: a cluster of two nodes, its plans, the kernel, clients, and a change on its way
//! from a file to the kernel. Everything shown is also checked.

mod change;
pub mod cluster;
mod kernel;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::checks::Checks;
use crate::cluster::Cluster;
use crate::console::{Console, Table};
use crate::dataplane::Dataplane;
use crate::files::Files;
use crate::manifests::Manifests;
use crate::stage::Stage;
use crate::stop;
use crate::topology::world::{Family, Node, OUTSIDE, Pod, Resident, outside_address};
use crate::topology::{Network, PREFIX, Topology};
use crate::traffic::Protocol;
use crate::traffic::server::Server;

const MANIFESTS: [&str; 5] = [
    "nodes.yaml",
    "services.yaml",
    "endpoints-web.yaml",
    "endpoints-dns.yaml",
    "endpoints-cart.yaml",
];
const POD_PORTS: [(Protocol, u16); 2] = [(Protocol::Tcp, 8080), (Protocol::Udp, 5353)];

/// Runs the demo; with `keep`, the lab stays until a signal arrives. Returns true if everything was
/// as expected.
///
/// # Errors
/// When it cannot go on: the kernel lacks the dataplane, no root, a program is missing or ends.
pub fn run(stage: &Stage, keep: bool) -> Result<bool> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the demo makes network namespaces: run it as root"
    );
    stage.dataplane.require()?;
    let (console, start) = (stage.console, Instant::now());
    let mut checks = Checks::new(console);
    let texts = manifests(&stage.files)?;

    console.heading("A cluster of two nodes in two zones");
    let topology = Arc::new(Topology::build(Network::Routed, stage.waits)?);
    let _servers = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    residents(console);
    let mut cluster = Cluster::new(&topology, stage.waits, stage.dataplane, texts.clone())?;
    let began = Instant::now();
    cluster.start()?;
    let promised = promised(texts.iter().map(|file| &file.1))?;
    for node in Node::ALL {
        cluster.wait_programmed(node, &promised.virtual_servers())?;
    }
    let ms = began.elapsed().as_millis();
    console.line(&format!(
        "controller and agents started, both kernels programmed after {ms} ms"
    ));

    for node in Node::ALL {
        console.heading(&format!("The plan of {}", node.name()));
        console.line(cluster.plan(node, "table")?.trim_end());
    }
    console.heading("The kernel: virtual servers and the Service each belongs to");
    for node in Node::ALL {
        kernel::show(console, &mut checks, &cluster, node)?;
    }
    console.heading("Who answered: client x Service, some requests for each endpoint");
    requests::show(stage, &mut checks, &topology, &promised)?;

    let changed = change::show_all(stage, &mut checks, &mut cluster, &topology, texts)?;
    console.heading("Who answers now");
    requests::show(stage, &mut checks, &topology, &changed)?;

    let claim = "a Service from a manifest to two kernels, its clients, and back out again";
    summary(console, &checks, &cluster, start.elapsed(), claim);
    if keep {
        stay(stage, &cluster)?;
    }
    Ok(checks.all_passed())
}

/// The files that the controller gets, by name.
fn manifests(files: &Files) -> Result<Vec<(String, String)>> {
    MANIFESTS
        .into_iter()
        .map(|name| Ok((name.to_owned(), files.text(&format!("demo/{name}"))?)))
        .collect()
}

fn promised<'a>(texts: impl Iterator<Item = &'a String>) -> Result<Manifests> {
    let mut manifests = Manifests::default();
    for text in texts {
        manifests.add(text)?;
    }
    Ok(manifests)
}

fn residents(console: Console) {
    let mut table = Table::new(["WHO", "ZONE", "IPv4", "IPv6", "PODS"]);
    for node in Node::ALL {
        table.row([
            node.name().to_owned(),
            node.zone().to_owned(),
            node.address(Family::IPv4).to_string(),
            node.address(Family::IPv6).to_string(),
            Pod::on(node).map(Pod::name).collect::<Vec<_>>().join(" ")
                + " in "
                + &node.pod_range(Family::IPv4),
        ]);
    }
    let address = |family| outside_address(family).to_string();
    table.row([
        OUTSIDE.into(),
        "-".into(),
        address(Family::IPv4),
        address(Family::IPv6),
        "-".into(),
    ]);
    console.table(&table);
}

/// The name of the pod that serves at an address, or the address.
fn pod_at(address: SocketAddr) -> String {
    let family = Family::of(address.ip());
    let pod = Pod::all().find(|pod| pod.address(family) == address.ip());
    pod.map_or_else(|| address.to_string(), Pod::name)
}

/// The end of a demo, and whether it showed what it claims.
fn summary(console: Console, checks: &Checks, cluster: &Cluster, took: Duration, claim: &str) {
    console.heading("Summary");
    let memory = Node::ALL.map(|node| {
        let kb = cluster.agent_memory_kb(node).unwrap_or(0);
        format!("{} {}.{} MB", node.name(), kb / 1024, kb % 1024 * 10 / 1024)
    });
    console.line(&format!("memory of the agents: {}", memory.join(", ")));
    console.line(&format!("{checks} in {:.1} s", took.as_secs_f64()));
    console.verdict(checks.all_passed(), claim);
}

fn stay(stage: &Stage, cluster: &Cluster) -> Result<()> {
    let console = stage.console;
    let on_node = |command: &str| format!("ip netns exec {PREFIX}node-a {command}");
    let kernel = match stage.dataplane {
        Dataplane::Ipvs => [
            (on_node("ipvsadm -Ln"), "what the kernel holds"),
            (
                on_node(&format!("ipset list {SET}")),
                "where Services answer",
            ),
        ],
        Dataplane::Nftables => [
            (
                on_node("nft list map ip portolan endpoint"),
                "what the kernel holds",
            ),
            (
                on_node("nft list set ip portolan frontend"),
                "where Services answer",
            ),
        ],
    };
    let folder = cluster.manifests();
    let folder = folder.display();
    console.heading("It keeps running until you end it (Ctrl-C). Try, from another terminal:");
    let clients = [
        (
            "portolan-scenarios dial pod-a3 10.96.0.10:80".to_owned(),
            "ask as a pod",
        ),
        (
            "portolan-scenarios dial outside 10.96.0.53:53 --udp".to_owned(),
            "ask as an external client",
        ),
        (
            format!("vi {folder}/endpoints-web.yaml"),
            "change something and ask again",
        ),
        (
            format!("portolan-controller plan --manifests {folder} --node node-b"),
            "see a plan",
        ),
    ];
    for (command, what) in kernel.into_iter().chain(clients) {
        console.line(&format!(
            "  {command:64}  {}",
            console.paint(crate::console::Colour::Dim, what)
        ));
    }
    while !stop::asked() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

const SET: &str = "PORTOLAN-FRONTEND";

/// Connects as one client to one address, from another terminal while the demo runs.
///
/// # Errors
/// If `from` is no client of the lab, or no lab is running.
pub fn dial(stage: &Stage, from: &str, target: SocketAddr, udp: bool, times: u32) -> Result<bool> {
    let Some(client) = Resident::named(from) else {
        let names: Vec<_> = Resident::all().map(Resident::name).collect();
        bail!(
            "unknown client {from:?}; expected one of {}",
            names.join(", ")
        );
    };
    let namespace = crate::namespace::Namespace::open(&format!("{PREFIX}{}", client.name()))?;
    let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
    let deadline = stage.waits.limit(Duration::from_secs(2));
    let mut answered = true;
    for _ in 0..times {
        let attempt =
            namespace.inside(|| Ok(crate::traffic::client::attempt(protocol, target, deadline)))?;
        let ms = attempt.took.as_secs_f64() * 1000.0;
        stage
            .console
            .line(&format!("{} after {ms:.1} ms", attempt.outcome));
        answered &= matches!(
            attempt.outcome,
            crate::traffic::client::Outcome::Answered { .. }
        );
    }
    Ok(answered)
}
