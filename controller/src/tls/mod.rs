//! The certificate that agents are shown: where it comes from, and how it is replaced while streams go on.
//!
//! A [`Presented`] holds what is shown; every new connection asks it. `files` follows two files, and
//! `secret` an object in the cluster in which the controller keeps an authority of its own.

mod authority;
mod files;
mod keyring;
mod pair;
mod presented;
mod secret;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

pub use files::{Files, FilesError};
pub use pair::{Pair, PairError};
pub use presented::Presented;
pub use secret::{Keeper, Kept};

/// What is spoken over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/2, with agents.
    Streams,
    /// HTTP/1.1, with who looks at pages.
    Pages,
}

impl Spoken {
    /// Its name in the handshake.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Streams => b"h2",
            Self::Pages => b"http/1.1",
        }
    }
}

/// TLS 1.3 as this server speaks it.
///
/// # Errors
/// When the cryptography that is built in lacks something.
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
    // Agents see the certificate of the day at each connection, and 5,000 sessions take no memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
