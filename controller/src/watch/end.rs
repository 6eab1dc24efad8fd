//! How a watch ends.

use super::problem::Problem;

/// How a watch ended.
pub(super) enum End {
    /// The server ended it, as it ends every watch after a while; the next one resumes from this version.
    Resume(String),
    /// It failed; the next one begins with a list.
    Relist(Problem),
    /// [`super::Relist`] requested a list.
    Asked,
    /// The server does not stream existing objects; they have to be listed in pages.
    NoStreams,
    /// The server does not serve this optional kind.
    Unknown,
    /// The receiver was dropped.
    Closed,
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Relist(problem)
    }
}

impl End {
    /// An error event within a watch, most often because the version is too old. A new list recovers from any of them.
    pub(super) fn of_error(status: Box<kube::core::Status>) -> Self {
        Self::Relist(Problem::Api(kube::Error::Api(status)))
    }
}
