//! TLS to a controller, with messages for the reasons of a failed authentication.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;

use super::access::{Io, Tls};

/// The ALPN protocol of both sides.
const HTTP_2: &[u8] = b"h2";

/// Why a controller could not be authenticated.
#[derive(Debug, Error)]
pub enum TlsError {
    /// There is no usable CA certificate.
    #[error("--controller-ca {}: {reason}; it has to contain the controller's CA as PEM", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The peer does not use TLS.
    #[error(
        "the peer does not use TLS: does the controller run with --insecure, or another program use its port?"
    )]
    NoTls,
    /// The peer closed the connection.
    #[error(
        "the peer closed the connection before the TLS handshake: is it a controller, and what is in its log?"
    )]
    Closed,
    /// Its certificate is not accepted.
    #[error("the controller's certificate {0}")]
    Certificate(String),
    /// TLS failed for another reason.
    #[error("TLS with the controller: {0}")]
    Other(String),
}

/// Starts TLS on an open connection.
pub(super) async fn begin(stream: Box<dyn Io>, tls: &Tls) -> Result<Box<dyn Io>, TlsError> {
    let config = config(tls)?;
    let connector = TlsConnector::from(Arc::new(config));
    let begun = connector.connect(tls.name.clone(), stream).await;
    Ok(Box::new(begun.map_err(|error| words(&error, tls))?))
}

/// The configuration for one connection: the file may have been replaced since the last one. Session resumption is
/// disabled, so that the certificate of every connection is verified.
fn config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let wrong = |reason: String| TlsError::Authorities {
        path: tls.ca.clone(),
        reason,
    };
    let pem = std::fs::read(&tls.ca).map_err(|error| wrong(error.to_string()))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        let added = authorities.add(certificate);
        added.map_err(|error| wrong(error.to_string()))?;
    }
    if authorities.is_empty() {
        return Err(wrong("it contains no certificate".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let other = |error: rustls::Error| TlsError::Other(error.to_string());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(authorities.into(), provider.clone());
    let verifier = verifier.build().map_err(|error| wrong(error.to_string()))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(other)?
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn words(error: &io::Error, tls: &Tls) -> TlsError {
    let inner = error.get_ref();
    match inner.and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(error)) => {
            TlsError::Certificate(certificate(error, tls))
        }
        Some(rustls::Error::InvalidMessage(_)) => TlsError::NoTls,
        Some(error) => TlsError::Other(error.to_string()),
        None if error.kind() == io::ErrorKind::UnexpectedEof => TlsError::Closed,
        None => TlsError::Other(error.to_string()),
    }
}

/// The problem with a certificate, and what to check.
fn certificate(error: &CertificateError, tls: &Tls) -> String {
    let clock = |time: Option<UnixTime>| {
        let time = time.map(|time| format!(", {}", at(time)));
        format!(
            "by this node's clock{}: is the clock correct?",
            time.unwrap_or_default()
        )
    };
    match error {
        CertificateError::Expired => format!("has expired {} If so, renew it", clock(None)),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "expired at {} {} If so, renew it",
            at(*not_after),
            clock(Some(*time))
        ),
        CertificateError::NotValidYet => format!("is not valid yet {}", clock(None)),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "is not valid before {} {}",
            at(*not_before),
            clock(Some(*time))
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "is not signed by a CA in --controller-ca {}: does the file belong to this cluster, and is it \
             the current one?",
            tls.ca.display()
        ),
        CertificateError::NotValidForName => format!("is not for {:?}", name(tls)),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "is for {}, not for {:?}: see --controller-name",
            presented.join(", "),
            name(tls)
        ),
        other => format!("cannot be used: {other}"),
    }
}

fn name(tls: &Tls) -> String {
    tls.name.to_str().into_owned()
}

fn at(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown time".into(), |at| at.to_string())
}
