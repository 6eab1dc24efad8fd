//! What `run` was asked to do, checked once at start.

use std::path::PathBuf;

use thiserror::Error;

use crate::serve::{Listen, ListenError};

/// Everything that `run` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The folder of manifests, or one file.
    pub manifests: PathBuf,
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
        manifests: PathBuf,
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
        if manifests.as_os_str() == "-" {
            return Err(ConfigError::Stdin);
        }
        Ok(Self {
            manifests,
            listen,
            plans_dir,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, insecure: bool) -> Result<Config, String> {
        Config::new("dir".into(), listen, insecure, None).map_err(|error| error.to_string())
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
        let config = Config::new("-".into(), "127.0.0.1:0", true, None);
        assert!(matches!(config, Err(ConfigError::Stdin)));
    }
}
