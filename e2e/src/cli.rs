//! The command line of `portolan-scenarios`. Exit status: 0 if everything is as expected, 1 if not,
//! 2 if the command line is wrong.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::checks::Checks;
use crate::console::{Console, Table, complain};
use crate::control_plane::stand;
use crate::dataplane::Dataplane;
use crate::files::Files;
use crate::jaeger::show as trace;
use crate::program::cpu_seconds_with_ended_children;
use crate::scenario::{self, Scenario};
use crate::stage::{ApiServer, Stage};
use crate::waits::Waits;
use crate::{bench, demo, real, stop};

/// Runs Portolan's scenarios in place: in an emulated guest, or on a host whose kernel has IPVS.
#[derive(Debug, Parser)]
#[command(name = "portolan-scenarios", version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prints the names of all scenarios, and the command that runs each.
    List,
    /// Runs scenarios of kernels and agents and prints every check; needs root.
    Run(Run),
    /// Runs scenarios of a real API server on this machine and prints every check.
    Cluster(Run),
    /// Starts a real control plane and prints how to reach it; runs until SIGINT or SIGTERM.
    ControlPlane(stand::Arguments),
    /// A cluster of emulated machines with real kubelets, and Kubernetes' own tests on it; needs root.
    Real(real::Arguments),
    /// Shows a cluster of two nodes at work; needs root.
    Demo(Demo),
    /// Draws a trace that Jaeger has as a picture.
    Trace(trace::Arguments),
    /// Measures what a part costs, beside the kernel's own limit; needs root.
    #[command(subcommand)]
    Bench(Bench),
    /// Connects as a client of a running lab (see `demo --keep`).
    Dial(Dial),
}

#[derive(Debug, Args)]
struct Run {
    /// Which ones.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// All of them.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Takes manifests and tables from this folder instead of those built in.
    #[arg(long)]
    files: Option<PathBuf>,
    /// Repeats the random moments of an earlier run; by default they follow the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs long forms: more nodes, longer soaks.
    #[arg(long)]
    long: bool,
    /// What serves Services. Not every scenario is about more than one of them.
    #[arg(long, default_value = "ipvs")]
    dataplane: Dataplane,
    /// Kubeconfig of a cluster administrator, for scenarios that need an API server.
    #[arg(long, requires = "controller_kubeconfig")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of a user with only the controller's RBAC permissions.
    #[arg(long, requires = "kubeconfig", value_name = "KUBECONFIG")]
    controller_kubeconfig: Option<PathBuf>,
}

impl Run {
    fn api_server(&self) -> Option<ApiServer> {
        Some(ApiServer {
            admin: self.kubeconfig.clone()?,
            controller: self.controller_kubeconfig.clone()?,
        })
    }
}

#[derive(Debug, Args)]
struct Demo {
    /// Takes manifests from this folder instead of those built in.
    #[arg(long)]
    files: Option<PathBuf>,
    /// Keeps the lab running afterwards, until SIGINT or SIGTERM.
    #[arg(long, conflicts_with = "cluster")]
    keep: bool,
    /// What serves Services.
    #[arg(long, default_value = "ipvs", conflicts_with = "cluster")]
    dataplane: Dataplane,
    /// Takes objects from a real API server and changes them with kubectl.
    #[arg(long, requires = "kubeconfig")]
    cluster: bool,
    #[command(flatten)]
    reach: demo::cluster::Reach,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The node agent: programming a whole plan, one change, a restart, memory.
    Node(bench::Options),
    /// Measures the cost of the stream for the controller, with agents of all nodes and a real API
    /// server.
    Stream(bench::stream::Options),
    /// Measures the cost of traces: off, 1 % of changes, all changes.
    Traces(bench::stream::TracesOptions),
    /// Measures Portolan beside kube-proxy: start, one change, memory, connections.
    Peers(bench::peers::Options),
    /// The agents of `bench stream`.
    #[command(hide = true)]
    StreamClients(bench::stream::ClientOptions),
    /// Those of them that misbehave.
    #[command(hide = true)]
    StreamMisbehaving(bench::stream::MisbehavingOptions),
}

#[derive(Debug, Args)]
struct Dial {
    /// Client: pod-a1 to pod-b3, node-a, node-b or outside.
    from: String,
    /// Where to: ADDRESS:PORT, IPv6 in brackets.
    to: SocketAddr,
    /// A datagram instead of a connection.
    #[arg(long)]
    udp: bool,
    /// Number of attempts.
    #[arg(long, default_value_t = 6)]
    times: u32,
}

/// Parses and runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.what {
        What::List => Ok(list(Console::from_environment())),
        What::Run(run) => {
            let lists = &[
                scenario::ALL,
                scenario::OTHER_KERNELS,
                scenario::ON_API_SERVER,
            ];
            on_kernel().and_then(|()| self::run(lists, run))
        }
        What::Cluster(run) => self::run(&[scenario::CLUSTER], run),
        What::ControlPlane(arguments) => {
            stage(None, None).and_then(|stage| stand::run(&stage, &arguments))
        }
        What::Real(arguments) => on_kernel().and_then(|()| {
            let stage = stage(arguments.files(), None)?;
            real::run(&stage, &arguments)
        }),
        What::Demo(demo) => show(demo),
        What::Trace(arguments) => stage(None, None)
            .and_then(|stage| trace::run(stage.console, &arguments))
            .map(|()| true),
        What::Bench(Bench::Node(options)) => measure(options),
        What::Bench(Bench::Stream(options)) => stage(None, None)
            .and_then(|stage| bench::stream::run(&stage, &options))
            .map(|()| true),
        What::Bench(Bench::Traces(options)) => stage(None, None)
            .and_then(|stage| bench::stream::run_traces(&stage, &options))
            .map(|()| true),
        What::Bench(Bench::Peers(options)) => stage(None, None)
            .and_then(|stage| bench::peers::run(&stage, options))
            .map(|()| true),
        What::Bench(Bench::StreamClients(options)) => {
            bench::stream::run_clients(&options).map(|()| true)
        }
        What::Bench(Bench::StreamMisbehaving(options)) => {
            bench::stream::run_misbehaving(&options).map(|()| true)
        }
        What::Dial(dial) => stage(None, None)
            .and_then(|stage| demo::dial(&stage, &dial.from, dial.to, dial.udp, dial.times)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(options: bench::Options) -> Result<bool> {
    on_kernel()?;
    bench::run(&stage(None, None)?, options).map(|()| true)
}

fn show(demo: Demo) -> Result<bool> {
    let stage = Stage {
        dataplane: demo.dataplane,
        ..stage(demo.files, None)?
    };
    if demo.cluster {
        demo::cluster::run(&stage, &demo.reach)
    } else {
        demo::run(&stage, demo.keep)
    }
}

fn list(console: Console) -> bool {
    let mut table = Table::new(["SCENARIO", "RUN BY", "WHAT IT SHOWS"]);
    for (command, list) in [
        ("run", scenario::ALL),
        ("run, by itself", scenario::OTHER_KERNELS),
        ("run, by itself", scenario::ON_API_SERVER),
        ("cluster", scenario::CLUSTER),
    ] {
        for scenario in list {
            table.row([scenario.name, command, scenario.shows]);
        }
    }
    console.table(&table);
    true
}

fn stage(files: Option<PathBuf>, seed: Option<u64>) -> Result<Stage> {
    stop::listen()?;
    let by_clock = || {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    };
    Ok(Stage {
        waits: Waits::from_environment()?,
        console: Console::from_environment(),
        files: Files::at(files),
        seed: seed.unwrap_or_else(by_clock),
        api_server: None,
        dataplane: Dataplane::Ipvs,
        long: false,
    })
}

fn on_kernel() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("scenarios make network namespaces: run them as root");
    }
    Ok(())
}

/// Runs one scenario and closes with a line that has its checks, its time and its processor time.
fn run_one(scenario: &Scenario, stage: &Stage) -> Checks {
    let console = stage.console;
    console.heading(&format!("{}: {}", scenario.name, scenario.shows));
    let mut checks = Checks::new(console);
    let start = Instant::now();
    let cpu = || cpu_seconds_with_ended_children(std::process::id()).unwrap_or_default();
    let cpu_before = cpu();
    if let Err(error) = (scenario.run)(stage, &mut checks) {
        checks.failed(scenario.name, &format!("{error:#}"));
    }
    if !checks.all_passed() {
        console.line(&format!(
            "{}: repeat with --seed {}",
            scenario.name, stage.seed
        ));
    }
    console.line(&format!(
        "{}: {checks} in {:.1} s, cpu {:.1} s",
        scenario.name,
        start.elapsed().as_secs_f64(),
        cpu() - cpu_before,
    ));
    checks
}

/// `--all` are those of the first list.
fn run(lists: &[&'static [Scenario]], run: Run) -> Result<bool> {
    let chosen: Vec<&Scenario> = if run.all {
        lists.iter().take(1).copied().flatten().collect()
    } else {
        run.names
            .iter()
            .map(|name| scenario::named(lists, name))
            .collect::<Result<_>>()?
    };
    let api_server = run.api_server();
    let stage = Stage {
        api_server,
        dataplane: run.dataplane,
        long: run.long,
        ..stage(run.files, run.seed)?
    };
    let console = stage.console;
    let mut total = Checks::new(console);
    for scenario in chosen {
        total.add(&run_one(scenario, &stage));
        stop::check()?;
    }
    console.line("");
    console.line(&total.to_string());
    Ok(total.all_passed())
}
