//! Connections to a controller: without TLS, or with TLS and a token for authentication.
//!
//! Touches: the network, and files with certificates and the token, for reading. They are read at each connection.
//! Replaced certificates take effect with the next one; `token` sends a replaced token on the open stream.

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
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::tls::{self, TlsError};
use super::token::{Token, with_token};
use super::{Address, KEEP_ALIVE_INTERVAL};

/// Timeout for opening a connection, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// A controller's address, with the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Its address.
    pub address: Address,
    /// How the two sides authenticate each other.
    pub trust: Trust,
}

/// Authentication of the controller and of this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// No authentication of either side.
    Insecure,
    /// TLS, and a token of this agent.
    Tls(Tls),
}

/// The files for TLS and the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// CA certificates for the controller's certificate, as PEM.
    pub ca: PathBuf,
    /// The DNS name in its certificate.
    pub name: ServerName<'static>,
    /// The token of the agent's service account.
    pub token: Option<PathBuf>,
}

/// The connection or the request failed.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The connection could not be opened.
    #[error(transparent)]
    Open(#[from] io::Error),
    /// The controller did not answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The controller could not be authenticated.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection was accepted, but HTTP/2 failed.
    #[error("{}", super::causes(.0))]
    Transport(#[from] tonic::transport::Error),
    /// There is no usable token.
    #[error(
        "--token-file {}: {reason}; is the projected token of the service account mounted there?", path.display()
    )]
    Token {
        /// The file.
        path: PathBuf,
        /// The problem, without any part of the content.
        reason: String,
    },
}

/// A bidirectional byte stream.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Access {
    /// Access to a controller without authentication.
    #[must_use]
    pub fn insecure(address: Address) -> Self {
        let trust = Trust::Insecure;
        Self { address, trust }
    }

    /// Connects.
    ///
    /// # Errors
    /// [`AccessError`], with the next thing to check.
    pub async fn connect(&self) -> Result<Channel, AccessError> {
        self.connect_as(|endpoint| endpoint).await
    }

    /// As [`Self::connect`], with other settings of HTTP/2.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as(
        &self,
        tune: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Channel, AccessError> {
        let silent = |_| AccessError::Silent(CONNECT_TIMEOUT);
        let stream = timeout(CONNECT_TIMEOUT, self.open())
            .await
            .map_err(silent)??;
        let mut stream = Some(TokioIo::new(stream));
        // Prevents the library from reconnecting by itself: each stream uses a new channel.
        let connector = service_fn(move |_: Uri| {
            let once = stream.take();
            std::future::ready(once.ok_or(io::ErrorKind::NotConnected))
        });
        // The URI is required, but only its host appears in requests.
        let endpoint = Endpoint::from_static("http://controller")
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_while_idle(true);
        let connector = tower::ServiceExt::map_err(connector, io::Error::from);
        Ok(tune(endpoint).connect_with_connector(connector).await?)
    }

    /// Opens a connection and authenticates the controller, without sending a request.
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

    /// A request with the current token in the file.
    ///
    /// # Errors
    /// [`AccessError::Token`] if there is none.
    pub fn request<T>(&self, message: T) -> Result<tonic::Request<T>, AccessError> {
        Ok(with_token(message, self.token()?.as_ref()))
    }

    /// The file with the token; `None` without authentication.
    pub(super) fn token_file(&self) -> Option<&PathBuf> {
        match &self.trust {
            Trust::Tls(tls) => tls.token.as_ref(),
            Trust::Insecure => None,
        }
    }

    /// The current token in the file; `None` without authentication.
    ///
    /// # Errors
    /// [`AccessError::Token`] if the file has none.
    pub(super) fn token(&self) -> Result<Option<Token>, AccessError> {
        let Some(path) = self.token_file() else {
            return Ok(None);
        };
        let wrong = |reason| AccessError::Token {
            path: path.clone(),
            reason,
        };
        Token::read(path).map(Some).map_err(wrong)
    }
}
