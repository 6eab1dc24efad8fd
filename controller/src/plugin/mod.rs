//! `kubectl proxyplan`: what an operator asks of the proxy of a cluster, on their own machine or in a pod.
//!
//! Touches: arguments, standard output and standard error, the API server, pages of controllers.

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

/// What was asked for is so.
const OK: u8 = 0;
/// It is not so, or not yet.
const NOT_YET: u8 = 1;
/// It cannot be found out.
const UNUSABLE: u8 = 2;

/// Shows what the proxy of a cluster does.
#[derive(Debug, Parser)]
#[command(name = "kubectl proxyplan", bin_name = "kubectl proxyplan", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows a node's whole plan, made here from the objects that you may read, and whether its agent
    /// reported the same.
    ///
    /// Ends with 0, with 1 when objects could not be read and were left out, 2 when there is no plan.
    Show(plans::ShowArguments),
    /// Tells why a client on a node is, or is not, served by some endpoint of a Service.
    ///
    /// Made from the objects that you may read. Ends as `show` does; also with 0 for a Service that is
    /// not served, because that is the answer.
    Explain(plans::ExplainArguments),
    /// Shows what differs between the plans of two nodes.
    ///
    /// Ends with 0 when nothing does, 1 when something does, 2 when a node is not there.
    Diff(plans::DiffArguments),
    /// Lists the nodes that need a look first: those that fail, have drifted, or take longest.
    ///
    /// Ends with 0 when all have their plans in force and are healthy, 1 when not, 2 when nobody can say.
    Top(nodes::TopArguments),
    /// Shows how far a change of the settings is, holds it, lets it go on, takes it back.
    ///
    /// Ends with 0, with 1 when a change was taken back or needs you, 2 when nothing could be done.
    Rollout(rollout::RolloutArguments),
    /// Waits until all nodes have a Service in their kernels as it is now, or have stopped sending
    /// connections to an address.
    ///
    /// What the API server holds when this begins is what is waited for. Nodes that are not Ready and have
    /// no stream, and those that no controller has seen for a while, are listed and not waited for.
    ///
    /// Ends with 0 when all have it, 1 when the time is over, 2 when nobody can say.
    Wait(wait::WaitArguments),
    /// Converts a configuration of kube-proxy into a ProxyConfig, and tells what became of each field.
    ///
    /// The ProxyConfig goes to standard output, what became of the fields to standard error. Flags of
    /// kube-proxy's command line are no part of its configuration: `kube-proxy FLAGS --write-config-to FILE`
    /// writes them down as one.
    ///
    /// Ends with 0 when nodes do what they did before, 1 when a field has no equal or changes its meaning, 2
    /// when the configuration cannot be read.
    ConvertConfig(convert::ConvertArguments),
    /// Prints what lets a shell complete these words: for example
    /// `source <(kubectl-proxyplan completion bash)`.
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// Runs the program; the result is its exit code.
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
                // The file is called so, and kubectl finds it by that name.
                let program = "kubectl-proxyplan";
                let mut command = Arguments::command().bin_name(program);
                clap_complete::generate(shell, &mut command, program, &mut io::stdout().lock());
                OK
            }
        },
        Err(error) => {
            // With a closed terminal there is nobody left to tell.
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
