//! TLS to a controller, and in words why it is not believed.

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

/// What both sides speak over TLS.
const HTTP_2: &[u8] = b"h2";

/// Why a controller is not believed.
#[derive(Debug, Error)]
pub enum TlsError {
    /// There is nobody whose word counts.
    #[error("--controller-ca {}: {reason}; it has to hold the PEM certificates of who signs the controller's", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Something else answers than TLS.
    #[error(
        "what answers there speaks no TLS: is the controller started with --insecure, or another program on its port?"
    )]
    NoTls,
    /// It hung up.
    #[error(
        "it closed the connection before TLS was spoken: is it a controller, and what does its log say?"
    )]
    Closed,
    /// Its certificate does not do.
    #[error("the controller's certificate {0}")]
    Certificate(String),
    /// TLS failed otherwise.
    #[error("TLS with the controller: {0}")]
    Other(String),
}

/// Speaks TLS on an open connection.
pub(super) async fn begin(stream: Box<dyn Io>, tls: &Tls) -> Result<Box<dyn Io>, TlsError> {
    let config = config(tls)?;
    let connector = TlsConnector::from(Arc::new(config));
    let begun = connector.connect(tls.name.clone(), stream).await;
    Ok(Box::new(begun.map_err(|error| words(&error, tls))?))
}

/// Made for each connection: the file may be another by now, and nothing is resumed, so that the
/// certificate of every connection is looked at.
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
        return Err(wrong("it holds no certificate".into()));
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

/// What is wrong with a certificate, and what to check.
fn certificate(error: &CertificateError, tls: &Tls) -> String {
    let clock = |time: Option<UnixTime>| {
        let time = time.map(|time| format!(", {}", at(time)));
        format!(
            "by this node's clock{}: is the clock right?",
            time.unwrap_or_default()
        )
    };
    match error {
        CertificateError::Expired => format!("has expired {} if so, renew it", clock(None)),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "expired at {} {} if so, renew it",
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
            "is signed by nobody in --controller-ca {}: does the file belong to this cluster, and is it \
             the present one?",
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
