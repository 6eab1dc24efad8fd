//! Subscribes to kernel events: changes of links, addresses, routes and policy rules of both families, of nf_tables
//! rules, including those that iptables-nft writes, and of the agent's own tables.
//!
//! The content of an event is ignored: the subscriber reads the whole network again. So lost events do no harm, and
//! many events in a short time cause one notification.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tracing::warn;

use super::tables::TableChanges;
use crate::kernel::KernelError;

/// The kind of events.
#[derive(Debug, Clone)]
enum Subject {
    /// Links, addresses, routes and policy rules, except changes by the socket with this port (the agent's own).
    Network(u32),
    /// nf_tables rules. The agent's own changes cannot be recognised, because tools make them.
    Rules,
    /// The tables of the nftables dataplane, except changes by the agent.
    Tables(TableChanges),
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Self::Network(_) => "links, addresses, routes and policy rules",
            Self::Rules => "nf_tables rules",
            Self::Tables(_) => "the tables of Portolan",
        }
    }

    fn protocol(&self) -> isize {
        match self {
            Self::Network(_) => NETLINK_ROUTE,
            Self::Rules | Self::Tables(_) => NETLINK_NETFILTER,
        }
    }

    /// Multicast groups. For rtnetlink: links, IPv4 and IPv6 addresses, routes and policy rules. For netfilter:
    /// `NFNLGRP_NFTABLES`.
    fn groups(&self) -> &'static [u32] {
        match self {
            Self::Network(_) => &[1, 5, 9, 7, 11, 8, 19],
            Self::Rules | Self::Tables(_) => &[7],
        }
    }

    /// The number of bytes of a datagram that matter: where only the sender does, the header of the first message.
    fn buffer_length(&self) -> usize {
        match self {
            Self::Network(_) | Self::Rules => 16,
            Self::Tables(_) => 64 * 1024,
        }
    }

    /// Whether another program caused an event.
    fn is_foreign(&self, datagram: &[u8]) -> bool {
        match self {
            Self::Network(own_port) => sender(datagram) != Some(*own_port),
            Self::Rules => true,
            Self::Tables(changes) => changes.is_foreign(datagram),
        }
    }

    /// Records events of other programs, or the loss of events.
    fn note(&self) {
        if let Self::Tables(changes) = self {
            changes.note();
        }
    }
}

/// Time from the first event to the notification: one change is usually followed by more.
const DEBOUNCE_TIME: Duration = Duration::from_millis(50);
/// Minimum time between two notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Initial delay before a failed socket is opened again. It doubles up to [`MAX_BACKOFF`], and is reset after a
/// socket has worked for that long.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A subscription with a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Events {
    // Dropping this end wakes the thread, which then ends.
    life: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Calls `notify` after changes of the network in the network namespace of the calling thread, except changes by
    /// the socket with this port (the agent's own).
    ///
    /// # Errors
    /// If the socket or the thread cannot be created.
    pub fn of_network(
        own_port: u32,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        Self::listen(Subject::Network(own_port), "network events", notify)
    }

    /// Calls `notify` after changes of nf_tables rules in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the socket or the thread cannot be created.
    pub fn of_rules(notify: impl Fn() + Send + 'static) -> Result<Self, KernelError> {
        Self::listen(Subject::Rules, "rule events", notify)
    }

    /// Calls `notify` after changes of these tables by other programs, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the socket or the thread cannot be created.
    pub fn of_tables(
        changes: TableChanges,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        Self::listen(Subject::Tables(changes), "table events", notify)
    }

    fn listen(
        subject: Subject,
        thread: &str,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        let action = format!("subscribe to changes of {}", subject.name());
        let failed = |error: &dyn std::error::Error| KernelError::new(&action, &error.to_string());
        let socket = open(&subject).map_err(|error| failed(&error))?;
        let (life, end) = UnixStream::pair().map_err(|error| failed(&error))?;
        let listener = Listener {
            subject,
            end,
            notify: Box::new(notify),
        };
        let thread = std::thread::Builder::new()
            .name(thread.into())
            .spawn(move || listener.run(socket))
            .map_err(|error| failed(&error))?;
        Ok(Self {
            life: Some(life),
            thread: Some(thread),
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        drop(self.life.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            warn!("a thread for kernel events has panicked; please report the panic message above");
        }
    }
}

fn open(subject: &Subject) -> io::Result<Socket> {
    let mut socket = Socket::new(subject.protocol())?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    for group in subject.groups() {
        socket.add_membership(*group)?;
    }
    Ok(socket)
}

struct Listener {
    subject: Subject,
    end: UnixStream,
    notify: Box<dyn Fn() + Send>,
}

/// Why reading from a socket ended.
enum FollowEnd {
    /// The subscription was dropped.
    Ended,
    /// The socket failed.
    Broken(io::Error),
}

impl Listener {
    fn run(&self, socket: Socket) {
        let (mut opened, mut debounce) = (Ok(socket), Debounce::default());
        let mut wait = INITIAL_BACKOFF;
        loop {
            let began = Instant::now();
            let left = match opened {
                Ok(socket) => self.follow(&socket, debounce),
                Err(error) => FollowEnd::Broken(error),
            };
            let FollowEnd::Broken(error) = left else {
                return;
            };
            if began.elapsed() > MAX_BACKOFF {
                wait = INITIAL_BACKOFF;
            }
            let subject = self.subject.name();
            warn!(
                %error,
                again_in = ?wait,
                "cannot receive changes of {subject}; meanwhile they are found in each sync period"
            );
            if self.ends_within(wait) {
                return;
            }
            wait = (wait * 2).min(MAX_BACKOFF);
            opened = open(&self.subject);
            // Events in between were lost.
            self.subject.note();
            debounce = Debounce::default();
            debounce.note(Instant::now());
        }
    }

    /// Calls `notify` for the events of a socket until it fails.
    fn follow(&self, socket: &Socket, mut debounce: Debounce) -> FollowEnd {
        loop {
            match self.wait(socket, debounce.due()) {
                Ok(Ready { ended: true, .. }) => return FollowEnd::Ended,
                Ok(Ready { events: true, .. }) => match self.drain(socket) {
                    Ok(true) => debounce.note(Instant::now()),
                    Ok(false) => {}
                    Err(error) => return FollowEnd::Broken(error),
                },
                Ok(_) => {}
                Err(error) => return FollowEnd::Broken(error),
            }
            if debounce.take(Instant::now()) {
                (self.notify)();
            }
        }
    }

    /// Waits for events, the end of the subscription, or this time.
    fn wait(&self, socket: &Socket, until: Option<Instant>) -> io::Result<Ready> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(Timespec::try_from).transpose();
        let timeout = timeout.map_err(io::Error::other)?;
        let mut fds = [
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [events, ended] = fds.map(|fd| !fd.revents().is_empty());
        Ok(Ready { events, ended })
    }

    fn ends_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else {
                return true;
            };
            let mut end = [PollFd::new(&self.end, PollFlags::IN)];
            match poll(&mut end, Some(&timeout)) {
                Ok(0) => return false,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// Reads all pending events. Returns whether another program caused some of them.
    fn drain(&self, socket: &Socket) -> io::Result<bool> {
        let mut foreign = false;
        let mut buffer = vec![0; self.subject.buffer_length()];
        loop {
            match recv(socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => foreign |= self.subject.is_foreign(&buffer[..length]),
                // The receive buffer overflowed, and the kernel dropped events.
                Err(Errno::NOBUFS) => foreign = true,
                Err(Errno::AGAIN) => {
                    if foreign {
                        self.subject.note();
                    }
                    return Ok(foreign);
                }
                Err(Errno::INTR) => {}
                // The socket is opened again, and then a change is noted.
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The result of a wait.
struct Ready {
    events: bool,
    ended: bool,
}

/// The port of the socket whose request caused an event: the last field of its header.
fn sender(message: &[u8]) -> Option<u32> {
    let port = message.get(12..16)?.first_chunk()?;
    Some(u32::from_ne_bytes(*port))
}

/// Notifies [`DEBOUNCE_TIME`] after the first event, but not before [`MIN_INTERVAL`] after the previous notification.
#[derive(Debug, Default)]
struct Debounce {
    first: Option<Instant>,
    notified: Option<Instant>,
}

impl Debounce {
    fn note(&mut self, now: Instant) {
        self.first.get_or_insert(now);
    }

    fn due(&self) -> Option<Instant> {
        let gathered = self.first? + DEBOUNCE_TIME;
        let rested = self.notified.map(|notified| notified + MIN_INTERVAL);
        Some(rested.map_or(gathered, |rested| rested.max(gathered)))
    }

    /// Whether to notify now, which resets it.
    fn take(&mut self, now: Instant) -> bool {
        let due = self.due().is_some_and(|due| due <= now);
        if due {
            self.first = None;
            self.notified = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn events_in_a_short_time_cause_one_notification() {
        let start = Instant::now();
        let mut debounce = Debounce::default();
        assert_eq!(debounce.due(), None);
        for time in [0, 10, 20, 49] {
            debounce.note(after(start, time));
            assert!(!debounce.take(after(start, time)));
        }
        assert!(debounce.take(after(start, 50)), "S-37: no later than this");
        assert!(!debounce.take(after(start, 10_000)));
        assert_eq!(debounce.due(), None, "no further notification");
    }

    #[test]
    fn a_flood_neither_postpones_the_notification_nor_causes_one_per_event() {
        let start = Instant::now();
        let mut debounce = Debounce::default();
        let notifications = (0..10_000)
            .map(|time| after(start, time))
            .filter(|now| {
                debounce.note(*now);
                debounce.take(*now)
            })
            .count();
        assert_eq!(notifications, 40, "four a second");
    }

    #[test]
    fn an_event_after_a_quiet_time_does_not_wait_for_the_rest() {
        let start = Instant::now();
        let mut debounce = Debounce::default();
        debounce.note(start);
        assert!(debounce.take(after(start, 50)));
        debounce.note(after(start, 60));
        assert_eq!(debounce.due(), Some(after(start, 300)));
        assert!(debounce.take(after(start, 300)));
        debounce.note(after(start, 5_000));
        assert_eq!(debounce.due(), Some(after(start, 5_050)));
    }

    #[test]
    fn a_short_message_has_no_sender_and_counts_as_foreign() {
        assert_eq!(sender(&[0; 12]), None);
        let mut message = [0; 16];
        message[12..].copy_from_slice(&77_u32.to_ne_bytes());
        assert_eq!(sender(&message), Some(77));
    }
}
