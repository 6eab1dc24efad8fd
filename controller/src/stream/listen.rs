//! The listen addresses for agents.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};

use super::connection::{Io, Origin};
use super::entrance::Entrance;
use crate::freshness::Freshness;
use crate::open_files::Places;
use crate::telemetry::changes::Changes;
use crate::telemetry::metrics::Counters;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket, which works across network namespaces.
    Unix(PathBuf),
    /// An address and port; port 0 picks a free one.
    Tcp(SocketAddr),
}

/// The controller cannot listen on the address.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The text is not an address.
    #[error("invalid listen address {text:?}; write IP:PORT, [IPv6]:PORT or unix:PATH")]
    Syntax {
        /// The invalid text.
        text: String,
    },
    /// Without TLS, every client that reaches the address could read plans.
    #[error(
        "{address}: without TLS the controller listens only on loopback or a Unix socket; use 127.0.0.1:PORT or unix:PATH"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not available.
    #[error("listen on {listen}: {error}; check whether another controller runs there")]
    Bind {
        /// The address.
        listen: Listen,
        /// The system's error.
        error: io::Error,
    },
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let wrong = || ListenError::Syntax { text: text.into() };
        match text.strip_prefix("unix:") {
            Some("") => Err(wrong()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// An open listener with its admission policy.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Socket,
    pub(super) entrance: Entrance,
    pub(super) changes: Changes,
    pub(super) freshness: Arc<Freshness>,
}

impl Listener {
    /// Records the results of each change in `changes`.
    #[must_use]
    pub fn with_changes(self, changes: Changes) -> Self {
        Self { changes, ..self }
    }

    /// Accepts at most as many connections as there are places.
    #[must_use]
    pub fn with_places(mut self, places: Places) -> Self {
        self.entrance = self.entrance.with_places(places);
        self
    }

    /// Reports the age of the objects to agents.
    #[must_use]
    pub fn with_freshness(self, freshness: Arc<Freshness>) -> Self {
        Self { freshness, ..self }
    }
}

/// An open socket.
#[derive(Debug)]
pub(super) enum Socket {
    /// In the file system.
    Unix(UnixListener, PathBuf),
    /// On an address.
    Tcp(TcpListener),
}

impl Socket {
    /// The next connection, and where its client connects from.
    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Io>, Origin)> {
        match self {
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                let origin = Origin {
                    address: None,
                    text: format!("unix:{}", path.display()).into(),
                };
                Ok((Box::new(stream), origin))
            }
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // It fails for a client that is gone; an error here would pause all accepts.
                drop(stream.set_nodelay(true));
                // One client has one address, whether it arrives on a socket for IPv4 or for both families.
                let address = from.ip().to_canonical();
                let origin = Origin {
                    address: Some(address),
                    text: address.to_string().into(),
                };
                Ok((Box::new(stream), origin))
            }
        }
    }
}

impl Listen {
    /// Listens without TLS, and returns the actual address, in which port 0 is replaced.
    ///
    /// # Errors
    /// [`ListenError`] if the address is in use, or would expose plans.
    pub async fn open_insecure(self) -> Result<(Listener, Self), ListenError> {
        self.open_insecure_counted(Arc::default()).await
    }

    /// The same, with counters.
    ///
    /// # Errors
    /// As [`Self::open_insecure`].
    pub async fn open_insecure_counted(
        self,
        counters: Arc<Counters>,
    ) -> Result<(Listener, Self), ListenError> {
        match &self {
            Self::Tcp(address) if !address.ip().is_loopback() => {
                Err(ListenError::Exposed { address: *address })
            }
            _ => self.open(Entrance::open(counters)).await,
        }
    }

    /// Listens, and returns the actual address, in which port 0 is replaced.
    ///
    /// # Errors
    /// [`ListenError`] if the address is in use.
    pub async fn open(self, entrance: Entrance) -> Result<(Listener, Self), ListenError> {
        let opened = match &self {
            Self::Tcp(address) => open_tcp(*address).await,
            Self::Unix(path) => open_unix(path)
                .await
                .map(|listener| (Socket::Unix(listener, path.clone()), self.clone())),
        };
        let failed = |error| ListenError::Bind {
            listen: self.clone(),
            error,
        };
        let (socket, listen) = opened.map_err(failed)?;
        let listener = Listener {
            socket,
            entrance,
            changes: Changes::default(),
            freshness: Arc::default(),
        };
        Ok((listener, listen))
    }
}

async fn open_tcp(address: SocketAddr) -> io::Result<(Socket, Listen)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((Socket::Tcp(listener), Listen::Tcp(address)))
}

/// Replaces a stale socket. Never replaces one in use, or a file that is not a socket.
async fn open_unix(path: &PathBuf) -> io::Result<UnixListener> {
    match tokio::net::UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error)
            if error.kind() == io::ErrorKind::ConnectionRefused
                && std::fs::symlink_metadata(path)?.file_type().is_socket() =>
        {
            std::fs::remove_file(path)?;
        }
        _ => return Err(io::ErrorKind::AddrInUse.into()),
    }
    let listener = UnixListener::bind(path)?;
    // Every process that may write to the socket can read plans.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
