//! The token of the agent, and newer ones for an open stream: the kubelet replaces the file of a projected token
//! after four fifths of its lifetime.
//!
//! Touches: that file, for reading.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_proto::MAX_TOKEN_BYTES;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tonic::metadata::{Ascii, MetadataValue};
use tracing::debug;

/// Interval at which the file is read for a newer token. At least two minutes remain of the one before: the shortest
/// lifetime is ten minutes.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// A token, never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    text: String,
    header: MetadataValue<Ascii>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a file.
    ///
    /// # Errors
    /// The problem, without any part of the content.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty".into());
        }
        if text.len() > MAX_TOKEN_BYTES {
            let (length, most) = (text.len(), MAX_TOKEN_BYTES);
            return Err(format!(
                "it has {length} bytes, but a token has at most {most}"
            ));
        }
        let header = MetadataValue::try_from(format!("Bearer {text}"));
        let mut header = header.map_err(|_| "its content is not a token".to_owned())?;
        header.set_sensitive(true);
        Ok(Self {
            text: text.to_owned(),
            header,
        })
    }

    /// The token itself, to send it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// A request with a token.
pub(super) fn with_token<T>(message: T, token: Option<&Token>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Some(token) = token {
        let header = token.header.clone();
        request.metadata_mut().insert("authorization", header);
    }
    request
}

/// Finds newer tokens for an open stream.
#[derive(Debug)]
pub(super) struct Renewals {
    /// The file; `None` without authentication.
    file: Option<PathBuf>,
    /// The token that the controller has.
    shown: Option<Token>,
    due: Interval,
}

impl Renewals {
    /// For a stream that was opened with the token `shown`.
    pub(super) fn new(file: Option<PathBuf>, shown: Option<Token>) -> Self {
        let mut due = interval_at(Instant::now() + READ_INTERVAL, READ_INTERVAL);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { file, shown, due }
    }

    /// Waits for a token that the controller does not have. It counts as shown once it is returned; cancelling the wait
    /// loses nothing.
    pub(super) async fn newer(&mut self) -> Token {
        let Some(file) = &self.file else {
            return std::future::pending().await;
        };
        loop {
            self.due.tick().await;
            // A file that cannot be read is reported when a stream is opened with it.
            let Ok(token) = Token::read(file) else {
                continue;
            };
            if self.shown.as_ref() != Some(&token) {
                debug!("the token was replaced; sending it to the controller");
                self.shown = Some(token.clone());
                return token;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// As the kubelet replaces a projected file.
    fn replace(path: &Path, text: &str) {
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(&draft, path).unwrap();
    }

    fn opened(path: &Path) -> Renewals {
        let shown = Token::read(path).unwrap();
        Renewals::new(Some(path.to_owned()), Some(shown))
    }

    /// The next newer token, if one is found within three intervals.
    async fn found(renewals: &mut Renewals) -> Option<String> {
        let newer = timeout(3 * READ_INTERVAL, renewals.newer()).await;
        newer.ok().map(|token| token.text().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_token_is_found_once_and_an_unreadable_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        replace(&path, "a.b.c\n");
        let mut renewals = opened(&path);
        assert_eq!(found(&mut renewals).await, None);
        replace(&path, "d.e.f\n");
        assert_eq!(found(&mut renewals).await.as_deref(), Some("d.e.f"));
        assert_eq!(found(&mut renewals).await, None);
        for wrong in ["", "\n", &"x".repeat(MAX_TOKEN_BYTES + 1), "two\nlines"] {
            replace(&path, wrong);
            assert_eq!(found(&mut renewals).await, None, "{wrong:.10}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found(&mut renewals).await, None);
        replace(&path, "g.h.i\n");
        assert_eq!(found(&mut renewals).await.as_deref(), Some("g.h.i"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cancelled_loses_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        replace(&path, "a.b.c");
        let mut renewals = opened(&path);
        replace(&path, "d.e.f");
        for _ in 0..5 {
            let early = timeout(READ_INTERVAL / 10, renewals.newer()).await;
            assert!(early.is_err());
        }
        assert_eq!(found(&mut renewals).await.as_deref(), Some("d.e.f"));
        let mut none = Renewals::new(None, None);
        assert_eq!(found(&mut none).await, None);
    }

    #[test]
    fn a_token_is_printed_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        replace(&path, "abc.def.ghi");
        let token = Token::read(&path).unwrap();
        let request = with_token((), Some(&token));
        let header = request.metadata().get("authorization").unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer abc.def.ghi");
        let printed = format!("{token:?} {request:?}");
        assert!(!printed.contains("abc"), "{printed}");
    }
}
