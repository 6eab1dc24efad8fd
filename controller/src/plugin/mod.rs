//! `kubectl proxyplan`: what an operator asks of the proxy of a cluster, on their own machine or in a pod.
//!
//! Touches: arguments, standard output and standard error, the API server, pages of controllers.

mod ask;
mod output;
mod wait;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Waits until all nodes have a Service in their kernels as it is now, or have stopped sending
    /// connections to an address.
    ///
    /// What the API server holds when this begins is what is waited for. Nodes that are not Ready and have
    /// no stream, and those that no controller has seen for a while, are listed and not waited for.
    ///
    /// Ends with 0 when all have it, 1 when the time is over, 2 when nobody can say.
    Wait(wait::WaitArguments),
}

/// Runs the program; the result is its exit code.
pub fn run() -> ExitCode {
    let code = match Arguments::try_parse() {
        Ok(Arguments {
            command: Command::Wait(arguments),
        }) => with_runtime(wait::run(arguments)),
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
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(error.into()),
    };
    ended.unwrap_or_else(|error| {
        drop(writeln!(io::stderr().lock(), "error: {error:#}"));
        UNUSABLE
    })
}
