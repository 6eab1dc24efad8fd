//! Observes the traffic of a socket: counters, and a tap for every send.

use netlink_blocking::{Counters, Outgoing};

use crate::socket::Socket;

impl Socket {
    /// The traffic of this socket since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.channel.counters()
    }

    /// Passes every send to `tap` from now on, before it is sent: to count, to print, or to record and replay.
    /// Without a tap, the cost is one comparison per send.
    pub fn tap(&mut self, tap: impl FnMut(&Outgoing<'_>) + Send + 'static) {
        self.channel.set_tap(tap);
    }
}
