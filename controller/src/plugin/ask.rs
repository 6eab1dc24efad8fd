//! A client for the /convergence page of controllers.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use http::{StatusCode, Uri};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::convergence::{Convergence, PATH, Question};

/// Timeout of connecting, of each read, and of one request as a whole.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How controllers are reached and authenticated, and the user's token.
#[derive(Debug, Args)]
pub(super) struct ControllerArguments {
    /// Admin addresses of all controllers (their --admin), comma-separated: https://10.0.0.5:10271, or
    /// http://127.0.0.1:10271 over loopback. All of them, because each agent is connected to one. With the chart, only
    /// processes on the controller's node reach it, unless controller.adminAddress is set.
    #[arg(
        long = "controller",
        value_name = "URL,...",
        env = "PORTOLAN_CONTROLLERS",
        value_delimiter = ',',
        required = true
    )]
    controllers: Vec<String>,
    /// CA certificates for the controllers' server certificates, PEM.
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONTROLLER_CA")]
    controller_ca: Option<PathBuf>,
    /// Name in the controllers' certificate.
    #[arg(
        long,
        value_name = "NAME",
        env = "PORTOLAN_CONTROLLER_NAME",
        default_value = "portolan-controller"
    )]
    controller_name: String,
    /// File with a token for the controllers; the kubeconfig's credentials are not used. Its user needs the verb get on
    /// the nonResourceURL /convergence. `kubectl create token NAME > FILE` creates one.
    #[arg(
        long,
        value_name = "FILE",
        env = "PORTOLAN_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    token_file: PathBuf,
}

/// Why a controller did not answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// A permanent error: asking again does not help.
    Refused(String),
    /// A temporary error.
    Away(String),
}

/// One controller.
pub(super) struct Controller {
    url: String,
    client: Client,
}

impl ControllerArguments {
    /// Clients of all controllers. Sends nothing yet.
    pub(super) fn controllers(&self) -> anyhow::Result<Vec<Controller>> {
        if !self.token_file.exists() {
            bail!(
                "--token-file {}: no such file; create it with `kubectl create token NAME > FILE`",
                self.token_file.display()
            );
        }
        let urls = self.controllers.iter();
        urls.map(|url| self.controller(url)).collect()
    }

    fn controller(&self, url: &str) -> anyhow::Result<Controller> {
        let address: Uri = url
            .parse()
            .ok()
            .filter(|uri: &Uri| uri.host().is_some() && uri.scheme().is_some())
            .with_context(|| {
                format!("--controller {url:?} is not an address; expected a URL like https://10.0.0.5:10271")
            })?;
        let host = address.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let local = host == "localhost"
            || host
                .parse()
                .is_ok_and(|host: std::net::IpAddr| host.is_loopback());
        if address.scheme_str() != Some("https") && !local {
            bail!("--controller {url}: without TLS only over loopback; write https://");
        }
        let mut config = Config::new(address);
        config.root_cert = self.authority()?;
        config.tls_server_name = Some(self.controller_name.clone());
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        config.read_timeout = Some(REQUEST_TIMEOUT);
        config.proxy_url = None;
        config.auth_info.token_file = Some(self.token_file.display().to_string());
        let client = Client::try_from(config).with_context(|| format!("--controller {url}"))?;
        Ok(Controller {
            url: url.to_owned(),
            client,
        })
    }

    fn authority(&self) -> anyhow::Result<Option<Vec<Vec<u8>>>> {
        let Some(path) = &self.controller_ca else {
            return Ok(None);
        };
        let flag = || format!("--controller-ca {}", path.display());
        let pem = std::fs::read(path).with_context(flag)?;
        let certificates = CertificateDer::pem_slice_iter(&pem);
        let der = certificates.map(|certificate| certificate.map(|der| der.to_vec()));
        let der: Vec<_> = der.collect::<Result<_, _>>().with_context(flag)?;
        if der.is_empty() {
            bail!("{}: contains no certificate", flag());
        }
        Ok(Some(der))
    }
}

impl Controller {
    /// Requests the page.
    ///
    /// # Errors
    /// [`Problem`] states whether a retry may help.
    pub(super) async fn ask(&self, question: &Question) -> Result<Convergence, Problem> {
        let about = |error: anyhow::Error| format!("{}: {error:#}", self.url);
        match self.answer(question).await {
            Ok((status, body)) if status.is_success() => serde_json::from_slice(&body)
                .context("the response is unreadable; check whether the controller is newer")
                .map(|answer: Convergence| Convergence {
                    controller: self.url.clone(),
                    ..answer
                })
                .map_err(|error| Problem::Refused(about(error))),
            Ok((status, body)) => {
                let words = String::from_utf8_lossy(&body);
                let words = about(anyhow::anyhow!("{status}: {}", words.trim_end()));
                Err(if is_permanent(status) {
                    Problem::Refused(words)
                } else {
                    Problem::Away(words)
                })
            }
            Err(error) if is_unreachable(&error) => Err(Problem::Away(format!(
                "{}; check controller.adminAddress of the chart, and that the controller runs",
                about(error)
            ))),
            Err(error) => Err(Problem::Away(about(error))),
        }
    }

    async fn answer(&self, question: &Question) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let path = format!("{PATH}?{}", question.query());
        let request = http::Request::get(path).body(Vec::new())?;
        let asked = self.client.send(request.map(kube::client::Body::from));
        let response = tokio::time::timeout(REQUEST_TIMEOUT, asked)
            .await
            .context("no answer in time")??;
        let status = response.status();
        let body = response.into_body().collect_bytes().await?;
        Ok((status, body.to_vec()))
    }
}

/// Whether asking again does not help. A controller that limits requests answers again soon.
fn is_permanent(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS
}

/// Whether nothing answers at the address, because the controller listens at another one, for example.
fn is_unreachable(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let mut errors = error
        .chain()
        .filter_map(|error| error.downcast_ref::<io::Error>());
    errors.any(|error| {
        matches!(
            error.kind(),
            ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_without_a_listener_is_unreachable() {
        let error = |kind: io::ErrorKind| anyhow::Error::from(io::Error::from(kind)).context("ask");
        assert!(is_unreachable(&error(io::ErrorKind::ConnectionRefused)));
        assert!(!is_unreachable(&error(io::ErrorKind::InvalidData)));
    }

    #[test]
    fn a_controller_that_limits_requests_is_asked_again() {
        for (status, permanent) in [(401, true), (403, true), (429, false), (503, false)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(is_permanent(status), permanent, "{status}");
        }
    }
}
