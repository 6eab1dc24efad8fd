//! `portolan-agent doctor`.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use clap::Args;

use super::trust::TrustArguments;
use super::{Form, StateArguments};
use crate::doctor::{Diagnosis, Level, Style, Where, gather, render};
use crate::receive::{Access, Address};

/// Tell what is wrong on this node: kernel, rules of others, what is programmed, disk and clock, each
/// thing with its remedy in one line. Reads only, and needs no running agent or controller.
///
/// Ends with status 1 if something fails, with 0 if there is nothing but warnings.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// What is in order, too, each with what was found.
    #[arg(long)]
    all: bool,
    /// The node never ran an agent: kernel settings that `portolan-agent init` writes, and a plan that is not there, are
    /// not reported as problems.
    #[arg(long)]
    before_install: bool,
    /// This node's name; with it, a plan on disk that came with a copied disk is told.
    #[arg(long, env = "PORTOLAN_NODE", value_name = "NAME")]
    node: Option<String>,
    /// The dummy device; the one of the plan on disk, if not named.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// See whether this controller can be reached, and with --controller-ca whether it is believed:
    /// `IP:PORT`, `[IPv6]:PORT` or `unix:PATH`.
    #[arg(long, env = "PORTOLAN_CONTROLLER", value_name = "ADDRESS")]
    controller: Option<Address>,
    /// The form of the output.
    #[arg(long, short, value_enum, default_value = "table")]
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
        let facts = gather(&Where {
            state_dir: self.state.state_dir,
            node: name.filter(|name| !name.is_empty()),
            device: self.device,
            controller,
        });
        let diagnosis = match self.before_install {
            true => Diagnosis::of(&facts).before_install(),
            false => Diagnosis::of(&facts),
        };
        let mut out = std::io::stdout().lock();
        let text = match self.output {
            Form::Json => {
                let text = serde_json::to_string_pretty(&diagnosis);
                text.context("write it as JSON")? + "\n"
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
