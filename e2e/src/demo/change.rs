//! The way of a change: a manifest is replaced, and the time is measured until each node's kernel
//! sends new connections to the right endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ipvs_rs::{Protocol, ServiceKey, Socket};

use super::{pod_at, promised};
use crate::checks::Checks;
use crate::cluster::Cluster;
use crate::console::Table;
use crate::dataplane::Dataplane;
use crate::manifests::Manifests;
use crate::namespace::Namespace;
use crate::stage::Stage;
use crate::topology::Topology;
use crate::topology::world::Node;
use crate::witness::{VirtualServer, tables};

const FILE: &str = "endpoints-web.yaml";
const SERVICE: &str = "web";
const CHANGES: [(&str, &str); 2] = [
    (
        "demo/changes/1-pod-a2-leaves.yaml",
        "pod-a2 is taken out of shop/web",
    ),
    (
        "demo/changes/2-pod-b3-joins.yaml",
        "pod-b3 is added to shop/web",
    ),
];

/// Makes every change and prints how long each took; returns what the manifests promise then.
pub(super) fn show_all(
    stage: &Stage,
    checks: &mut Checks,
    cluster: &mut Cluster,
    topology: &Topology,
    mut texts: Vec<(String, String)>,
) -> Result<Manifests> {
    stage.console.heading("A change in the manifests arrives");
    let mut table = Table::new([
        "CHANGE",
        "NODE",
        "FILE TO KERNEL ms",
        "SHOP/WEB IN THE KERNEL",
    ]);
    for (path, what) in CHANGES {
        let text = stage.files.text(path)?;
        for file in texts.iter_mut().filter(|file| file.0 == FILE) {
            file.1.clone_from(&text);
        }
        let wanted = promised(texts.iter().map(|file| &file.1))?;
        for arrival in make(stage, cluster, topology, &text, &wanted)? {
            let words = match &arrival.seen {
                Ok((took, _)) => format!("{:.1}", took.as_secs_f64() * 1000.0),
                Err(_) => "never".to_owned(),
            };
            let reals = arrival
                .seen
                .as_ref()
                .map_or_else(|_| String::new(), |seen| seen.1.clone());
            table.row([
                what.to_owned(),
                arrival.node.name().to_owned(),
                words,
                reals,
            ]);
            let name = format!("{what}: {} follows", arrival.node.name());
            checks.check_quietly(
                &name,
                arrival.seen.map(drop).map_err(|e| cluster.with_logs(e)),
            );
        }
    }
    stage.console.table(&table);
    promised(texts.iter().map(|file| &file.1))
}

struct Arrival {
    node: Node,
    seen: Result<(Duration, String)>,
}

fn make(
    stage: &Stage,
    cluster: &Cluster,
    topology: &Topology,
    text: &str,
    wanted: &Manifests,
) -> Result<Vec<Arrival>> {
    let frontends = wanted.frontends();
    let web = frontends
        .iter()
        .find(|frontend| frontend.service == SERVICE);
    let web = web.context("the demo has no Service web")?;
    let mut watchers = Vec::new();
    for node in Node::ALL {
        let watcher = watch(
            stage,
            topology.node(node)?,
            web.address,
            web.endpoints.clone(),
        )?;
        watchers.push((node, watcher));
    }
    let start = Instant::now();
    cluster.write_manifest(FILE, text)?;
    let mut arrivals = Vec::new();
    for (node, watcher) in watchers {
        let seen = watcher.join().map_err(|_| anyhow!("a watcher panicked"))?;
        let seen = seen.map(|(moment, reals)| (moment.saturating_duration_since(start), reals));
        arrivals.push(Arrival { node, seen });
    }
    Ok(arrivals)
}

/// Asks the kernel again and again, with pauses of two milliseconds, until exactly `wanted` take new connections of
/// `server`.
fn watch(
    stage: &Stage,
    namespace: &Namespace,
    server: SocketAddr,
    wanted: BTreeSet<SocketAddr>,
) -> Result<JoinHandle<Result<(Instant, String)>>> {
    let (waits, dataplane) = (stage.waits, stage.dataplane);
    let own = namespace.clone();
    namespace.start("watch", move || {
        let mut backends = match dataplane {
            Dataplane::Ipvs => in_ipvs(server)?,
            Dataplane::Nftables => in_tables(own, server),
        };
        let mut last = String::new();
        waits.until(
            &format!("the kernel to send new connections of {server} to {wanted:?}"),
            Duration::from_secs(5),
            Duration::from_millis(2),
            || {
                let backends = backends()?;
                let take = backends.iter().filter(|(_, weight)| **weight > 0);
                let right = take.map(|(address, _)| *address).collect::<BTreeSet<_>>() == wanted;
                let words = backends
                    .iter()
                    .map(|(address, weight)| format!("{} ({weight})", pod_at(*address)));
                last = words.collect::<Vec<_>>().join(" ");
                Ok(right.then(|| (Instant::now(), last.clone())))
            },
            String::new,
        )
    })
}

/// Reads backends with their weights.
type Reader = Box<dyn FnMut() -> Result<BTreeMap<SocketAddr, u32>>>;

fn in_ipvs(server: SocketAddr) -> Result<Reader> {
    let mut socket = Socket::open()?;
    let key = ServiceKey::address(Protocol::Tcp, server.ip(), server.port());
    Ok(Box::new(move || {
        let reals = socket.destinations(&key)?.into_iter();
        Ok(reals
            .map(|real| (SocketAddr::new(real.address, real.port), real.weight))
            .collect())
    }))
}

fn in_tables(namespace: Namespace, server: SocketAddr) -> Reader {
    let key = VirtualServer {
        protocol: "TCP".to_owned(),
        address: server,
    };
    Box::new(move || Ok(tables::served(&namespace)?.remove(&key).unwrap_or_default()))
}
