//! TLS and tokens: flags of `run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::auth::tls::{Files, Kept};
use crate::auth::{Named, TokenOptions};
use crate::config::Certificate;

#[derive(Debug, Args)]
pub(super) struct TrustArguments {
    /// Serve without TLS, on loopback or a Unix socket only.
    #[arg(long, env = "PORTOLAN_INSECURE", value_parser = BoolishValueParser::new())]
    pub(super) insecure: bool,
    /// Server certificate with its intermediate chain, PEM. Must be valid for the agents' --controller-name. Both
    /// files are reloaded when they change.
    #[arg(
        long,
        value_name = "FILE",
        env = "PORTOLAN_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// Private key of the server certificate, PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "PORTOLAN_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Secret for a CA and a server certificate that the controllers create, renew and share.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_TLS_SECRET",
        requires = "ca_configmap",
        conflicts_with = "tls_cert"
    )]
    tls_secret: Option<Named>,
    /// ConfigMap from which agents read the CA bundle, as ca.crt.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_CA_CONFIGMAP",
        requires = "tls_secret"
    )]
    ca_configmap: Option<Named>,
    /// Name in the controllers' own certificate; the agents' --controller-name.
    #[arg(
        long,
        value_name = "NAME",
        env = "PORTOLAN_CONTROLLER_NAME",
        default_value = "portolan-controller"
    )]
    controller_name: String,
    /// Expected audience of agents' tokens.
    #[arg(
        long,
        value_name = "NAME",
        env = "PORTOLAN_TOKEN_AUDIENCE",
        default_value = "portolan-controller"
    )]
    token_audience: String,
    /// Service account of agents.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "PORTOLAN_AGENT_SERVICE_ACCOUNT",
        default_value = "portolan/portolan-agent"
    )]
    agent_service_account: Named,
    /// Interval between token reviews of an open stream in seconds, plus up to 50 % jitter. A stream whose pod was
    /// deleted is then closed, and one whose last token has expired.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "PORTOLAN_TOKEN_REVIEW_PERIOD",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    token_review_period: u64,
}

impl TrustArguments {
    pub(super) fn certificate(&self) -> Option<Certificate> {
        if let Some((secret, bundle)) = self.tls_secret.clone().zip(self.ca_configmap.clone()) {
            let name = self.controller_name.clone();
            return Some(Certificate::Own(Kept {
                secret,
                bundle,
                name,
            }));
        }
        let (certificate, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(Certificate::Given(Files { certificate, key }))
    }

    pub(super) fn tokens(&self) -> TokenOptions {
        TokenOptions {
            audience: self.token_audience.clone(),
            account: self.agent_service_account.clone(),
            review_period: Duration::from_secs(self.token_review_period),
        }
    }
}
