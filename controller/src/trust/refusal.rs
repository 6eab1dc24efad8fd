//! Why somebody is refused, as a value: a label for metrics, a status for the agent, words for both logs.

use prometheus_client::encoding::EncodeLabelValue;
use tonic::{Code, Status};

/// What was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelValue)]
#[allow(
    non_camel_case_types,
    reason = "the spelling is that of the metric's label"
)]
pub enum Reason {
    /// No token came.
    no_token,
    /// It is no token of a service account.
    malformed,
    /// It is meant for somebody else.
    audience,
    /// Its time is over.
    expired,
    /// The API server does not accept it.
    not_accepted,
    /// It is of another service account.
    service_account,
    /// It is bound to no node.
    no_node,
    /// It is of an agent on another node.
    other_node,
    /// Too many tokens wait to be reviewed.
    busy,
    /// The API server cannot be asked.
    api_server,
    /// No TLS came where it is spoken.
    plain_text,
    /// TLS came where it is not spoken.
    no_tls_here,
    /// TLS failed: the client does not believe us, or speaks another kind of it.
    handshake,
    /// Nothing came, or it did not end.
    silent,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::no_token,
        Self::malformed,
        Self::audience,
        Self::expired,
        Self::not_accepted,
        Self::service_account,
        Self::no_node,
        Self::other_node,
        Self::busy,
        Self::api_server,
        Self::plain_text,
        Self::no_tls_here,
        Self::handshake,
        Self::silent,
    ];

    /// Whether it says nothing about who asks: asking again may help.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::busy | Self::api_server)
    }

    fn code(self) -> Code {
        match self {
            Self::no_token
            | Self::malformed
            | Self::audience
            | Self::expired
            | Self::not_accepted => Code::Unauthenticated,
            Self::service_account | Self::no_node | Self::other_node => Code::PermissionDenied,
            Self::busy | Self::api_server => Code::Unavailable,
            Self::plain_text | Self::no_tls_here | Self::handshake | Self::silent => {
                Code::FailedPrecondition
            }
        }
    }
}

/// Somebody is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was wrong.
    pub reason: Reason,
    /// The same in words, and what to check. Never a word of a token.
    pub message: String,
}

impl Refusal {
    /// With these words.
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
