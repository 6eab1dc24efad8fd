//! The command line.

mod ask;
mod cleanup;
mod desired;
mod doctor;
mod init;
mod run;
mod show;
mod trust;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use portolan_plan::Settings;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Receives a node's plan and programs IPVS, ipsets, rules and routes.
#[derive(Debug, Parser)]
#[command(name = "portolan-agent", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the controller and keep the kernel equal to this node's plan.
    Run(run::Run),
    /// Do once what needs more privileges than `run` has: load modules, write kernel settings.
    Init(init::Init),
    /// Print what the kernel would be given for a plan; touches nothing.
    Desired(desired::Desired),
    /// Show what the kernel holds, beside what the last plan wants.
    Show(show::Show),
    /// Tell what is wrong on this node, each thing with its remedy; reads only.
    Doctor(doctor::Doctor),
    /// Remove from the kernel what the agent put there, and nothing else.
    Cleanup(cleanup::Cleanup),
    /// Do nothing until it is ended: keeps a pod on its node after its init container has done something there once.
    #[command(hide = true)]
    Hold,
}

/// How something is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Table,
    /// One JSON object.
    Json,
}

/// Where the agent keeps what must outlive it.
#[derive(Debug, clap::Args)]
struct StateArguments {
    /// Directory of the record of what is ours.
    #[arg(
        long,
        env = "PORTOLAN_STATE_DIR",
        default_value = "/var/lib/portolan",
        value_name = "DIR"
    )]
    state_dir: PathBuf,
}

/// Which device is ours.
#[derive(Debug, clap::Args)]
struct DeviceArguments {
    /// The dummy device; the one of the plan on disk, if not named.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl DeviceArguments {
    /// The device that was named, or that these settings name.
    fn name(&self, settings: Option<&Settings>) -> String {
        let of_settings = || match settings {
            Some(settings) => settings.device.to_string(),
            None => Settings::default().device.to_string(),
        };
        self.device.clone().unwrap_or_else(of_settings)
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    let end = match arguments.command {
        Command::Run(command) => command.execute(),
        Command::Init(command) => command.execute(),
        Command::Desired(command) => command.execute(),
        Command::Show(command) => command.execute(),
        Command::Doctor(command) => command.execute(),
        Command::Cleanup(command) => command.execute(),
        Command::Hold => loop {
            std::thread::park();
        },
    };
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("portolan-agent: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// What is logged: `PORTOLAN_LOG`, as in `debug` or `info,portolan_agent::receive=debug`. Filters that
/// look at fields would bring an engine for regular expressions into a program that is to be small.
fn start_log() {
    let asked = std::env::var("PORTOLAN_LOG").ok();
    let filter = asked.as_deref().map(str::parse::<Targets>);
    let usual = || Targets::new().with_default(LevelFilter::INFO);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let filter = match filter {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            tell(&format!("PORTOLAN_LOG is not used: {error}"));
            usual()
        }
        None => usual(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}

fn tell(line: &str) {
    use std::io::Write as _;
    // A closed error output leaves nobody to tell.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
