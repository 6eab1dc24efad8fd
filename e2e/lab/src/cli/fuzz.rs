//! `cargo lab fuzz`.

use std::time::SystemTime;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::fuzz::{self, Limit, Order};

#[derive(Args)]
pub(super) struct Fuzz {
    /// Targets, the folders of e2e/fuzz-targets/corpus; default: all
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Number of inputs of each target
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    runs: u64,
    /// Time of each target in seconds, instead of a number of inputs
    #[arg(long, value_name = "N", conflicts_with = "runs")]
    seconds: Option<u64>,
    /// Seed of the inputs, to repeat another run; default: from the clock
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Format of the results
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Runs the property tests of messages instead, with this number of cases each
    #[arg(long, value_name = "N", conflicts_with_all = ["targets", "runs", "seconds", "seed", "output"])]
    cases: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A table
    Table,
    /// JSON
    Json,
}

impl Fuzz {
    pub(super) fn run(self) -> Result<u8> {
        let sink = &mut std::io::stdout();
        if let Some(cases) = self.cases {
            return fuzz::run_messages(cases, sink);
        }
        let clock = || {
            let since = SystemTime::UNIX_EPOCH.elapsed();
            since.unwrap_or_default().as_secs()
        };
        let order = Order {
            targets: self.targets,
            limit: self.seconds.map_or(Limit::Runs(self.runs), Limit::Seconds),
            seed: self.seed.unwrap_or_else(clock),
            json: matches!(self.output, Format::Json),
        };
        Ok(u8::from(!fuzz::run(&order, sink)?))
    }
}
