//! State of the connection to the controller.

use std::sync::Arc;

use tokio::sync::watch;

/// The state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Streams that were opened since the start.
    pub streams: u64,
    /// Why there is no stream; `None` while there is one, and before the first attempt.
    pub trouble: Option<Arc<str>>,
}

impl Link {
    /// Whether a controller is connected.
    pub fn is_up(&self) -> bool {
        self.streams > 0 && self.trouble.is_none()
    }
}

/// Publishes the state.
pub type LinkSender = watch::Sender<Link>;

pub(super) fn up(link: &LinkSender) {
    link.send_modify(|link| {
        link.streams += 1;
        link.trouble = None;
    });
}

pub(super) fn down(link: &LinkSender, why: &str) {
    link.send_modify(|link| link.trouble = Some(why.into()));
}
