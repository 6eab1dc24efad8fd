//! Where agents find the controller.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};

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

/// An open listener.
#[derive(Debug)]
pub enum Listener {
    /// On a socket in the file system.
    Unix(UnixListenerStream, PathBuf),
    /// On an address.
    Tcp(TcpListenerStream),
}

impl Listen {
    /// Opens it without TLS, and says where it is: a port of 0 has become a real one.
    ///
    /// # Errors
    /// [`ListenError`] when the address is taken, or would expose plans.
    pub async fn open_insecure(self) -> Result<(Listener, Self), ListenError> {
        let failed = |listen: &Self, error| ListenError::Bind {
            listen: listen.clone(),
            error,
        };
        match &self {
            Self::Tcp(address) if !address.ip().is_loopback() => {
                Err(ListenError::Exposed { address: *address })
            }
            Self::Tcp(address) => {
                let open = async {
                    let listener = TcpListener::bind(address).await?;
                    let address = listener.local_addr()?;
                    Ok((
                        Listener::Tcp(TcpListenerStream::new(listener)),
                        Self::Tcp(address),
                    ))
                };
                open.await.map_err(|error| failed(&self, error))
            }
            Self::Unix(path) => {
                let listener = open_unix(path)
                    .await
                    .map_err(|error| failed(&self, error))?;
                let stream = UnixListenerStream::new(listener);
                Ok((Listener::Unix(stream, path.clone()), self))
            }
        }
    }
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
