//! The server certificate for agents: its source, and its replacement without interrupting streams.
//!
//! A [`Presented`] holds the current certificate, which each new connection uses. `files` reloads two files; `secret`
//! manages a CA of the controllers in a Secret.

mod authority;
mod clock;
mod files;
mod keyring;
mod pair;
mod presented;
mod secret;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

pub use files::{Files, FilesError};
pub use keyring::settle_stored;
pub use pair::{Pair, PairError};
pub use presented::Presented;
pub use secret::{Keeper, Kept};

/// The protocol over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/2, for agents.
    Streams,
    /// HTTP/1.1, for clients of the admin pages.
    Pages,
}

impl Spoken {
    /// The ALPN protocol name.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Streams => b"h2",
            Self::Pages => b"http/1.1",
        }
    }
}

/// The TLS 1.3 server configuration.
///
/// # Errors
/// If the built-in cryptography lacks an algorithm.
pub fn server_config(
    presented: Arc<Presented>,
    spoken: Spoken,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(presented);
    config.alpn_protocols = vec![spoken.name().to_vec()];
    // No session resumption: each connection verifies the current certificate, and 5,000 sessions take no memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
