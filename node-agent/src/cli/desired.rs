//! `portolan-agent desired`: what the kernel would be given, without a kernel.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use portolan_plan::PlanDocument;
use portolan_reconcile::{DesiredDocument, HostAddress, HostNetwork};

/// Print what the kernel would be given for a plan; touches nothing.
#[derive(Debug, Args)]
pub(super) struct Desired {
    /// A plan as `portolan-controller plan -o json` prints it; - reads standard input.
    #[arg(long, value_name = "FILE")]
    plan: String,
    /// An address of the node, instead of those in the plan; may be given more than once.
    #[arg(long, value_name = "IP")]
    node_address: Vec<IpAddr>,
    /// The form of the output.
    #[arg(long, short, value_enum, default_value = "json")]
    output: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// One JSON object.
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
            format!("{name} is no plan; `portolan-controller plan -o json` prints one")
        })?;
        if !self.node_address.is_empty() {
            document.node_addresses.clone_from(&self.node_address);
        }
        // Without a kernel to look at, the node has the addresses it is said to have.
        let has = |address: &IpAddr| HostAddress::on("", (*address).into());
        let host = HostNetwork {
            addresses: document.node_addresses.iter().map(has).collect(),
            ..HostNetwork::default()
        };
        let plan = document
            .into_plan()
            .with_context(|| format!("the plan {name}"))?;
        let desired = portolan_reconcile::Desired::new(&plan, &host)
            .context("the plan does not say which node it is for")?;
        let Form::Json = self.output;
        let text = serde_json::to_string_pretty(&DesiredDocument::from(&desired))?;
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
