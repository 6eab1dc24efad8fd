//! Hears of changes of the node's network: links, addresses, routes and policy rules of both families; and of rules of
//! nf_tables, among them those that iptables writes there.
//!
//! What an event says does not matter, only that there was one: whoever is told looks at the whole
//! network again. So events that are lost cost nothing, and many that come together are told once.

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

use crate::kernel::KernelError;

/// What is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Links, addresses, routes and policy rules; but for what the socket of this port (our own) causes.
    Network(u32),
    /// Rules of nf_tables. What we cause ourselves, programs do for us.
    Rules,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Network(_) => "links, addresses, routes and policy rules",
            Self::Rules => "rules of nf_tables",
        }
    }

    fn protocol(self) -> isize {
        match self {
            Self::Network(_) => NETLINK_ROUTE,
            Self::Rules => NETLINK_NETFILTER,
        }
    }

    /// Groups of rtnetlink: links, IPv4 and IPv6 addresses, routes and policy rules. Of netfilter: `NFNLGRP_NFTABLES`.
    fn groups(self) -> &'static [u32] {
        match self {
            Self::Network(_) => &[1, 5, 9, 7, 11, 8, 19],
            Self::Rules => &[7],
        }
    }

    fn is_own(self, sender: Option<u32>) -> bool {
        match self {
            Self::Network(own_port) => sender == Some(own_port),
            Self::Rules => false,
        }
    }
}

/// How long events are gathered from the first one on: who changes one thing changes more.
const GATHER: Duration = Duration::from_millis(50);
/// The time between two bells while events do not end.
const REST: Duration = Duration::from_millis(250);

/// The first wait before a socket that failed is opened again; it doubles up to [`LONGEST_WAIT`]
/// until one has worked for that long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Listens on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Events {
    // Dropping our end wakes the thread: it sees the hang-up and leaves.
    life: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Rings for everything that happens in the network namespace of the calling thread, but for
    /// what the socket of this port (our own) causes.
    ///
    /// # Errors
    /// When the socket or the thread cannot be had.
    pub fn of_network(
        own_port: u32,
        ring: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        Self::listen(Subject::Network(own_port), "network events", ring)
    }

    /// Rings for changes of any rule of nf_tables in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the socket or the thread cannot be had.
    pub fn of_rules(ring: impl Fn() + Send + 'static) -> Result<Self, KernelError> {
        Self::listen(Subject::Rules, "rule events", ring)
    }

    fn listen(
        subject: Subject,
        thread: &str,
        ring: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        let action = format!("listen to changes of {}", subject.name());
        let failed = |error: &dyn std::error::Error| KernelError::new(&action, &error.to_string());
        let socket = open(subject).map_err(|error| failed(&error))?;
        let (life, end) = UnixStream::pair().map_err(|error| failed(&error))?;
        let listener = Listener {
            subject,
            end,
            ring: Box::new(ring),
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
            warn!("a thread that listened to changes of others had panicked");
        }
    }
}

fn open(subject: Subject) -> io::Result<Socket> {
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
    ring: Box<dyn Fn() + Send>,
}

/// Why a socket is no longer listened to.
enum Left {
    /// We were told to end.
    Ended,
    /// It does not work any more.
    Broken(io::Error),
}

impl Listener {
    fn run(&self, socket: Socket) {
        let (mut opened, mut gathering) = (Ok(socket), Gathering::default());
        let mut wait = FIRST_WAIT;
        loop {
            let began = Instant::now();
            let left = match opened {
                Ok(socket) => self.follow(&socket, gathering),
                Err(error) => Left::Broken(error),
            };
            let Left::Broken(error) = left else { return };
            if began.elapsed() > LONGEST_WAIT {
                wait = FIRST_WAIT;
            }
            let subject = self.subject.name();
            warn!(%error, again_in = ?wait, "cannot listen to changes of {subject}; the sync period does it meanwhile");
            if self.ends_within(wait) {
                return;
            }
            wait = (wait * 2).min(LONGEST_WAIT);
            opened = open(self.subject);
            // What happened meanwhile was not heard.
            gathering = Gathering::default();
            gathering.note(Instant::now());
        }
    }

    /// Rings for what the socket hears, as long as it works.
    fn follow(&self, socket: &Socket, mut gathering: Gathering) -> Left {
        loop {
            match self.wait(socket, gathering.due()) {
                Ok(Heard { ended: true, .. }) => return Left::Ended,
                Ok(Heard { events: true, .. }) => match self.drain(socket) {
                    Ok(true) => gathering.note(Instant::now()),
                    Ok(false) => {}
                    Err(error) => return Left::Broken(error),
                },
                Ok(_) => {}
                Err(error) => return Left::Broken(error),
            }
            if gathering.take(Instant::now()) {
                (self.ring)();
            }
        }
    }

    /// Waits for events, the end, or this moment.
    fn wait(&self, socket: &Socket, until: Option<Instant>) -> io::Result<Heard> {
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
        Ok(Heard { events, ended })
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

    /// Reads all that waits; true when somebody else caused some of it.
    fn drain(&self, socket: &Socket) -> io::Result<bool> {
        let mut foreign = false;
        // The header of the first message is enough: each event is a datagram of its own.
        let mut buffer = [0; 16];
        loop {
            match recv(socket, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => foreign |= !self.subject.is_own(sender(&buffer[..length])),
                // The kernel dropped events because we were slow.
                Err(Errno::NOBUFS) => foreign = true,
                Err(Errno::AGAIN) => return Ok(foreign),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

struct Heard {
    events: bool,
    ended: bool,
}

/// The port of the socket whose request caused an event: the last field of its header.
fn sender(message: &[u8]) -> Option<u32> {
    let port = message.get(12..16)?.first_chunk()?;
    Some(u32::from_ne_bytes(*port))
}

/// When to ring: [`GATHER`] after the first event, and [`REST`] after the bell before.
#[derive(Debug, Default)]
struct Gathering {
    first: Option<Instant>,
    rung: Option<Instant>,
}

impl Gathering {
    fn note(&mut self, now: Instant) {
        self.first.get_or_insert(now);
    }

    fn due(&self) -> Option<Instant> {
        let gathered = self.first? + GATHER;
        let rested = self.rung.map(|rung| rung + REST);
        Some(rested.map_or(gathered, |rested| rested.max(gathered)))
    }

    /// Whether to ring now; then gathering begins anew.
    fn take(&mut self, now: Instant) -> bool {
        let due = self.due().is_some_and(|due| due <= now);
        if due {
            self.first = None;
            self.rung = Some(now);
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
    fn events_that_come_together_ring_once() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        assert_eq!(gathering.due(), None);
        for time in [0, 10, 20, 49] {
            gathering.note(after(start, time));
            assert!(!gathering.take(after(start, time)));
        }
        assert!(gathering.take(after(start, 50)), "S-37: no later than this");
        assert!(!gathering.take(after(start, 10_000)));
        assert_eq!(gathering.due(), None, "nothing is left to tell");
    }

    #[test]
    fn a_flood_neither_puts_the_bell_off_nor_rings_for_every_event() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        let rings = (0..10_000)
            .map(|time| after(start, time))
            .filter(|now| {
                gathering.note(*now);
                gathering.take(*now)
            })
            .count();
        assert_eq!(rings, 40, "four a second");
    }

    #[test]
    fn an_event_after_a_quiet_time_does_not_wait_for_the_rest() {
        let start = Instant::now();
        let mut gathering = Gathering::default();
        gathering.note(start);
        assert!(gathering.take(after(start, 50)));
        gathering.note(after(start, 60));
        assert_eq!(gathering.due(), Some(after(start, 300)));
        assert!(gathering.take(after(start, 300)));
        gathering.note(after(start, 5_000));
        assert_eq!(gathering.due(), Some(after(start, 5_050)));
    }

    #[test]
    fn a_short_message_is_nobodys_and_counts() {
        assert_eq!(sender(&[0; 12]), None);
        let mut message = [0; 16];
        message[12..].copy_from_slice(&77_u32.to_ne_bytes());
        assert_eq!(sender(&message), Some(77));
    }
}
