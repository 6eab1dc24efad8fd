//! What goes over a socket: counted, and shown to whoever wants to see it.

use netlink_blocking::{Counters, Outgoing};

use crate::socket::Socket;

impl Socket {
    /// What went over this socket since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.channel.counters()
    }

    /// Shows `tap` everything before it is sent, from now on: to count, to print, or to keep and
    /// replay. Without a tap this costs a comparison a send.
    pub fn tap(&mut self, tap: impl FnMut(&Outgoing<'_>) + Send + 'static) {
        self.channel.set_tap(tap);
    }
}
