//! Why a client is refused: a label for metrics, a status for the agent, a message for both logs.

use prometheus_client::encoding::EncodeLabelValue;
use tonic::{Code, Status};

/// The cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelValue)]
#[allow(
    non_camel_case_types,
    reason = "the spelling is that of the metric's label"
)]
pub enum Reason {
    /// The request has no token.
    no_token,
    /// It is not a service account token.
    malformed,
    /// It has another audience.
    audience,
    /// It has expired.
    expired,
    /// Its signature is wrong.
    forged,
    /// The API server rejects it.
    not_accepted,
    /// It belongs to another service account.
    service_account,
    /// It is not bound to a node.
    no_node,
    /// It belongs to an agent on another node.
    other_node,
    /// Too many tokens wait for a review, or too many connections for a stream.
    busy,
    /// One client makes too many connections, requests or streams.
    too_many,
    /// A newer stream of the same node was opened.
    replaced,
    /// The API server is unavailable.
    api_server,
    /// The client uses no TLS on a port that requires it.
    plain_text,
    /// The client uses TLS on a port without it.
    no_tls_here,
    /// The TLS handshake failed: the client does not trust the certificate, or its version does not match.
    handshake,
    /// The client sent nothing, or did not complete its request in time.
    silent,
    /// As many clients are connected as the limit of open files allows.
    full,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::no_token,
        Self::malformed,
        Self::audience,
        Self::expired,
        Self::forged,
        Self::not_accepted,
        Self::service_account,
        Self::no_node,
        Self::other_node,
        Self::busy,
        Self::too_many,
        Self::replaced,
        Self::api_server,
        Self::plain_text,
        Self::no_tls_here,
        Self::handshake,
        Self::silent,
        Self::full,
    ];

    /// Whether the refusal does not depend on the client: a retry may help.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::busy | Self::api_server | Self::full)
    }

    fn code(self) -> Code {
        match self {
            Self::no_token
            | Self::malformed
            | Self::audience
            | Self::expired
            | Self::forged
            | Self::not_accepted => Code::Unauthenticated,
            Self::service_account | Self::no_node | Self::other_node => Code::PermissionDenied,
            Self::busy | Self::api_server | Self::full => Code::Unavailable,
            Self::too_many => Code::ResourceExhausted,
            Self::replaced => Code::Aborted,
            Self::plain_text | Self::no_tls_here | Self::handshake | Self::silent => {
                Code::FailedPrecondition
            }
        }
    }
}

/// A refused client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The cause.
    pub reason: Reason,
    /// The cause in words, and what to check. Never contains any part of a token.
    pub message: String,
}

impl Refusal {
    /// A refusal with this message.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.reason.code(), refusal.message)
    }
}
