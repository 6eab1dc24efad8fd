//! Portolan beside kube-proxy on the same kernel and the same objects of a real API server.
//!
//! Each proxy serves a fresh node: a network namespace between a client, which is a pod of the node, and the pods of all
//! Services, which another namespace answers for. Times come from connections of that client, so none depends on what a
//! proxy reports of itself. `direct` is the client without a proxy, dialing endpoints: the kernel's own limit.
//!
//! Portolan's controller runs before, as in a cluster, and agents connect through a Unix socket. kube-proxy reaches the
//! API server through a relay, which copies bytes between the namespaces.

mod cluster;
mod network;
mod objects;
mod peer;
mod probe;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;

use self::cluster::Cluster;
use self::network::Network;
use self::peer::Peer;
use self::report::{Measured, Report};
use super::{Form, Measures};
use crate::stage::Stage;
use crate::waits::sleep_until;
use crate::{stop, witness};

/// How large, how often, and what is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Options {
    /// Services of the cluster.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    services: u32,
    /// Endpoints of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    endpoints: u32,
    /// How often each thing is measured; an odd number has a middle.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// The dataplane of Portolan, and the mode of kube-proxy.
    #[arg(long, value_enum, default_value_t = Measures::Nftables)]
    dataplane: Measures,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// Endpoint changes that are measured in each run.
const CHANGES: u32 = 5;
/// Before each of them. kube-proxy waits a second between two writes, so that each change is measured alone.
const APART: Duration = Duration::from_secs(2);
/// Idle time before memory is read.
const REST: Duration = Duration::from_secs(5);
/// Idle time before each proxy, while the kernel removes the namespaces of the one before.
const CLEANUP: Duration = Duration::from_secs(3);

/// Measures and prints.
///
/// # Errors
/// Something could not be measured, or a Service was not served.
pub fn run(stage: &Stage, options: Options) -> Result<()> {
    if options.dataplane == Measures::Ipvs {
        witness::require_ipvs()?;
    }
    let say = |text: &str| {
        if options.output == Form::Table {
            stage.console.line(text);
        }
    };
    say(&format!(
        "a control plane with {} Services of {} endpoints …",
        options.services, options.endpoints
    ));
    let cluster = Cluster::start(stage, options)?;
    let mut report = Report::new(options.services, options.endpoints);
    for run in 0..=options.runs {
        for peer in Peer::in_order(run) {
            stop::check()?;
            let measured = measure(stage, &cluster, peer)?;
            // The first run loads programs and modules, and waits for the controller's first plans.
            if run == 0 {
                continue;
            }
            say(&format!(
                "run {run} of {}: {}: {}",
                options.runs,
                peer.title(),
                measured.line()
            ));
            report.add(peer, measured);
        }
    }
    match options.output {
        Form::Table => report.print(stage.console),
        Form::Json => stage
            .console
            .line(&serde_json::to_string(&report.figures()?)?),
    }
    Ok(())
}

/// One proxy on a fresh node, from its start to its end.
fn measure(stage: &Stage, cluster: &Cluster, peer: Peer) -> Result<Measured> {
    sleep_until(Instant::now() + CLEANUP)?;
    let network = Network::make()?;
    let mut measured = Measured::default();
    if peer == Peer::Direct {
        measured.connections = probe::connections(&network, &cluster.endpoints())?;
        return Ok(measured);
    }
    let begin = Instant::now();
    let running = peer.start(cluster, &network)?;
    let check = || running.check();
    let in_force = probe::all_served(&network, &cluster.samples(), stage.waits, &check)?;
    measured.start_s = Some((in_force - begin).as_secs_f64());
    measured.cpu_s = running.cpu_seconds();
    sleep_until(Instant::now() + REST)?;
    measured.rss_mb = running.memory_mb();
    for _ in 0..CHANGES {
        sleep_until(Instant::now() + APART)?;
        let address = cluster.move_probe()?;
        let moved = Instant::now();
        let seen = probe::answers_as(&network, cluster.probe(), address, stage.waits, &check)?;
        let took = seen.saturating_duration_since(moved);
        measured.changes_ms.push(took.as_secs_f64() * 1e3);
    }
    measured.connections = probe::connections(&network, &cluster.addresses())
        .with_context(|| format!("connections through {}", peer.title()))?;
    Ok(measured)
}
