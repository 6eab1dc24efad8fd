//! `kubectl proxyplan`: commands for administrators, on their own machine or in a pod.
//!
//! Touches: arguments, standard output and standard error, the API server, admin pages of controllers.

mod ask;
mod cluster;
mod convert;
mod nodes;
mod output;
mod plans;
mod rollout;
mod wait;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

/// The state is as asked for.
const OK: u8 = 0;
/// It is not, or not yet.
const NOT_YET: u8 = 1;
/// The state is unknown.
const UNUSABLE: u8 = 2;

/// Inspects and controls the service proxy of a cluster.
#[derive(Debug, Parser)]
#[command(name = "kubectl proxyplan", bin_name = "kubectl proxyplan", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows a node's whole plan, computed here from the objects that you may read, and whether its agent reported
    /// the same.
    ///
    /// Exit codes: 0; 1 if unreadable objects were left out; 2 if there is no plan.
    Show(plans::ShowArguments),
    /// Explains why a client on a node is, or is not, served by each endpoint of a Service.
    ///
    /// Computed from the objects that you may read. Exit codes as for `show`. A Service that is not served is a valid
    /// answer: exit code 0.
    Explain(plans::ExplainArguments),
    /// Shows what would change on a node if it had the plan of another node.
    ///
    /// Exit codes: 0 if nothing would, 1 if something would, 2 if a node does not exist.
    Diff(plans::DiffArguments),
    /// Lists the nodes that need attention first: failing, not answering, disconnected, outdated and drifted ones, then
    /// the slowest.
    ///
    /// LAG is the time from the creation of the last batch of changes until the kernel has it. OPERATIONS counts the
    /// kernel operations of this batch. DRIFT counts kernel entries that other programs changed. A node is outdated if
    /// no controller has written the status of its ProxyPlan for 15 minutes.
    ///
    /// Exit codes: 0 if all nodes are healthy and have their plans in force, 1 if not, 2 if the state is unknown, also
    /// if no ProxyPlan exists.
    Top(nodes::TopArguments),
    /// Shows the rollout of a change of settings or agents; pauses, resumes or undoes it.
    ///
    /// Exit codes: 0 if the command succeeded, 2 if it failed. `status` exits with 1 if the rollout was rolled back, is
    /// paused or has halted.
    Rollout(rollout::RolloutArguments),
    /// Waits until the current state of a Service is in force on all nodes.
    ///
    /// With --gone: waits until no node sends new connections of the Service to an address. The command waits for the
    /// state that the API server has when the command starts. It lists nodes without waiting for them if they are not
    /// Ready and their agents are not connected, or if their agents have been connected to no controller for --unseen
    /// seconds.
    ///
    /// Exit codes: 0 if the state is in force on all nodes that are waited for, 1 after the timeout, 2 if the state is
    /// unknown.
    Wait(wait::WaitArguments),
    /// Converts a kube-proxy configuration to a ProxyConfig, and reports the result for each field.
    ///
    /// Prints the ProxyConfig on standard output and the report on standard error. Command-line flags of kube-proxy
    /// are not part of its configuration: `kube-proxy FLAGS --write-config-to FILE` writes a configuration that
    /// includes them.
    ///
    /// Exit codes: 0 if nodes behave as before, 1 if a field has no equivalent or changes its meaning, 2 if the
    /// configuration is unreadable.
    ConvertConfig(convert::ConvertArguments),
    /// Prints a shell completion script for `kubectl-proxyplan`.
    ///
    /// For example: `source <(kubectl-proxyplan completion bash)`. kubectl itself does not use it, so it completes
    /// `kubectl-proxyplan`, not `kubectl proxyplan`.
    Completion {
        /// Shell.
        shell: Shell,
    },
}

/// The command line with its help, for the generated reference.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program and returns its exit code.
pub fn run() -> ExitCode {
    let code = match Arguments::try_parse() {
        Ok(Arguments { command }) => match command {
            Command::Show(arguments) => with_runtime(plans::show(arguments)),
            Command::Explain(arguments) => with_runtime(plans::explain(arguments)),
            Command::Diff(arguments) => with_runtime(plans::diff(arguments)),
            Command::Top(arguments) => with_runtime(nodes::top(arguments)),
            Command::Rollout(arguments) => with_runtime(rollout::run(arguments)),
            Command::Wait(arguments) => with_runtime(wait::run(arguments)),
            Command::ConvertConfig(arguments) => code(convert::run(&arguments)),
            Command::Completion { shell } => {
                // kubectl finds the plugin by the name of its file.
                let program = "kubectl-proxyplan";
                let mut command = Arguments::command().bin_name(program);
                clap_complete::generate(shell, &mut command, program, &mut io::stdout().lock());
                OK
            }
        },
        Err(error) => {
            // Ignored: the terminal may be closed.
            drop(error.print());
            u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
        }
    };
    code.into()
}

fn with_runtime(command: impl Future<Output = anyhow::Result<u8>>) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    code(match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(error.into()),
    })
}

fn code(ended: anyhow::Result<u8>) -> u8 {
    ended.unwrap_or_else(|error| {
        drop(writeln!(io::stderr().lock(), "error: {error:#}"));
        UNUSABLE
    })
}
