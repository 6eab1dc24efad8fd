//! `cargo lab guest`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::guest::{self, Job, Payload};
use crate::nested::{Profile, Programs};
use crate::{packages, progress, scenarios};

#[derive(Subcommand)]
pub(super) enum Guest {
    /// Runs one command in a fresh guest and returns its output and exit status
    Run(Run),
    /// Opens a root shell in the guest that `cargo demo --keep` keeps running
    Shell,
}

#[derive(Args)]
pub(super) struct Run {
    /// Memory of the guest, MB
    #[arg(long, default_value_t = 3000)]
    memory: u32,
    /// Deadline of the command, seconds (times PORTOLAN_SLOWNESS)
    #[arg(long, default_value_t = 600)]
    deadline: u64,
    /// Loads another kernel module, for example br_netfilter; may be repeated
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Lets the guest reach this machine as 10.0.2.2
    #[arg(long)]
    network: bool,
    /// Adds a program, such as a built test, to the guest's PATH; may be repeated
    #[arg(long = "with", value_name = "FILE")]
    programs: Vec<PathBuf>,
    /// Allows `cargo lab guest shell` to connect
    #[arg(long)]
    shell: bool,
    /// A program of the workspace or of the guest, with its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM ARGS")]
    command: Vec<String>,
}

impl Guest {
    pub(super) fn run(self) -> Result<u8> {
        match self {
            Self::Run(run) => run.execute(),
            Self::Shell => guest::shell::connect().map(|()| 0),
        }
    }
}

impl Run {
    fn execute(self) -> Result<u8> {
        let image = guest::prepare(&packages::ensure()?, None)?;
        let mut payload = Payload::default();
        for program in &self.programs {
            payload.program(program);
        }
        let mut job = Job::new(self.command, payload);
        job.environment = progress::for_programs();
        if job.command[0].starts_with("portolan-") {
            job = scenarios::with_our_programs(job, &Programs::build(Profile::Dev)?);
        }
        job.memory = self.memory;
        job.modules = self.modules;
        job.network = self.network;
        job.shell = self.shell;
        job.deadline = Some(Duration::from_secs(self.deadline));
        guest::run(&image, &job, &mut std::io::stdout())
    }
}
