//! Where a controller is, and how to get there.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::KEEP_ALIVE;

/// A controller's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system, which crosses network namespaces.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

/// A text that is no address of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no controller address; write IP:PORT, [IPv6]:PORT or unix:PATH (names are not looked up: they would need the DNS Service that the agent makes work)"
)]
pub struct AddressError {
    /// The text as it came.
    pub text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(AddressError { text: text.into() }),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| AddressError { text: text.into() }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Address {
    /// Connects.
    ///
    /// # Errors
    /// What the transport says when nobody answers.
    pub async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let uri = match self {
            // The library wants a host to talk of; the connector ignores it.
            Self::Unix(_) => "http://controller".to_owned(),
            Self::Tcp(address) => format!("http://{address}"),
        };
        let endpoint = Endpoint::from_shared(uri)?
            .connect_timeout(KEEP_ALIVE)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        match self {
            Self::Tcp(_) => endpoint.connect().await,
            Self::Unix(path) => {
                let path = path.clone();
                let connector = service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move {
                        tokio::net::UnixStream::connect(path)
                            .await
                            .map(TokioIo::new)
                    }
                });
                endpoint.connect_with_connector(connector).await
            }
        }
    }
}
