//! `portolan-agent doctor`.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use clap::Args;

use super::trust::TrustArguments;
use super::{Form, StateArguments};
use crate::doctor::{Diagnosis, GatherOptions, Level, Style, gather, render};
use crate::receive::{Access, Address};

/// Arguments of `portolan-agent doctor`.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Includes the checks that passed, with their findings.
    #[arg(long)]
    all: bool,
    /// For a node that never ran an agent: accepts what `portolan-agent init` and the agent will set up.
    #[arg(long)]
    before_install: bool,
    /// Name of this node; used to detect a saved plan of another node, as on a copied disk.
    #[arg(long, env = "PORTOLAN_NODE", value_name = "NAME")]
    node: Option<String>,
    /// Name of the dummy device. Default: the name in the saved plan, or kube-ipvs0 without a plan.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Checks that this controller is reachable, and with --controller-ca also its certificate:
    /// `IP:PORT`, `[IPv6]:PORT` or `unix:PATH`.
    #[arg(long, env = "PORTOLAN_CONTROLLER", value_name = "ADDRESS")]
    controller: Option<Address>,
    /// Output format.
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: Form,
    #[command(flatten)]
    trust: TrustArguments,
    #[command(flatten)]
    state: StateArguments,
}

impl Doctor {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let name = self.node.map(|name| name.trim().to_lowercase());
        let trust = self.trust.if_any()?;
        let controller = self.controller.map(|address| Access { address, trust });
        let facts = gather(&GatherOptions {
            state_dir: self.state.state_dir,
            node: name.filter(|name| !name.is_empty()),
            device: self.device,
            controller,
        });
        let diagnosis = match self.before_install {
            true => Diagnosis::before_install(&facts),
            false => Diagnosis::of(&facts),
        };
        let mut out = std::io::stdout().lock();
        let text = match self.output {
            Form::Json => {
                let text = serde_json::to_string_pretty(&diagnosis);
                text.context("encode the diagnosis as JSON")? + "\n"
            }
            Form::Table => {
                let colour = out.is_terminal();
                let all = self.all;
                render(&diagnosis, Style { colour, all })
            }
        };
        write!(out, "{text}").and_then(|()| out.flush())?;
        match diagnosis.count(Level::Fail) {
            0 => Ok(()),
            1 => bail!("one check failed"),
            count => bail!("{count} checks failed"),
        }
    }
}
