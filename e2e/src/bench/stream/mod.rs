//! Cost of the stream for the controller: agents of all nodes in one other process, objects in a real API server, and
//! the released controller, over TLS and with tokens of that API server.
//!
//! The time of a change begins when the API server has stored it (the response to the request) and ends when the last
//! agent has received and hashed it, or when the controller has the last agent's acknowledgement. Bytes are those
//! that the controller counts as written, before TLS. Agents run on the same processors, so a machine with two of
//! them shows the worst case. `/proc` gives the processor time of each process.

mod beside;
mod churn;
mod clients;
mod cpu;
mod holder;
mod misbehaving;
mod objects;
mod place;
mod process;
mod report;
mod traces;
mod watches;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::runtime::{Handle, Runtime};

pub use clients::{ClientOptions, run as run_clients};
pub use misbehaving::{MisbehavingOptions, run as run_misbehaving};
pub(in crate::bench) use objects::all as create_all;
pub(in crate::bench) use place::Place;
pub use place::Way;
pub(in crate::bench) use process::Controller;
pub use traces::{Options as TracesOptions, run as run_traces};

use super::Form;
use crate::control_plane::{ControlPlane, Options as PlaneOptions, Reach};
use crate::installation;
use crate::stage::Stage;
use beside::Beside;
use cpu::Cpu;
use objects::{LARGE, LARGE_ENDPOINTS, PROBE, Size};
use process::Agents;
use report::Figures;
use watches::Watches;

/// How large, and what is printed.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Agents, each of a node.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    agents: u32,
    /// Services of the cluster.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// Endpoints of each.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    endpoints: u32,
    /// Duration of the churn in seconds, with 200 endpoint changes per second.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    churn: u64,
    /// Without TLS and tokens, through a Unix socket.
    #[arg(long)]
    insecure: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// Changes of one endpoint that are measured by themselves.
const CHANGES: u32 = 20;
/// The same of the large list.
const LARGE_CHANGES: u32 = 5;
/// Before each of them, for each agent: longer than streams wait between batches, so that each comes alone.
const APART: Duration = Duration::from_micros(150);
/// No longer than this.
const FAR_APART: Duration = Duration::from_millis(1100);
/// Endpoints that change in a second of churn.
const CHURN: u64 = 200;
/// Everything that is measured on.
struct Bench<'a> {
    stage: &'a Stage,
    plane: &'a ControlPlane,
    size: Size,
    runtime: Handle,
    client: Client,
    controller: Controller,
    agents: Agents,
    generation: u32,
}

/// A cluster without a running controller.
struct Prepared {
    plane: ControlPlane,
    runtime: Runtime,
    client: Client,
    kubeconfig: PathBuf,
}

/// A control plane whose controllers do not change what is measured, with our definitions, and a client of it.
pub(in crate::bench) fn quiet_plane(stage: &Stage) -> Result<(ControlPlane, Runtime, Client)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let quiet = PlaneOptions {
        controllers: vec!["namespace-controller".into()],
        ..PlaneOptions::default()
    };
    let plane = ControlPlane::start(stage.waits, quiet)?;
    installation::install(|words, input| plane.kubectl_with_input(words, input))?;
    let client = runtime.block_on(client(&plane))?;
    Ok((plane, runtime, client))
}

fn prepare(stage: &Stage, size: Size) -> Result<Prepared> {
    let services = size.services;
    progress(&format!("a control plane, and {services} Services in it …"));
    let (plane, runtime, client) = quiet_plane(stage)?;
    runtime.block_on(objects::create(&client, size))?;
    let kubeconfig = plane.user(installation::CONTROLLER, None, Reach::Here)?;
    Ok(Prepared {
        plane,
        runtime,
        client,
        kubeconfig,
    })
}

/// Measures and prints.
///
/// # Errors
/// Something could not be measured, or an agent held what it should not.
pub fn run(stage: &Stage, options: &Options) -> Result<()> {
    let size = Size {
        nodes: options.agents,
        services: options.services,
        endpoints: options.endpoints,
    };
    let prepared = prepare(stage, size)?;
    let place = place(&prepared, size, options)?;
    let Prepared {
        plane,
        runtime,
        client,
        kubeconfig,
    } = prepared;
    let controller = Controller::start(&kubeconfig, place, &[], stage.waits)?;
    let mut figures = Figures::of(size, !options.insecure);
    progress(&format!("{} agents …", size.nodes));
    let begin = Instant::now();
    let agents = Agents::start(controller.place().way(), size.nodes)?;
    let mut bench = Bench {
        stage,
        plane: &plane,
        size,
        runtime: runtime.handle().clone(),
        client,
        controller,
        agents,
        generation: 0,
    };
    bench.all(begin, &kubeconfig, options, &mut figures)?;
    match options.output {
        Form::Table => figures.table(stage.console),
        Form::Json => stage.console.line(&serde_json::to_string(&figures)?),
    }
    Ok(())
}

fn place(prepared: &Prepared, size: Size, options: &Options) -> Result<Place> {
    if options.insecure {
        return Place::insecure();
    }
    progress("tokens of all nodes …");
    let nodes = 1..=size.nodes + misbehaving::AGENTS;
    let nodes: Vec<_> = nodes.map(objects::node_name).collect();
    let Prepared {
        plane,
        runtime,
        client,
        ..
    } = prepared;
    Place::secure(plane, runtime, client, &nodes)
}

/// Prints progress to standard error.
fn progress(what: &str) {
    // If standard error is closed, progress is not wanted.
    drop(writeln!(std::io::stderr(), "{what}"));
}

async fn client(plane: &ControlPlane) -> Result<Client> {
    let file = Kubeconfig::read_from(plane.kubeconfig(Reach::Here))?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await?;
    Ok(Client::try_from(config)?)
}

impl Bench<'_> {
    fn all(
        &mut self,
        begin: Instant,
        kubeconfig: &Path,
        options: &Options,
        figures: &mut Figures,
    ) -> Result<()> {
        self.first(begin, figures)?;
        progress("single changes …");
        self.singly(figures)?;
        progress("the same beside some that misbehave …");
        figures.misbehaving = Beside::measure(self)?;
        progress(&format!(
            "{CHURN} changes a second for {} s …",
            options.churn
        ));
        figures.churn = self.churn(options.churn)?;
        figures.controller_rss_mb = self.controller.memory_mb()?;
        figures.controller_cpu_s = self.controller.cpu_seconds()?;
        let waited = self.controller.metric("stream_waiting_bytes_max")?;
        figures.queued_kb_per_agent_max = waited / 1024.0;
        progress("another controller …");
        self.restart(kubeconfig, figures)?;
        progress("a watch of the same …");
        let watches = Watches::measure(&self.client, self.size, &mut self.generation);
        figures.watches = self.runtime.block_on(watches)?;
        self.agents.check()
    }

    /// Which process took the processors so far.
    fn cpu(&self) -> Result<Cpu> {
        Cpu::read(
            self.controller.running()?,
            self.agents.process(),
            self.plane,
        )
    }

    /// Until all agents hold their plans.
    fn first(&mut self, begin: Instant, figures: &mut Figures) -> Result<()> {
        let all = f64::from(self.size.nodes);
        let waits = self.stage.waits;
        let before = Cpu {
            // Whatever these have taken was for this.
            controller_s: 0.0,
            agents_s: 0.0,
            ..self.cpu()?
        };
        self.controller.wait("connected_agents", all, waits)?;
        figures.connect_s = begin.elapsed().as_secs_f64();
        self.agents.whole()?;
        self.controller.wait("nodes_in_force", all, waits)?;
        figures.snapshot_s = begin.elapsed().as_secs_f64();
        figures.snapshot_cpu = self.cpu()?.since(before);
        figures.snapshot_mb = self.controller.bytes()? / all / 1e6;
        Ok(())
    }

    /// One change after the other, each when the one before is everywhere.
    fn singly(&mut self, figures: &mut Figures) -> Result<()> {
        let (mut written, mut acked) = (Vec::new(), Vec::new());
        let before = self.controller.bytes()?;
        for _ in 0..CHANGES {
            let (one, other) = self.change(PROBE, self.size.endpoints)?;
            written.push(one);
            acked.push(other);
        }
        let all = f64::from(self.size.nodes);
        let between = self.controller.bytes()?;
        figures.bytes_per_agent_small = (between - before) / all / f64::from(CHANGES);
        figures.change_written(written)?;
        figures.change_acked(acked)?;
        let mut written = Vec::new();
        for _ in 0..LARGE_CHANGES {
            written.push(self.change(LARGE, 100)?.0);
        }
        let bytes = self.controller.bytes()? - between;
        figures.bytes_per_agent_large = bytes / all / f64::from(LARGE_CHANGES);
        figures.large_written(written)?;
        ensure!(LARGE_ENDPOINTS > 100, "the large list is in one slice");
        Ok(())
    }

    /// Changes an endpoint of a Service that nothing else changes beside; milliseconds until all agents have it, and
    /// until the controller has all their answers.
    fn change(&mut self, service: &str, count: u32) -> Result<(f64, f64)> {
        std::thread::sleep((APART * self.size.nodes).min(FAR_APART));
        let seen = self.see(service, count)?;
        let all = f64::from(self.size.nodes);
        self.controller
            .wait("nodes_in_force", all, self.stage.waits)?;
        Ok((seen.last, process::milliseconds_since(seen.stored)))
    }

    /// The same without the answers.
    fn see(&mut self, service: &str, count: u32) -> Result<Seen> {
        self.agents.look_for(&format!("/{service}/"))?;
        self.generation += 1;
        let change = objects::change(&self.client, self.size, service, 0, count, self.generation);
        self.runtime.block_on(change)?;
        let stored = process::microseconds();
        let (first, last) = self.agents.all_have()?;
        // A watch event may arrive before the response.
        let after = |then: u128| process::milliseconds(then.saturating_sub(stored));
        Ok(Seen {
            stored,
            first: after(first),
            last: after(last),
        })
    }

    /// Replaces the controller; agents reconnect with their plans.
    fn restart(&mut self, kubeconfig: &Path, figures: &mut Figures) -> Result<()> {
        let all = f64::from(self.size.nodes);
        let waits = self.stage.waits;
        self.controller.wait("nodes_in_force", all, waits)?;
        let begin = Instant::now();
        self.controller.replace(kubeconfig)?;
        self.controller.wait("nodes_in_force", all, waits)?;
        figures.restart_s = begin.elapsed().as_secs_f64();
        figures.restart_bytes_per_agent = self.controller.bytes()? / all;
        Ok(())
    }
}

/// A change on its way.
struct Seen {
    /// When it was stored, in microseconds since 1970.
    stored: u128,
    /// Milliseconds later the first agent had it.
    first: f64,
    /// And the last.
    last: f64,
}

/// A figure of some, by its share of the way to the largest.
fn percentile(mut figures: Vec<f64>, share: f64) -> Result<f64> {
    figures.sort_by(f64::total_cmp);
    let last = figures
        .len()
        .checked_sub(1)
        .context("nothing was measured")?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let place = (last as f64 * share).ceil() as usize;
    figures.get(place).copied().context("nothing was measured")
}
