//! The configuration of `run`, validated once at start.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::api_server::ApiServer;
use crate::auth::TokenOptions;
use crate::auth::tls::{Files, Kept};
use crate::operator::agents::Agents;
use crate::stream::{Listen, ListenError};

/// The source of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A directory of manifests, or one file.
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

/// How clients are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// Not at all: the socket is on loopback or in the file system.
    Insecure,
    /// By the tokens of agents, over TLS.
    Tls(Box<TlsOptions>),
}

/// Options of TLS and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// The source of the certificate.
    pub certificate: Certificate,
    /// Requirements for tokens.
    pub tokens: TokenOptions,
}

/// The source of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// Files that the user provides.
    Given(Files),
    /// The controller issues it itself.
    Own(Kept),
}

/// The arguments, not validated yet.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The source of the objects.
    pub source: Source,
    /// The address for agents.
    pub listen: String,
    /// Whether TLS is off.
    pub insecure: bool,
    /// The source of the certificate.
    pub certificate: Option<Certificate>,
    /// Requirements for tokens.
    pub tokens: TokenOptions,
    /// The directory to which plans are written as files.
    pub plans_dir: Option<PathBuf>,
    /// The address of health and metrics.
    pub admin: SocketAddr,
    /// The agents whose DaemonSets the controller manages, if any.
    pub agents: Option<Agents>,
}

/// The validated configuration of `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The source of the objects.
    pub source: Source,
    /// The address for agents.
    pub listen: Listen,
    /// How clients are authenticated.
    pub security: Security,
    /// The directory to which plans are written as files.
    pub plans_dir: Option<PathBuf>,
    /// The address of health and metrics.
    pub admin: SocketAddr,
    /// The agents whose DaemonSets the controller manages, if any.
    pub agents: Option<Agents>,
}

/// Arguments that are invalid or contradict each other.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No certificate, and `--insecure` was not given.
    #[error(
        "no certificate: give --tls-cert and --tls-key, or --tls-secret and --ca-configmap; with --insecure plans are served without TLS, \
         on loopback or a Unix socket only"
    )]
    NoTls,
    /// `--insecure` and a certificate exclude each other.
    #[error("--insecure and a certificate exclude each other; remove one of them")]
    Both,
    /// Tokens cannot be reviewed without an API server.
    #[error(
        "--manifests with TLS: agents cannot be authenticated, because only an API server reviews their tokens; use \
         --insecure, on loopback or a Unix socket"
    )]
    NoTokenReviews,
    /// Standard input cannot be watched for changes.
    #[error(
        "--manifests -: `run` watches for changes, and standard input has none; give a folder or a file"
    )]
    Stdin,
    /// Agents in pods cannot reach a Unix socket in another pod.
    #[error(
        "--agents-template with --listen unix:PATH: pods of agents cannot reach that; listen on IP:PORT"
    )]
    Unreachable,
    /// The address is invalid, or would expose plans without TLS.
    #[error("--listen: {0}")]
    Listen(#[from] ListenError),
}

impl Config {
    /// Validates the arguments.
    ///
    /// # Errors
    /// [`ConfigError`] names the argument and what to write instead.
    pub fn new(asked: Asked) -> Result<Self, ConfigError> {
        let listen: Listen = asked.listen.parse()?;
        let security = match (asked.insecure, asked.certificate, &asked.source) {
            (false, None, _) => return Err(ConfigError::NoTls),
            (true, Some(_), _) => return Err(ConfigError::Both),
            (true, None, _) => Security::Insecure,
            (false, Some(_), Source::Manifests(_)) => return Err(ConfigError::NoTokenReviews),
            (false, Some(certificate), Source::Cluster(_)) => Security::Tls(Box::new(TlsOptions {
                certificate,
                tokens: asked.tokens,
            })),
        };
        if let (Listen::Tcp(address), Security::Insecure) = (&listen, &security)
            && !address.ip().is_loopback()
        {
            return Err(ListenError::Exposed { address: *address }.into());
        }
        if asked.source == Source::Manifests("-".into()) {
            return Err(ConfigError::Stdin);
        }
        if asked.agents.is_some() && matches!(listen, Listen::Unix(_)) {
            return Err(ConfigError::Unreachable);
        }
        Ok(Self {
            source: asked.source,
            listen,
            security,
            plans_dir: asked.plans_dir,
            admin: asked.admin,
            agents: asked.agents,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn asked(listen: &str, insecure: bool) -> Asked {
        Asked {
            source: Source::Manifests("dir".into()),
            listen: listen.into(),
            insecure,
            certificate: None,
            tokens: TokenOptions {
                audience: "portolan-controller".into(),
                account: "portolan/portolan-agent".parse().unwrap(),
                review_period: Duration::from_secs(600),
            },
            plans_dir: None,
            admin: (Ipv4Addr::LOCALHOST, 0).into(),
            agents: None,
        }
    }

    fn config(asked: Asked) -> Result<Config, String> {
        Config::new(asked).map_err(|error| error.to_string())
    }

    fn says(asked: Asked, words: &str) {
        let error = config(asked).unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn without_tls_plans_are_served_only_on_loopback_and_unix_sockets() {
        for listen in ["127.0.0.1:0", "[::1]:7000", "unix:/run/p.sock"] {
            assert!(config(asked(listen, true)).is_ok(), "{listen}");
            says(asked(listen, false), "--insecure");
        }
        for listen in ["0.0.0.0:7000", "[::]:7000", "192.168.1.5:7000"] {
            says(asked(listen, true), "loopback");
        }
        says(asked("localhost", true), "IP:PORT");
    }

    #[test]
    fn with_a_certificate_any_address_is_allowed_but_tokens_need_an_api_server() {
        let files = Some(Certificate::Given(Files {
            certificate: "tls.crt".into(),
            key: "tls.key".into(),
        }));
        let with = |insecure| Asked {
            certificate: files.clone(),
            ..asked("0.0.0.0:7000", insecure)
        };
        says(with(true), "exclude each other");
        says(with(false), "only an API server reviews");
        let in_cluster = Asked {
            source: Source::Cluster(ApiServer::default()),
            ..with(false)
        };
        let config = config(in_cluster).unwrap();
        assert!(matches!(config.security, Security::Tls(_)));
    }

    #[test]
    fn agents_in_pods_need_an_address() {
        let agents = Agents {
            template: "portolan/agents".parse().unwrap(),
            controllers: "portolan/controllers".parse().unwrap(),
            pods: "app=controller".into(),
        };
        let with = |listen| Asked {
            agents: Some(agents.clone()),
            ..asked(listen, true)
        };
        says(with("unix:/run/p.sock"), "listen on IP:PORT");
        assert!(config(with("127.0.0.1:7000")).is_ok());
    }

    #[test]
    fn standard_input_cannot_be_followed() {
        let asked = Asked {
            source: Source::Manifests("-".into()),
            ..asked("127.0.0.1:0", true)
        };
        assert!(matches!(Config::new(asked), Err(ConfigError::Stdin)));
    }
}
