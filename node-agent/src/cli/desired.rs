//! `portolan-agent desired`: prints the desired kernel state of a plan, without accessing a kernel.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use portolan_plan::{Dataplane, PlanDocument};
use portolan_reconcile::nftables::{Tables, TablesDocument};
use portolan_reconcile::{DesiredDocument, Facts, HostAddress, HostNetwork};

/// Arguments of `portolan-agent desired`.
#[derive(Debug, Args)]
pub(super) struct Desired {
    /// Plan as printed by `portolan-controller plan -o json`; - reads standard input.
    #[arg(long, value_name = "FILE")]
    plan: String,
    /// Node address, replacing those in the plan; may be repeated.
    #[arg(long, value_name = "IP")]
    node_address: Vec<IpAddr>,
    /// Output format.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "json")]
    output: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// JSON for tools.
    Json,
}

impl Desired {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let name = if self.plan == "-" {
            "standard input"
        } else {
            &self.plan
        };
        let text = self
            .read()
            .with_context(|| format!("read the plan {name}"))?;
        let mut document: PlanDocument = serde_json::from_str(&text).with_context(|| {
            format!("{name} is not a plan; `portolan-controller plan -o json` prints one")
        })?;
        if !self.node_address.is_empty() {
            document.node_addresses.clone_from(&self.node_address);
        }
        // No kernel is read, so the node's addresses are those of the plan.
        let has = |address: &IpAddr| HostAddress::on("", (*address).into());
        let host = HostNetwork {
            addresses: document.node_addresses.iter().map(has).collect(),
            ..HostNetwork::default()
        };
        let plan = document
            .into_plan()
            .with_context(|| format!("the plan {name}"))?;
        let facts = Facts::new(&plan, &host).context("the plan has no entry for a node")?;
        let Form::Json = self.output;
        let text = match facts.settings().dataplane {
            Dataplane::Ipvs => {
                let desired = portolan_reconcile::Desired::of(&facts, &host, &BTreeSet::new());
                serde_json::to_string_pretty(&DesiredDocument::from(&desired))?
            }
            Dataplane::Nftables => {
                let tables = Tables::of(&facts);
                let document = TablesDocument::new(&tables.applied(), Some(&tables));
                serde_json::to_string_pretty(&document)?
            }
        };
        writeln!(std::io::stdout().lock(), "{text}")?;
        Ok(())
    }

    fn read(&self) -> std::io::Result<String> {
        if self.plan != "-" {
            return std::fs::read_to_string(&self.plan);
        }
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        Ok(text)
    }
}
