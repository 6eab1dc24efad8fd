//! Errors of the socket. Each names the request and the next thing to check.

use crate::attribute::EncodeError;
use crate::errno::Errno;
use crate::query::Query;
use crate::refused::Refused;

/// Why something failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no nf_tables.
    #[error(
        "this kernel has no nf_tables: load the module nf_tables (modprobe nf_tables), or build the kernel with \
         CONFIG_NF_TABLES"
    )]
    NoNftables,
    /// The kernel refused a transaction. Nothing of it was executed.
    #[error("nf_tables: {0}")]
    Refused(Refused),
    /// The kernel refused parts of a transaction again and again.
    #[error(
        "nf_tables: after {attempts} attempts, the kernel still refuses parts of the transaction, last: {last}: check \
         which other program changes the same table"
    )]
    StillRefused {
        /// The number of attempts.
        attempts: u32,
        /// The answer to the last attempt.
        last: Refused,
    },
    /// The kernel refused to read.
    #[error("nf_tables: {query}: {errno}")]
    Query {
        /// What was to be read.
        query: Box<Query>,
        /// Why it was refused.
        errno: Errno,
    },
    /// A request could not be encoded as netlink.
    #[error("nf_tables: {query}: {source}")]
    Encode {
        /// The request.
        query: Box<Query>,
        /// The value that is too long.
        source: EncodeError,
    },
    /// A transaction is longer than the send buffer of the socket.
    #[error(
        "nf_tables: the transaction has {bytes} bytes, more than the socket can send at once: divide it, or run with \
         CAP_NET_ADMIN in the first user namespace"
    )]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// The objects changed during each of several attempts to list them.
    #[error(
        "nf_tables: {what}: the rules changed while they were read, {attempts} times in a row: check which other \
         program keeps changing them (nft monitor shows it)"
    )]
    Interrupted {
        /// What was to be read.
        what: String,
        /// The number of attempts.
        attempts: u32,
    },
    /// The socket failed. The next call opens another one.
    #[error("nf_tables socket: {0}")]
    Socket(netlink_blocking::Error),
}

impl From<netlink_blocking::Error> for Error {
    fn from(error: netlink_blocking::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<netlink_packet_core::DecodeError> for Error {
    fn from(error: netlink_packet_core::DecodeError) -> Self {
        Self::Socket(error.into())
    }
}

impl Error {
    /// Whether the socket failed or its answers are unreliable. A transaction may or may not have been executed.
    #[must_use]
    pub fn is_of_socket(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// The error number of the first refusal, or of a system call that failed.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(refused) | Self::StillRefused { last: refused, .. } => refused.errno(),
            Self::Query { errno, .. } => Some(*errno),
            Self::Socket(error) => error.errno().map(Errno),
            _ => None,
        }
    }

    /// Whether the caller lacks the capability, or is not the owner of the table.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        !self.is_of_socket() && self.errno() == Some(Errno::NOT_PERMITTED)
    }

    /// Whether the kernel has no nf_tables, or does not have an expression or a flag.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoNftables) || self.errno() == Some(Errno::UNSUPPORTED)
    }
}
