//! Failures of the socket itself. An error number of the kernel is left to the caller.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::DecodeError;

/// The socket failed, or what it delivered is not to be relied on: what was asked may have been done or not.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. The next send opens another socket.
    #[error("cannot {action}: {source}")]
    Io {
        /// Which step failed.
        action: &'static str,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The kernel did not answer in time. The next send opens another socket.
    #[error("no answer from the kernel within {0:?}")]
    Silent(Duration),
    /// Answers were lost because the receive buffer was full.
    #[error(
        "the kernel's answer was lost (receive buffer full), so whether it was done is not known until it is read \
         again"
    )]
    AnswerLost,
    /// The kernel sent something that cannot be read.
    #[error("cannot read the kernel's answer: {0}")]
    Decode(Arc<DecodeError>),
}

impl Error {
    /// The error number of the system call that failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Silent(_) | Self::AnswerLost | Self::Decode(_) => None,
        }
    }

    pub(crate) fn io(action: &'static str, error: io::Error) -> Self {
        Self::Io {
            action,
            source: Arc::new(error),
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(Arc::new(error))
    }
}
