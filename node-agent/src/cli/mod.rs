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

/// The default of `--log`.
const DEFAULT_FILTER: &str = "info";

/// Receives a node's plan and programs IPVS, ipsets, rules and routes.
#[derive(Debug, Parser)]
#[command(name = "portolan-agent", version)]
struct Arguments {
    /// Log filter: error, warn, info, debug, or a directive such as portolan_agent::receive=debug.
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        default_value = DEFAULT_FILTER,
        env = "PORTOLAN_LOG"
    )]
    log: String,
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
    /// Receives this node's plan from a controller and keeps the kernel in sync with it.
    ///
    /// Runs until SIGTERM or SIGINT. The programmed state then stays in the kernel, so Services keep working.
    ///
    /// Exit codes: 0 after a signal, 1 after an error.
    Run(run::Run),
    /// Loads kernel modules and writes kernel settings, which needs more privileges than `run` has.
    ///
    /// Prints each step. Leaves sufficient values unchanged, so it is safe to run at any time. Afterwards `run` needs
    /// only CAP_NET_ADMIN and CAP_NET_RAW. The values come from the settings in the saved plan, or from the defaults
    /// if there is none.
    ///
    /// Exit codes: 0 if all steps succeeded, 1 if a step failed.
    Init(init::Init),
    /// Prints the kernel state that a plan leads to.
    ///
    /// Reads and changes no kernel.
    ///
    /// Exit codes: 0, or 1 if the plan is not valid.
    Desired(desired::Desired),
    /// Shows the kernel state and its differences from the saved plan; read-only.
    ///
    /// Lists virtual servers with their Services, and real servers with weight and connections.
    ///
    /// Exit codes: 0, also if there are differences; 1 if the kernel cannot be read.
    Show(show::Show),
    /// Diagnoses problems on this node and prints a remedy for each; read-only.
    ///
    /// Checks the kernel, rules of other programs, programmed state, disk and clock. Works without a running agent or
    /// controller.
    ///
    /// Exit codes: 0 if no check failed (warnings are possible), 1 if a check failed.
    Doctor(doctor::Doctor),
    /// Removes everything that the agent added to the kernel, and nothing else.
    ///
    /// This includes recorded virtual servers, routes, policy rules, the dummy device, sets, and chains in both
    /// variants of iptables. Kernel settings that `init` wrote are restored unless another program has changed them
    /// since. Safe to repeat, and on nodes that never ran an agent.
    ///
    /// Exit codes: 0 if nothing is left, 1 if something could not be removed.
    Cleanup(cleanup::Cleanup),
    /// Waits until terminated: keeps a pod on its node after the init container has done its one-time work.
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
    /// A table for people.
    Table,
    /// JSON for tools.
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

/// The dummy device of the routes to service ranges. It has no address.
#[derive(Debug, clap::Args)]
struct DeviceArguments {
    /// Name of the dummy device. Default: the name in the saved plan, or kube-ipvs0 without a plan.
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

/// The command line with its help, for the generated reference.
pub fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(&arguments.log, arguments.log_format);
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

/// Starts logging with this filter, for example `debug` or `info,portolan_agent::receive=debug`. An invalid filter must
/// not prevent a start. Filters on fields are not supported: they would add a regular expression engine to a program
/// that should stay small.
fn start_log(filter: &str, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let filter = filter.parse::<Targets>().unwrap_or_else(|error| {
        print_error(&format!(
            "--log: {filter:?} is not a log filter ({error}); using {DEFAULT_FILTER}"
        ));
        Targets::new().with_default(LevelFilter::INFO)
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
}

fn print_error(line: &str) {
    use std::io::Write as _;
    // If standard error is closed, there is nowhere to report this failure.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
