//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::images::{self, Order, name};
use crate::nested::{Profile, Programs};
use crate::progress::{print, say};
use crate::scenarios::{Mode, Place};
use crate::tools::Release;
use crate::traced::Traces;
use crate::{
    cluster, demo, fuzz, guest, kernels, mutate, packages, progress, real, scenarios, verify,
};

/// Prepares this machine, builds, boots guests, runs the demo and all checks.
#[derive(Parser)]
#[command(
    name = "cargo lab",
    bin_name = "cargo lab",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows the main task: two nodes, Services, clients, a change; then powers off
    Demo(Demo),
    /// Runs all checks and tests whose inputs have changed since they passed, or some tiers of them
    Verify(Verify),
    /// Runs scenarios by name
    Scenarios(Scenarios),
    /// Runs scenarios on kernels of other Debian releases and prints a table
    Kernels(Kernels),
    /// Measures the cost of a part, compared with the kernel's own limit, with release builds
    #[command(subcommand)]
    Bench(Bench),
    /// Runs scenarios with a real API server by name, on this machine
    Cluster(Cluster),
    /// Starts a real Kubernetes control plane on this machine; runs until Ctrl-C
    ControlPlane(ControlPlane),
    /// A cluster of emulated machines with real kubelets: `up`, `down`, and `test` with Kubernetes' own tests
    Real(Real),
    /// Breaks the planner on purpose, one rule at a time, and checks that its tests fail
    Mutate(Mutate),
    /// Feeds random messages, a million by default, to decoders and to both ends of the stream
    Fuzz(Fuzz),
    /// Installs missing packages, builds the programs and prints their paths
    Build,
    /// Builds and checks the images of the controller and the agent; pushes nothing
    Image(Image),
    /// The emulated machine whose kernel has IPVS
    #[command(subcommand)]
    Guest(GuestCommand),
    /// Started by `cargo verify` for each batch of units
    #[command(name = verify::COMMAND, hide = true)]
    Unit(Unit),
}

#[derive(Args)]
struct Unit {
    #[command(flatten)]
    how: How,
    /// Units, as TIER/NAME
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Args)]
struct How {
    /// Run the long forms too: every mutation, long soaks, more nodes
    #[arg(long)]
    long: bool,
    /// Seed of the random choices, to repeat another run; default: from the clock
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Kernel for units that need IPVS
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
}

impl How {
    fn parse(self) -> verify::How {
        let clock = || {
            SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap_or_default()
                .as_secs()
        };
        verify::How {
            place: self.place,
            long: self.long,
            seed: self.seed.unwrap_or_else(clock),
        }
    }
}

#[derive(Args)]
struct Demo {
    /// Keep it running and print commands to try; Ctrl-C ends it
    #[arg(long, conflicts_with = "cluster")]
    keep: bool,
    /// Use a real API server and change objects with kubectl
    #[arg(long)]
    cluster: bool,
    /// Trace one change to the kernels with Jaeger and draw it; on a terminal, Jaeger then stays open until Ctrl-C
    #[arg(long, requires = "cluster")]
    traces: bool,
    /// Path of that picture (SVG); default: in the lab's cache
    #[arg(long, requires = "traces", value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Kernel to use
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
}

#[derive(Args)]
struct Verify {
    /// Run only this tier; may be repeated
    #[arg(long = "tier", value_name = "NAME")]
    tiers: Vec<String>,
    /// Run everything, also what has passed and has not changed since
    #[arg(long)]
    fresh: bool,
    /// Run nothing: print what would run, and its last duration
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Args)]
struct Scenarios {
    /// Kernel to use
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// Names, or --all, as for `portolan-scenarios run`
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Kernels {
    /// Kernel, by the first two numbers of its version; may be repeated; default: all known ones
    #[arg(long, value_name = "VERSION", value_parser = kernels::known())]
    kernel: Vec<String>,
    /// Names of scenarios; default: packet-path, bare, drift and draining
    scenarios: Vec<String>,
}

#[derive(Subcommand)]
enum Bench {
    /// The node agent: applying a whole plan, one change, a restart, memory
    Node(BenchNode),
    /// The stream: agents of thousands of nodes, one change, many changes, another controller
    Stream(BenchStream),
    /// Traces: cold sync and a change without traces, with one trace per hundred changes, with a trace of each change
    Traces(BenchTraces),
}

#[derive(Args)]
struct BenchNode {
    /// Kernel to use
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// --services N, --endpoints M, --runs R, -o json, as for `portolan-scenarios bench node`
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct BenchStream {
    /// --agents N, --services N, --endpoints N, --churn S, --insecure, -o json, as for `portolan-scenarios bench
    /// stream`
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct BenchTraces {
    /// --agents N, --services N, --endpoints N, --rounds R, -o json, as for `portolan-scenarios bench traces`
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Cluster {
    /// Kubernetes version of the control plane
    #[arg(long, value_enum, default_value_t = Release::Usual)]
    kubernetes: Release,
    /// Names, or --all, as for `portolan-scenarios cluster`
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Real {
    /// `prepare`, or `up`, `down` or `test` with their options, as for `portolan-scenarios real`
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Mutate {
    /// Only mutations with this text in their name, case-insensitive
    #[arg(long, value_name = "NAME-PART")]
    only: Option<String>,
}

#[derive(Args)]
struct Fuzz {
    /// Number of cases of each test
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    cases: u32,
}

#[derive(Args)]
struct Image {
    /// Tag of the images; default: the chart's
    #[arg(long, value_name = "TAG", default_value = images::VERSION, value_parser = name::tag)]
    tag: String,
    /// Repository of the images, as for the chart's image.repository; default: names without a registry
    #[arg(long, value_name = "REGISTRY/PATH", value_parser = name::repository)]
    repository: Option<String>,
    /// Output directory of portolan-controller.tar and portolan-agent.tar; default: in the lab's cache
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Build of the programs: as released, which takes minutes the first time, or as for tests
    #[arg(long, value_enum, default_value_t = ImageProfile::Shipped)]
    profile: ImageProfile,
}

#[derive(Clone, Copy, ValueEnum)]
enum ImageProfile {
    /// Small, without paths of this machine
    Shipped,
    /// Large and slow, but built within a minute or two
    Dev,
}

#[derive(Args)]
struct ControlPlane {
    /// More options, such as `--nodes 3`, as for `portolan-scenarios control-plane`
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Subcommand)]
enum GuestCommand {
    /// Runs one command in a fresh guest and returns its output and exit status
    Run(GuestRun),
    /// Opens a root shell in the guest that `cargo demo --keep` keeps running
    Shell,
}

#[derive(Args)]
struct GuestRun {
    /// Memory of the guest, MB
    #[arg(long, default_value_t = 3000)]
    memory: u32,
    /// Timeout of the command, seconds (times PORTOLAN_SLOWNESS)
    #[arg(long, default_value_t = 600)]
    deadline: u64,
    /// Load another kernel module, for example br_netfilter; may be repeated
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Let the guest reach this machine as 10.0.2.2
    #[arg(long)]
    network: bool,
    /// Add a program, such as a built test, to the guest's PATH; may be repeated
    #[arg(long = "with", value_name = "FILE")]
    programs: Vec<PathBuf>,
    /// Allow `cargo lab guest shell` to connect
    #[arg(long)]
    shell: bool,
    /// A program of the workspace or of the guest, with its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

/// Runs the command line and returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<u8> {
    match command {
        Command::Demo(demo) if demo.cluster => {
            let traces = demo.traces.then(|| Traces::shown(demo.picture));
            demo::run_cluster(demo.place, traces.as_ref(), &mut std::io::stdout())
        }
        Command::Demo(demo) => demo::run(
            demo.place,
            Mode {
                keep: demo.keep,
                ..Mode::default()
            },
            &mut std::io::stdout(),
        ),
        Command::Verify(verify) => {
            let order = verify::Order {
                tiers: verify.tiers,
                fresh: verify.fresh,
                list: verify.list,
                how: verify.how.parse(),
            };
            Ok(u8::from(!verify::run(&order)?))
        }
        Command::Scenarios(named) => run_scenarios(&named),
        Command::Kernels(Kernels { kernel, scenarios }) => {
            let all = kernels::run(&kernel, &scenarios, &mut std::io::stdout())?;
            Ok(u8::from(!all))
        }
        Command::Bench(Bench::Node(node)) => measure_node(&node),
        Command::Bench(Bench::Stream(BenchStream { words })) => measure("stream", &words),
        Command::Bench(Bench::Traces(BenchTraces { words })) => measure("traces", &words),
        Command::Cluster(Cluster { kubernetes, words }) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            cluster::run_scenarios(kubernetes, &words, &mut std::io::stdout())
        }
        Command::ControlPlane(ControlPlane { words }) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            cluster::control_plane(&words, &mut std::io::stdout())
        }
        Command::Real(Real { words }) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            real::run(&words, &mut std::io::stdout())
        }
        Command::Mutate(Mutate { only }) => {
            let all_killed = mutate::run(only.as_deref(), true, &mut std::io::stdout())?;
            Ok(u8::from(!all_killed))
        }
        Command::Fuzz(Fuzz { cases }) => fuzz::run(cases, &mut std::io::stdout()),
        Command::Build => build(),
        Command::Image(image) => make_images(image),
        Command::Guest(GuestCommand::Run(run)) => guest_run(run),
        Command::Guest(GuestCommand::Shell) => guest::shell::connect().map(|()| 0),
        Command::Unit(Unit { how, names }) => {
            Ok(u8::from(!verify::run_units(&names, how.parse())?))
        }
    }
}

fn run_scenarios(named: &Scenarios) -> Result<u8> {
    let words: Vec<&str> = std::iter::once("run")
        .chain(named.words.iter().map(String::as_str))
        .collect();
    scenarios::run(&words, named.place, Mode::default(), &mut std::io::stdout())
}

fn measure_node(node: &BenchNode) -> Result<u8> {
    let words: Vec<&str> = ["bench", "node"]
        .into_iter()
        .chain(node.words.iter().map(String::as_str))
        .collect();
    scenarios::measure(&words, node.place, &mut std::io::stdout())
}

fn build() -> Result<u8> {
    packages::ensure()?;
    for binary in Programs::build(Profile::Dev)?.iter() {
        print(&binary.path.to_string_lossy())?;
    }
    Ok(0)
}

fn make_images(image: Image) -> Result<u8> {
    let order = Order {
        tag: image.tag,
        repository: image.repository,
        output: image.output,
        profile: match image.profile {
            ImageProfile::Shipped => Profile::Shipped,
            ImageProfile::Dev => Profile::Dev,
        },
    };
    Ok(u8::from(!images::run(&order, &mut std::io::stdout())?))
}

/// A benchmark on a control plane of this machine.
fn measure(what: &str, words: &[String]) -> Result<u8> {
    let words = words.iter().map(String::as_str);
    let words: Vec<&str> = ["bench", what].into_iter().chain(words).collect();
    cluster::measure(&words, &mut std::io::stdout())
}

fn guest_run(run: GuestRun) -> Result<u8> {
    let image = guest::prepare(&packages::ensure()?, None)?;
    let mut payload = guest::Payload::default();
    for program in &run.programs {
        payload.program(program);
    }
    let mut job = guest::Job::new(run.command, payload);
    job.environment = progress::for_programs();
    if job
        .command
        .first()
        .is_some_and(|name| name.starts_with("portolan-"))
    {
        job = scenarios::with_our_programs(job, &Programs::build(Profile::Dev)?);
    }
    job.memory = run.memory;
    job.modules = run.modules;
    job.network = run.network;
    job.shell = run.shell;
    job.deadline = Some(Duration::from_secs(run.deadline));
    guest::run(&image, &job, &mut std::io::stdout())
}
