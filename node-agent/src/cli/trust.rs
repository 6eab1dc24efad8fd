//! Who the controller has to be, and who this agent is there: flags of several commands.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::receive::{Tls, Trust};

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// Speak to the controller without TLS. Whoever answers at its address decides what this node
    /// does, so only for loopback, Unix sockets and labs.
    #[arg(long, env = "PORTOLAN_INSECURE", conflicts_with_all = ["controller_ca", "token_file"])]
    insecure: bool,
    /// Certificates of those who may have signed the controller's, as PEM; read at each connection.
    #[arg(long, env = "PORTOLAN_CONTROLLER_CA", value_name = "FILE")]
    controller_ca: Option<PathBuf>,
    /// The name that the controller's certificate is for, wherever it runs.
    #[arg(
        long,
        env = "PORTOLAN_CONTROLLER_NAME",
        value_name = "NAME",
        default_value = "portolan-controller"
    )]
    controller_name: String,
    /// The projected token of the agent's service account; read at each connection.
    #[arg(long, env = "PORTOLAN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TrustArguments {
    /// For an agent, which believes nobody by accident.
    pub(super) fn required(self) -> anyhow::Result<Trust> {
        if self.insecure {
            return Ok(Trust::Insecure);
        }
        if self.controller_ca.is_none() {
            bail!(
                "--controller-ca is missing: give the certificates of who signs the controller's; \
                 --insecure speaks without TLS"
            );
        }
        if self.token_file.is_none() {
            bail!(
                "--token-file is missing: the controller gives a plan only to whom the API server knows as \
                 the agent of the node; mount a projected token of the agent's service account"
            );
        }
        self.if_any()
    }

    /// For somebody who looks: over TLS where there are certificates.
    pub(super) fn if_any(self) -> anyhow::Result<Trust> {
        let Some(ca) = self.controller_ca else {
            return Ok(Trust::Insecure);
        };
        let name = self.controller_name;
        let parsed = name.clone().try_into();
        let name = parsed.with_context(|| {
            format!("--controller-name {name:?}: give a name like portolan-controller")
        })?;
        let token = self.token_file;
        Ok(Trust::Tls(Tls { ca, name, token }))
    }
}
