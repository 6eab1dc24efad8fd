//! The command line.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::progress::say;
use crate::{guest, packages};

/// Prepares this machine, builds, boots guests, runs the demo and all checks.
#[derive(Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The emulated machine whose kernel has IPVS
    #[command(subcommand)]
    Guest(GuestCommand),
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
        Command::Guest(GuestCommand::Run(run)) => guest_run(run),
        Command::Guest(GuestCommand::Shell) => guest::shell::connect().map(|()| 0),
    }
}

fn guest_run(run: GuestRun) -> Result<u8> {
    let image = guest::prepare(&packages::ensure()?)?;
    let mut job = guest::Job::new(run.command, guest::Payload::default());
    job.memory = run.memory;
    job.modules = run.modules;
    job.network = run.network;
    job.deadline = Some(Duration::from_secs(run.deadline));
    guest::run(&image, &job, &mut std::io::stdout())
}
