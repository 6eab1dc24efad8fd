//! What `run` was asked to do, checked once at start.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use crate::api_server::ApiServer;
use crate::serve::{Listen, ListenError};

/// Where objects come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder of manifests, or one file.
    Manifests(PathBuf),
    /// A Kubernetes API server.
    Cluster(ApiServer),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifests(path) => write!(f, "manifests in {}", path.display()),
            Self::Cluster(server) => match (&server.address, &server.kubeconfig) {
                (Some(address), _) => write!(f, "the API server at {address}"),
                (None, Some(path)) => write!(f, "the API server of {}", path.display()),
                (None, None) => f.write_str("the API server"),
            },
        }
    }
}

/// Everything that `run` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where objects come from.
    pub source: Source,
    /// Where agents connect.
    pub listen: Listen,
    /// Where plans are written as files.
    pub plans_dir: Option<PathBuf>,
}

/// What was asked for cannot be done.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// There is no TLS, and nobody said that this is all right.
    #[error(
        "--insecure is missing: this version has no TLS; with --insecure plans are served without it, \
         on loopback or a Unix socket only"
    )]
    NoTls,
    /// Standard input does not change.
    #[error(
        "--manifests -: run follows changes, which standard input cannot show; give a folder or a file"
    )]
    Stdin,
    /// The address makes no sense, or would expose plans.
    #[error("--listen: {0}")]
    Listen(#[from] ListenError),
}

impl Config {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// [`ConfigError`] names the argument and what to write instead.
    pub fn new(
        source: Source,
        listen: &str,
        insecure: bool,
        plans_dir: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let listen: Listen = listen.parse()?;
        if !insecure {
            return Err(ConfigError::NoTls);
        }
        if let Listen::Tcp(address) = listen
            && !address.ip().is_loopback()
        {
            return Err(ListenError::Exposed { address }.into());
        }
        if source == Source::Manifests("-".into()) {
            return Err(ConfigError::Stdin);
        }
        Ok(Self {
            source,
            listen,
            plans_dir,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, insecure: bool) -> Result<Config, String> {
        Config::new(Source::Manifests("dir".into()), listen, insecure, None)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_tls_plans_are_served_only_on_loopback_and_unix_sockets() {
        for listen in ["127.0.0.1:0", "[::1]:7000", "unix:/run/p.sock"] {
            assert!(config(listen, true).is_ok(), "{listen}");
            assert!(
                config(listen, false).unwrap_err().contains("--insecure"),
                "{listen}"
            );
        }
        for listen in ["0.0.0.0:7000", "[::]:7000", "192.168.1.5:7000"] {
            assert!(
                config(listen, true).unwrap_err().contains("loopback"),
                "{listen}"
            );
        }
        assert!(config("localhost", true).unwrap_err().contains("IP:PORT"));
    }

    #[test]
    fn standard_input_cannot_be_followed() {
        let config = Config::new(Source::Manifests("-".into()), "127.0.0.1:0", true, None);
        assert!(matches!(config, Err(ConfigError::Stdin)));
    }
}
