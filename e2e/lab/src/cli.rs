//! The command line.

mod bench;
mod guest;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, Args, Parser, Subcommand};

use crate::mutate::Subject;
use crate::nested::{Profile, Programs};
use crate::progress::{print, say};
use crate::scenarios::{Mode, Place, RUN};
use crate::tools::Release;
use crate::traced::Traces;
use crate::{cluster, demo, fuzz, images, kernels, mutate, packages, real, scenarios, verify};

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
    Verify(verify::Order),
    /// Runs scenarios, which are end-to-end tests on a kernel with IPVS, by name
    #[command(mut_arg(
        "words",
        required(
            "NAME",
            "Names of scenarios (`cargo verify --list --fresh --long \
        --tier guest` prints them), or --all"
        )
    ))]
    Scenarios {
        /// Where the scenarios run
        #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
        place: Place,
        #[command(flatten)]
        words: Words,
    },
    /// Runs scenarios on kernels of other Debian releases and prints a table
    Kernels {
        /// Kernel, by the first two numbers of its version; may be repeated; default: all known ones
        #[arg(long, value_name = "VERSION", value_parser = kernels::known())]
        kernel: Vec<String>,
        /// Names of scenarios; default: packet-path, bare, drift, draining, dataplanes and listing
        scenarios: Vec<String>,
    },
    /// Measures the cost of a part, compared with the kernel's own limit, with release builds
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Runs scenarios with a real API server on this machine, by name
    #[command(mut_arg(
        "words",
        required(
            "NAME",
            "Names of scenarios (`cargo verify --list --fresh --long \
        --tier cluster` prints them), or --all"
        )
    ))]
    Cluster {
        /// Kubernetes version of the control plane
        #[arg(long, value_enum, default_value_t = Release::Usual)]
        kubernetes: Release,
        #[command(flatten)]
        words: Words,
    },
    /// Starts a real Kubernetes control plane on this machine; runs until Ctrl-C
    #[command(mut_arg(
        "words",
        help("Options: --nodes N, --old-etcd, --controllers NAMES, --user NAME, --traces")
    ))]
    ControlPlane(Words),
    /// Starts a cluster of emulated machines with real kubelets, runs Kubernetes' own tests on it, removes it
    #[command(mut_arg(
        "words",
        required(
            "COMMAND",
            "prepare, up, down, test, operations, skew or compare, with \
        its options, such as `up --nodes 3`"
        )
    ))]
    Real(Words),
    /// Breaks code on purpose, one place at a time, and checks that its tests fail
    Mutate {
        /// The code that is broken
        #[arg(long, value_enum, default_value_t = Subject::Planner)]
        of: Subject,
        /// Text in the names of mutations to run, case-insensitive; default: all mutations
        #[arg(long, value_name = "NAME-PART")]
        only: Option<String>,
    },
    /// Runs the fuzzer: all parsers of input from outside, with coverage guidance
    Fuzz(fuzz::Order),
    /// Installs missing packages, builds the programs and prints their paths
    Build,
    /// Builds and checks the images of the controller and the agent; pushes nothing
    Image(images::Order),
    /// Runs a command or a shell in an emulated machine (guest) whose kernel has IPVS
    #[command(subcommand)]
    Guest(guest::Guest),
    /// Runs units (single checks); started by `cargo verify` for each batch of them
    #[command(name = verify::COMMAND, hide = true)]
    Unit {
        #[command(flatten)]
        how: verify::How,
        /// Units, as TIER/NAME
        #[arg(required = true)]
        names: Vec<String>,
    },
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

/// Arguments for `portolan-scenarios`, which parses them. Commands add the help.
#[derive(Args)]
struct Words {
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

impl Words {
    /// These arguments after others.
    fn after<'a>(&'a self, first: &[&'a str]) -> Vec<&'a str> {
        let words = self.words.iter().map(String::as_str);
        first.iter().copied().chain(words).collect()
    }
}

fn help(text: &'static str) -> impl Fn(Arg) -> Arg {
    move |arg| arg.help(text)
}

fn required(name: &'static str, text: &'static str) -> impl Fn(Arg) -> Arg {
    move |arg| arg.help(text).value_name(name).required(true)
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
    let out = &mut std::io::stdout();
    let failed_unless = |passed: bool| u8::from(!passed);
    match command {
        Command::Demo(demo) => run_demo(demo),
        Command::Verify(order) => verify::run(&order).map(failed_unless),
        Command::Scenarios { place, words } => {
            scenarios::run(&words.after(&[RUN]), place, Mode::default(), out)
        }
        Command::Kernels { kernel, scenarios } => {
            kernels::run(&kernel, &scenarios, out).map(failed_unless)
        }
        Command::Bench(bench) => bench.run(),
        Command::Cluster { kubernetes, words } => {
            cluster::run_scenarios(Profile::Dev, kubernetes, &words.after(&[]), out)
        }
        Command::ControlPlane(words) => cluster::control_plane(&words.after(&[]), out),
        Command::Real(words) => real::run(&words.after(&[]), out),
        Command::Mutate { of, only } => {
            mutate::run(of, only.as_deref(), true, out).map(failed_unless)
        }
        Command::Fuzz(order) => match order.cases {
            Some(cases) => fuzz::messages::run(cases, out),
            None => fuzz::run(&order, out).map(failed_unless),
        },
        Command::Build => build(),
        Command::Image(order) => images::run(&order, out).map(failed_unless),
        Command::Guest(guest) => guest.run(),
        Command::Unit { how, names } => verify::run_units(&names, how).map(failed_unless),
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

fn build() -> Result<u8> {
    packages::ensure()?;
    for binary in Programs::build(Profile::Dev)?.iter() {
        print(&binary.path.to_string_lossy())?;
    }
    Ok(0)
}
