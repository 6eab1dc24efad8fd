//! The command line.
//!
//! Touches: arguments, standard output and standard error. What a command does is elsewhere.

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

/// Everything worked; there may have been warnings.
const OK: u8 = 0;
/// Something was left out, or stopped working.
const INCOMPLETE: u8 = 1;
/// Nothing could be done: wrong usage, or no input.
const UNUSABLE: u8 = 2;

/// Plans what every node of a cluster must program so that Services work, and streams it there.
#[derive(Debug, Parser)]
#[command(name = "portolan-controller", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints one node's plan, made from manifests: no cluster and no network needed. With --diff,
    /// --without-zone or --without-node: what would change, by Service and by nodes.
    ///
    /// Ends with 0 when everything was planned (warnings may have been printed), 1 when objects
    /// were left out and the rest was planned, 2 when there is no plan.
    Plan(plan::PlanArguments),
    /// Tells why a client on a node is, or is not, served by some endpoint of a Service.
    ///
    /// Made from manifests, as `plan` is, and with the same exit codes: also 0 for a Service that is
    /// not served, because that is the answer.
    Explain(explain::ExplainArguments),
    /// What the chart's Jobs and its test run: whether something is done on each node, whether an installation works.
    Installation(installation::InstallationArguments),
    /// Plans all nodes of a cluster, follows changes, and streams the plans to agents.
    ///
    /// Reads the cluster that its service account or kubeconfig leads to; with --manifests, files instead.
    Run(Box<run::RunArguments>),
}

/// Runs the program; the result is its exit code.
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
            // With a closed terminal there is nobody left to tell.
            drop(error.print());
            u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
        }
    };
    code.into()
}
