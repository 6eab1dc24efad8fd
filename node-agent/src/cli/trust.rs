//! Flags for TLS and authentication towards the controller, shared by several commands.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::receive::{Tls, Trust};

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// Connects to the controller without TLS. Anything that answers at its address controls this node, so
    /// use it only with loopback, Unix sockets and in labs.
    #[arg(long, env = "PORTOLAN_INSECURE", conflicts_with_all = ["controller_ca", "token_file"])]
    insecure: bool,
    /// CA certificates for the controller's certificate (PEM); read at each connection. `run` needs them, except with
    /// --insecure.
    #[arg(long, env = "PORTOLAN_CONTROLLER_CA", value_name = "FILE")]
    controller_ca: Option<PathBuf>,
    /// DNS name in the controller's certificate, independent of its address.
    #[arg(
        long,
        env = "PORTOLAN_CONTROLLER_NAME",
        value_name = "NAME",
        default_value = "portolan-controller"
    )]
    controller_name: String,
    /// Projected token of the agent's service account; read at each connection, then every minute for a newer one. `run`
    /// needs it, except with --insecure.
    #[arg(long, env = "PORTOLAN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TrustArguments {
    /// For `run`: connections without TLS need an explicit `--insecure`.
    pub(super) fn required(self) -> anyhow::Result<Trust> {
        if self.insecure {
            return Ok(Trust::Insecure);
        }
        if self.controller_ca.is_none() {
            bail!(
                "--controller-ca is missing: give the CA certificates for the controller's certificate; \
                 --insecure connects without TLS"
            );
        }
        if self.token_file.is_none() {
            bail!(
                "--token-file is missing: the controller sends a plan only to clients that the API server \
                 authenticates as the node's agent; mount a projected token of the agent's service account"
            );
        }
        self.if_any()
    }

    /// For read-only commands: with TLS if CA certificates are given.
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
