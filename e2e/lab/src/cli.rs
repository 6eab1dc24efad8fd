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
    /// Shows the main job: two nodes, Services, clients, a change; then powers off
    Demo(Demo),
    /// Runs all checks and tests that have changed since they passed, or some tiers of them
    Verify(Verify),
    /// Runs scenarios by name
    Scenarios(Scenarios),
    /// Runs scenarios on kernels of other Debian releases, and prints one table
    Kernels(Kernels),
    /// Measures what a part costs, beside the kernel's own limit, with programs built as shipped
    #[command(subcommand)]
    Bench(Bench),
    /// Runs scenarios of a real API server by name, on this machine
    Cluster(Cluster),
    /// Stands up a real Kubernetes control plane on this machine; stays until Ctrl-C
    ControlPlane(ControlPlane),
    /// A cluster of emulated machines with real kubelets: `up`, `down`, and `test` with Kubernetes' own tests
    Real(Real),
    /// Breaks the planner on purpose, one rule at a time, and demands that its tests notice
    Mutate(Mutate),
    /// Throws a million random messages, or so many, at decoders and at both ends of the stream
    Fuzz(Fuzz),
    /// Installs what is missing, builds our programs and prints where they are
    Build,
    /// Makes the images of the controller and the agent, and looks at them; pushes nothing
    Image(Image),
    /// The emulated machine whose kernel has IPVS
    #[command(subcommand)]
    Guest(GuestCommand),
    /// What `cargo verify` starts for each batch of units
    #[command(name = verify::COMMAND, hide = true)]
    Unit(Unit),
}

#[derive(Args)]
struct Unit {
    #[command(flatten)]
    how: How,
    /// TIER/NAME of each
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Args)]
struct How {
    /// Runs the long forms too: every mutation, long soaks, more nodes
    #[arg(long)]
    long: bool,
    /// Repeats what chance decided in another run; by default it follows the clock
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Which kernel is used where IPVS is needed
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
    /// Leaves it running and says what to try; Ctrl-C ends it
    #[arg(long, conflicts_with = "cluster")]
    keep: bool,
    /// Feeds it from a real API server and changes it with kubectl
    #[arg(long)]
    cluster: bool,
    /// Follows one change in a Jaeger of its own, to the kernels, and draws it; on a terminal Jaeger then
    /// stays open on it until Ctrl-C
    #[arg(long, requires = "cluster")]
    traces: bool,
    /// Where the picture of that goes (SVG); by default into the lab's cache
    #[arg(long, requires = "traces", value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Which kernel is used
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
}

#[derive(Args)]
struct Verify {
    /// Runs this tier only; may be repeated
    #[arg(long = "tier", value_name = "NAME")]
    tiers: Vec<String>,
    /// Runs everything again, also what has passed before and has not changed since
    #[arg(long)]
    fresh: bool,
    /// Runs nothing: prints what would be run, and how long that took the last time
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Args)]
struct Scenarios {
    /// Which kernel is used
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// Names, or --all, as `portolan-scenarios run` takes them
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Kernels {
    /// A kernel by the first two numbers of its version; may be repeated; by default all that are known
    #[arg(long, value_name = "VERSION", value_parser = kernels::known())]
    kernel: Vec<String>,
    /// Names of scenarios; by default packet-path, bare, drift and draining
    scenarios: Vec<String>,
}

#[derive(Subcommand)]
enum Bench {
    /// The node agent: programming a whole plan, one change, a restart, memory
    Node(BenchNode),
    /// The stream: agents of thousands of nodes, one change, many changes, another controller
    Stream(BenchStream),
    /// Traces: cold sync and a change with none, with one change in a hundred, with each
    Traces(BenchTraces),
}

#[derive(Args)]
struct BenchNode {
    /// Which kernel is used
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// --services N, --endpoints M, --runs R, -o json, as `portolan-scenarios bench node` takes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct BenchStream {
    /// --agents N, --services N, --endpoints N, --churn S, --insecure, -o json, as `portolan-scenarios bench
    /// stream` takes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct BenchTraces {
    /// --agents N, --services N, --endpoints N, --rounds R, -o json, as `portolan-scenarios bench traces`
    /// takes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Cluster {
    /// Which Kubernetes the control plane is of
    #[arg(long, value_enum, default_value_t = Release::Usual)]
    kubernetes: Release,
    /// Names, or --all, as `portolan-scenarios cluster` takes them
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Real {
    /// `prepare`, or `up`, `down` or `test` and their options, as `portolan-scenarios real` takes them
    #[arg(required = true, allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Args)]
struct Mutate {
    /// Only mutations with this in their name, whatever its case
    #[arg(long, value_name = "NAME-PART")]
    only: Option<String>,
}

#[derive(Args)]
struct Fuzz {
    /// Cases of each test
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    cases: u32,
}

#[derive(Args)]
struct Image {
    /// Their tag; by default the one that the chart asks for
    #[arg(long, value_name = "TAG", default_value = images::VERSION, value_parser = name::tag)]
    tag: String,
    /// Where they will be, as the chart's image.repository; without it they have no registry in their names
    #[arg(long, value_name = "REGISTRY/PATH", value_parser = name::repository)]
    repository: Option<String>,
    /// Where portolan-controller.tar and portolan-agent.tar go; by default into the lab's cache
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// How programs are built: as they are shipped, which takes minutes the first time, or as tests have them
    #[arg(long, value_enum, default_value_t = ImageProfile::Shipped)]
    profile: ImageProfile,
}

#[derive(Clone, Copy, ValueEnum)]
enum ImageProfile {
    /// Small, without a trace of this machine
    Shipped,
    /// Large and slow, but built within a minute or two
    Dev,
}

#[derive(Args)]
struct ControlPlane {
    /// More options, such as `--nodes 3`, as `portolan-scenarios control-plane` takes them
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Subcommand)]
enum GuestCommand {
    /// Runs one command in a fresh guest; its output and exit status are the command's
    Run(GuestRun),
    /// Opens a root shell in the guest that `cargo demo --keep` keeps running
    Shell,
}

#[derive(Args)]
struct GuestRun {
    /// Memory of the guest, MB
    #[arg(long, default_value_t = 3000)]
    memory: u32,
    /// Ends the guest when the command takes longer, seconds (times PORTOLAN_SLOWNESS)
    #[arg(long, default_value_t = 600)]
    deadline: u64,
    /// Loads one more kernel module, for example br_netfilter; may be repeated
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Lets the guest reach this machine as 10.0.2.2
    #[arg(long)]
    network: bool,
    /// Puts one more program, such as a built test, into the guest's PATH; may be repeated
    #[arg(long = "with", value_name = "FILE")]
    programs: Vec<PathBuf>,
    /// Lets `cargo lab guest shell` in
    #[arg(long)]
    shell: bool,
    /// One of our programs or any program of the guest, and its arguments
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

/// Something that is measured on a control plane of this machine.
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
