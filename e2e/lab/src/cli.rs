//! The command line.

mod bench;
mod fuzz;
mod guest;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::images::{self, Order, name};
use crate::mutate::Subject;
use crate::nested::{Profile, Programs};
use crate::progress::{print, say};
use crate::scenarios::{Mode, Place};
use crate::tiers::TIERS;
use crate::tools::Release;
use crate::traced::Traces;
use crate::{cluster, demo, kernels, mutate, packages, real, scenarios, verify};

/// Prepares this machine, builds, boots emulated machines (guests), runs the demo and all checks.
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
    /// Shows the main task: two nodes, Services, clients, a change; then powers the emulated machine off
    Demo(Demo),
    /// Runs all checks and tests whose inputs have changed since they passed, or some groups (tiers) of them
    Verify(Verify),
    /// Runs scenarios, which are end-to-end tests on a kernel with IPVS, by name
    Scenarios(Scenarios),
    /// Runs scenarios on kernels of other Debian releases and prints a table
    Kernels(Kernels),
    /// Measures the cost of a part, compared with the kernel's own limit, with release builds
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Runs scenarios with a real API server on this machine, by name
    Cluster(Cluster),
    /// Starts a real Kubernetes control plane on this machine; runs until Ctrl-C
    ControlPlane(ControlPlane),
    /// Starts a cluster of emulated machines with real kubelets, runs Kubernetes' own tests on it, removes it
    Real(Real),
    /// Breaks code on purpose, one place at a time, and checks that its tests fail
    Mutate(Mutate),
    /// Runs the fuzzer: all parsers of input from outside, with coverage guidance
    Fuzz(fuzz::Fuzz),
    /// Installs missing packages, builds the programs and prints their paths
    Build,
    /// Builds and checks the images of the controller and the agent; pushes nothing
    Image(Image),
    /// Runs a command or a shell in an emulated machine (guest) whose kernel has IPVS
    #[command(subcommand)]
    Guest(guest::Guest),
    /// Runs units (single checks); started by `cargo verify` for each batch of them
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
    /// Runs the long forms too: every mutation, long soaks, more nodes
    #[arg(long)]
    long: bool,
    /// Seed of the random choices, to repeat another run; default: from the clock
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where tests run that need a kernel with IPVS
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
    /// Keeps the emulated machine running and prints commands to try; Ctrl-C ends it
    #[arg(long, conflicts_with = "cluster")]
    keep: bool,
    /// What serves Services. nftables runs on this machine's own kernel if the user is root
    #[arg(long, value_name = "NAME", default_value = "ipvs", conflicts_with = "cluster",
        value_parser = ["ipvs", "nftables"])]
    dataplane: String,
    /// Uses a real API server and changes objects with kubectl
    #[arg(long)]
    cluster: bool,
    /// Records a trace of one change, from the API to the kernels, in Jaeger, and draws it. On a terminal, Jaeger
    /// then stays open until Ctrl-C
    #[arg(long, requires = "cluster")]
    traces: bool,
    /// Path of the picture of the trace (SVG); default: in the lab's cache
    #[arg(long, requires = "traces", value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Where the demo runs
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
}

#[derive(Args)]
struct Verify {
    /// Runs only this tier; may be repeated
    #[arg(long = "tier", value_name = "NAME", value_parser = tiers())]
    tiers: Vec<String>,
    /// Runs everything, also what has passed and has not changed since
    #[arg(long)]
    fresh: bool,
    /// Prints what would run, and its last duration, and runs nothing
    #[arg(long)]
    list: bool,
    /// Runs only what failed in the last run
    #[arg(long, conflicts_with = "tiers")]
    failed: bool,
    #[command(flatten)]
    how: How,
}

/// The names of tiers.
fn tiers() -> PossibleValuesParser {
    PossibleValuesParser::new(TIERS.iter().map(|tier| tier.name))
}

#[derive(Args)]
struct Scenarios {
    /// Where the scenarios run
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// Names of scenarios (`cargo verify --list --fresh --long --tier guest` prints them), or --all
    #[arg(
        value_name = "NAME",
        required = true,
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
struct Kernels {
    /// Kernel, by the first two numbers of its version; may be repeated; default: all known ones
    #[arg(long, value_name = "VERSION", value_parser = kernels::known())]
    kernel: Vec<String>,
    /// Names of scenarios; default: packet-path, bare, drift, draining, dataplanes and listing
    scenarios: Vec<String>,
}

#[derive(Args)]
struct Cluster {
    /// Kubernetes version of the control plane
    #[arg(long, value_enum, default_value_t = Release::Usual)]
    kubernetes: Release,
    /// Names of scenarios (`cargo verify --list --fresh --long --tier cluster` prints them), or --all
    #[arg(
        value_name = "NAME",
        required = true,
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
struct Real {
    /// prepare, up, down, test, operations, skew or compare, with its options, such as `up --nodes 3`
    #[arg(
        value_name = "COMMAND",
        required = true,
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
struct Mutate {
    /// The code that is broken
    #[arg(long, value_enum, default_value_t = Subject::Planner)]
    of: Subject,
    /// Text in the names of mutations to run, case-insensitive; default: all mutations
    #[arg(long, value_name = "NAME-PART")]
    only: Option<String>,
}

#[derive(Args)]
struct Image {
    /// Tag of the images
    #[arg(long, value_name = "TAG", default_value = images::VERSION, value_parser = name::tag)]
    tag: String,
    /// Repository of the images, as for the chart's image.repository; default: names without a registry
    #[arg(long, value_name = "REGISTRY/PATH", value_parser = name::repository)]
    repository: Option<String>,
    /// Output directory of portolan-controller.tar and portolan-agent.tar; default: in the lab's cache
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Build profile of the programs
    #[arg(long, value_enum, default_value_t = ImageProfile::Shipped)]
    profile: ImageProfile,
}

#[derive(Clone, Copy, ValueEnum)]
enum ImageProfile {
    /// As released: small, without paths of this machine; the first build takes minutes
    Shipped,
    /// As for tests: large and slow, but built within a minute or two
    Dev,
}

#[derive(Args)]
struct ControlPlane {
    /// Options: --nodes N, --old-etcd, --controllers NAMES, --user NAME, --traces
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

/// The command line with its help, for the generated reference.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
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
        Command::Demo(demo) => run_demo(demo),
        Command::Verify(verify) => {
            let order = verify::Order {
                tiers: verify.tiers,
                fresh: verify.fresh,
                list: verify.list,
                failed: verify.failed,
                how: verify.how.parse(),
            };
            Ok(u8::from(!verify::run(&order)?))
        }
        Command::Scenarios(named) => run_scenarios(&named),
        Command::Kernels(Kernels { kernel, scenarios }) => {
            let all = kernels::run(&kernel, &scenarios, &mut std::io::stdout())?;
            Ok(u8::from(!all))
        }
        Command::Bench(bench) => bench.run(),
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
        Command::Mutate(Mutate { of, only }) => {
            let all_killed = mutate::run(of, only.as_deref(), true, &mut std::io::stdout())?;
            Ok(u8::from(!all_killed))
        }
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::Build => build(),
        Command::Image(image) => make_images(image),
        Command::Guest(guest) => guest.run(),
        Command::Unit(Unit { how, names }) => {
            Ok(u8::from(!verify::run_units(&names, how.parse())?))
        }
    }
}

fn run_demo(demo: Demo) -> Result<u8> {
    let out = &mut std::io::stdout();
    if demo.cluster {
        let traces = demo.traces.then(|| Traces::shown(demo.picture));
        return demo::run_cluster(demo.place, traces.as_ref(), out);
    }
    let mode = Mode {
        keep: demo.keep,
        ..Mode::default()
    };
    demo::run(demo.place, mode, &["--dataplane", &demo.dataplane], out)
}

fn run_scenarios(named: &Scenarios) -> Result<u8> {
    let words: Vec<&str> = std::iter::once("run")
        .chain(named.words.iter().map(String::as_str))
        .collect();
    scenarios::run(&words, named.place, Mode::default(), &mut std::io::stdout())
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
