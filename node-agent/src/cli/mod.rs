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
    /// Format of log lines.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        env = "PORTOLAN_LOG_FORMAT"
    )]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the controller and keep the kernel in sync with this node's plan.
    Run(run::Run),
    /// Load kernel modules and write kernel settings, which needs more privileges than `run` has.
    Init(init::Init),
    /// Print the kernel state that a plan leads to; changes nothing.
    Desired(desired::Desired),
    /// Show the kernel state and its differences from the last plan.
    Show(show::Show),
    /// Diagnose problems on this node and print a remedy for each; read-only.
    Doctor(doctor::Doctor),
    /// Remove everything that the agent added to the kernel, and nothing else.
    Cleanup(cleanup::Cleanup),
    /// Wait until terminated: keeps a pod on its node after the init container has done its one-time work.
    #[command(hide = true)]
    Hold,
}

/// Formats of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for log collectors.
    Json,
}

/// Output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text for people.
    Table,
    /// One JSON object.
    Json,
}

/// Where the agent keeps the state that must survive a restart.
#[derive(Debug, clap::Args)]
struct StateArguments {
    /// State directory: record of owned virtual servers, saved plan, previous kernel settings.
    #[arg(
        long,
        env = "PORTOLAN_STATE_DIR",
        default_value = "/var/lib/portolan",
        value_name = "DIR"
    )]
    state_dir: PathBuf,
}

/// The dummy device that holds the Service addresses.
#[derive(Debug, clap::Args)]
struct DeviceArguments {
    /// Name of the dummy device. Default: the name in the saved plan.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl DeviceArguments {
    /// The name given on the command line, else the name in these settings.
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
    start_log(arguments.log_format);
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
            print_error(&format!("portolan-agent: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts logging with the filter in `PORTOLAN_LOG`, for example `debug` or `info,portolan_agent::receive=debug`.
/// Filters on fields are not supported: they would add a regular expression engine to a program meant to stay small.
fn start_log(format: LogFormat) {
    let asked = std::env::var("PORTOLAN_LOG").ok();
    let filter = asked.as_deref().map(str::parse::<Targets>);
    let usual = || Targets::new().with_default(LevelFilter::INFO);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let filter = match filter {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            print_error(&format!(
                "ignoring the invalid filter in PORTOLAN_LOG: {error}"
            ));
            usual()
        }
        None => usual(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}

fn print_error(line: &str) {
    use std::io::Write as _;
    // If standard error is closed, there is nowhere to report this failure.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
