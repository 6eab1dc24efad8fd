//! Failures of the socket itself. Error numbers in the kernel's answers are left to the caller.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::DecodeError;

/// The socket failed, or its answers are unreliable: the request may or may not have been executed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. The next send opens another socket.
    #[error("cannot {action}: {source}")]
    Io {
        /// The step that failed.
        action: &'static str,
        /// The error of the system call.
        source: Arc<io::Error>,
    },
    /// The kernel did not answer in time. The next send opens another socket.
    #[error("no answer from the kernel within {0:?}")]
    Silent(Duration),
    /// Answers were lost because the receive buffer was full.
    #[error(
        "the kernel's answer was lost (receive buffer full); whether the change was made is unknown until the state \
         is read again"
    )]
    AnswerLost,
    /// The kernel's answer cannot be decoded.
    #[error("cannot decode the kernel's answer: {0}")]
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

    /// A system call failed.
    #[must_use]
    pub fn io(action: &'static str, error: io::Error) -> Self {
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
