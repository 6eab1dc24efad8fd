//! The command line.
//!
//! Touches: arguments, standard output and standard error. The commands are implemented in other modules.

mod agents;
pub(crate) mod explain;
mod feed;
mod following;
mod installation;
mod near;
mod open;
pub(crate) mod plan;
mod run;
mod telemetry;
mod trust;
pub(crate) mod what_if;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Everything worked, possibly with warnings.
const OK: u8 = 0;
/// Something was left out, or a running part failed.
const INCOMPLETE: u8 = 1;
/// Nothing was done: wrong usage, or no input.
const UNUSABLE: u8 = 2;

/// Plans the virtual servers and rules that each node of a cluster needs for Services, and streams the plans to
/// agents.
#[derive(Debug, Parser)]
#[command(name = "portolan-controller", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints one node's plan made from manifests, without a cluster or network.
    ///
    /// With --diff, --without-zone or --without-node: prints what would change, by Service and by node.
    ///
    /// Exit codes: 0 if everything was planned (possibly with warnings), 1 if objects were left out, 2 if there is no
    /// plan. Differences do not affect the exit code, unlike that of `kubectl proxyplan diff`.
    Plan(plan::PlanArguments),
    /// Explains why a client on a node is, or is not, served by each endpoint of a Service.
    ///
    /// Works on manifests and has the exit codes of `plan`. A Service that is not served is a valid answer: exit code
    /// 0.
    Explain(explain::ExplainArguments),
    /// Checks whether a step is done on each node, or whether an installation works.
    ///
    /// For the chart's Jobs and its test; rarely useful by hand. Exit codes: 0 if it is so, 1 if not, 2 if the command
    /// failed.
    Installation(installation::InstallationArguments),
    /// Plans all nodes of a cluster, follows changes, and streams the plans to agents.
    ///
    /// Watches the cluster of its service account or kubeconfig. With --manifests, reads files instead.
    Run(Box<run::RunArguments>),
}

/// The command line with its help, for the generated reference.
pub fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

/// Runs the program and returns its exit code.
pub fn run() -> ExitCode {
    let code = match Arguments::try_parse() {
        Ok(Arguments {
            command: Command::Plan(arguments),
        }) => plan::run(&arguments),
        Ok(Arguments {
            command: Command::Explain(arguments),
        }) => explain::run(&arguments),
        Ok(Arguments {
            command: Command::Installation(arguments),
        }) => installation::run(&arguments),
        Ok(Arguments {
            command: Command::Run(arguments),
        }) => run::run(*arguments),
        Err(error) => {
            // Ignored: the terminal may be closed.
            drop(error.print());
            u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
        }
    };
    code.into()
}
