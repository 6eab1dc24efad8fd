//! How a controller is talked to: in the clear, or over TLS as somebody with a token.
//!
//! Touches: the network, and files with certificates and the token, for reading. They are read at each
//! connection, so what replaces them is in force from the next one.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::tls::{self, TlsError};
use super::{Address, KEEP_ALIVE};

/// How long a controller may take until a connection is open, TLS included.
const OPENING: Duration = Duration::from_secs(20);

/// A controller, and how it is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Where it is.
    pub address: Address,
    /// Who it has to be, and who we are there.
    pub trust: Trust,
}

/// Who a controller has to be, and who we are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Whoever answers is believed, and nobody asks who we are.
    Insecure,
    /// Only who proves to be the controller.
    Tls(Tls),
}

/// Where certificates and the token are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of those who may have signed the controller's, as PEM.
    pub ca: PathBuf,
    /// The name that its certificate is for.
    pub name: ServerName<'static>,
    /// The token of the agent's service account.
    pub token: Option<PathBuf>,
}

/// No connection, or nothing to say on it.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The system says why.
    #[error(transparent)]
    Open(#[from] io::Error),
    /// Nobody says anything.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// Who answers is not believed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It takes the connection and no stream.
    #[error("{}", super::causes(.0))]
    Transport(#[from] tonic::transport::Error),
    /// There is no token to show.
    #[error(
        "--token-file {}: {reason}; is the projected token of the service account mounted there?", path.display()
    )]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong, without a word of its content.
        reason: String,
    },
}

/// Both ways on one connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Access {
    /// A controller that is believed whoever it is.
    #[must_use]
    pub fn insecure(address: Address) -> Self {
        let trust = Trust::Insecure;
        Self { address, trust }
    }

    /// Connects.
    ///
    /// # Errors
    /// [`AccessError`] says who is not believed and what to check.
    pub async fn connect(&self) -> Result<Channel, AccessError> {
        self.connect_as(|endpoint| endpoint).await
    }

    /// The same with other settings of HTTP/2.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as(
        &self,
        tune: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Channel, AccessError> {
        let silent = |_| AccessError::Silent(OPENING);
        let stream = timeout(OPENING, self.open()).await.map_err(silent)??;
        let mut stream = Some(TokioIo::new(stream));
        // The library would connect again by itself; a stream that ends is followed by a new channel.
        let connector = service_fn(move |_: Uri| {
            let once = stream.take();
            std::future::ready(once.ok_or(io::ErrorKind::NotConnected))
        });
        // It wants a host to talk of, too.
        let endpoint = Endpoint::from_static("http://controller")
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        let connector = tower::ServiceExt::map_err(connector, io::Error::from);
        Ok(tune(endpoint).connect_with_connector(connector).await?)
    }

    /// Opens a connection and sees who answers; nothing else is said.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn see(&self) -> Result<(), AccessError> {
        self.open().await.map(drop)
    }

    async fn open(&self) -> Result<Box<dyn Io>, AccessError> {
        let stream: Box<dyn Io> = match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        };
        match &self.trust {
            Trust::Insecure => Ok(stream),
            Trust::Tls(tls) => Ok(tls::begin(stream, tls).await?),
        }
    }

    /// A request with the token that is in the file now.
    ///
    /// # Errors
    /// [`AccessError::Token`] when there is none.
    pub fn request<T>(&self, message: T) -> Result<tonic::Request<T>, AccessError> {
        let mut request = tonic::Request::new(message);
        if let Trust::Tls(Tls {
            token: Some(path), ..
        }) = &self.trust
        {
            let wrong = |reason: String| AccessError::Token {
                path: path.clone(),
                reason,
            };
            let token = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            let token = token.trim();
            if token.is_empty() {
                return Err(wrong("it is empty".into()));
            }
            let value = MetadataValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| wrong("it holds no token".into()))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}
