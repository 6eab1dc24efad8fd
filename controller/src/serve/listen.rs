//! Where agents find the controller.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};

use super::connection::Io;
use super::entrance::Entrance;
use crate::changes::Changes;
use crate::metrics::Counters;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A socket in the file system, which crosses network namespaces.
    Unix(PathBuf),
    /// An address and port; port 0 takes a free one.
    Tcp(SocketAddr),
}

/// The controller cannot listen there.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The text is no address.
    #[error("{text:?} is no address to listen on; write IP:PORT, [IPv6]:PORT or unix:PATH")]
    Syntax {
        /// The text as it came.
        text: String,
    },
    /// Without TLS anybody who reaches the address can read plans.
    #[error(
        "{address}: without TLS the controller listens only on loopback or a Unix socket; use 127.0.0.1:PORT or unix:PATH"
    )]
    Exposed {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be had.
    #[error("listen on {listen}: {error}; is another controller running there?")]
    Bind {
        /// The address.
        listen: Listen,
        /// What the system says.
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

/// An open listener, and how agents come in there.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Socket,
    pub(super) entrance: Entrance,
    pub(super) changes: Changes,
}

impl Listener {
    /// Notes there what becomes of each change.
    #[must_use]
    pub fn noting(self, changes: Changes) -> Self {
        Self { changes, ..self }
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
    /// The next connection, and where it comes from in words.
    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Io>, String)> {
        match self {
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), format!("unix:{}", path.display())))
            }
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // Ports of clients differ each time, and say nothing.
                Ok((Box::new(stream), from.ip().to_string()))
            }
        }
    }
}

impl Listen {
    /// Opens it without TLS, and says where it is: a port of 0 has become a real one.
    ///
    /// # Errors
    /// [`ListenError`] when the address is taken, or would expose plans.
    pub async fn open_insecure(self) -> Result<(Listener, Self), ListenError> {
        self.open_insecure_counted(Arc::default()).await
    }

    /// The same, with what is counted.
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

    /// Opens it, and says where it is: a port of 0 has become a real one.
    ///
    /// # Errors
    /// [`ListenError`] when the address is taken.
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
        };
        Ok((listener, listen))
    }
}

async fn open_tcp(address: SocketAddr) -> io::Result<(Socket, Listen)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((Socket::Tcp(listener), Listen::Tcp(address)))
}

/// Replaces a socket that nobody listens on any more, never one in use, and nothing but a socket.
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
    // Whoever may write to the socket can read plans.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
