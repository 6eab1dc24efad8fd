//! A transport for tests that fails in the ways in which the kernel can, below the codec: a [`Kernel`] reads the bytes
//! that are sent and answers with bytes. What the transport does about a fault is what Linux does:
//!
//! - an answer that finds no room is dropped, and the next receive call fails with `ENOBUFS`, before what was queued
//!   earlier can be read;
//! - a list goes on only as it is read, and while it does no other begins on that socket (`EBUSY`).
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test is to fail"
)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};

use crate::channel::Channel;
use crate::message::{RawMessage, messages};
use crate::transport::Transport;

/// `NLM_F_MULTI`: the message is part of a list.
const MULTI: u16 = 2;

/// A signal interrupted a call.
const EINTR: i32 = 4;
/// Nothing came in time.
const EAGAIN: i32 = 11;
/// Another list is being read.
const EBUSY: i32 = 16;
/// There was no room.
pub const ENOBUFS: i32 = 105;

/// What goes wrong with one send and with what it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Signals interrupt the send call and every receive call, each this many times.
    Interrupted(usize),
    /// The send call finds no memory (`ENOBUFS`); nothing is done.
    NoMemory,
    /// Everything is done, and the answers behind this many datagrams are lost.
    AnswersLost(usize),
    /// A list changes while it is read.
    ListChanged,
    /// A list leaves out its datagram behind this many, and the kernel does not say so.
    LeftOut(usize),
    /// The kernel falls silent behind this many datagrams.
    Silent(usize),
    /// The datagram behind this many is cut in the middle of a message.
    Cut(usize),
    /// The subsystem was unloaded and loaded again before the send ([`Kernel::reload`]).
    Reloaded,
}

/// What answers.
pub trait Kernel: Send + 'static {
    /// Does what one message asks for.
    fn handle(&mut self, message: &RawMessage<'_>, answers: &mut Answers);

    /// Is loaded again, and has lost what it held.
    fn reload(&mut self) {}
}

/// Answers of one socket on their way.
#[derive(Debug, Default)]
pub struct Answers {
    /// Datagrams that can be read.
    queue: VecDeque<Vec<u8>>,
    /// What is left of the list that is being read.
    list: VecDeque<Vec<u8>>,
    list_changed: bool,
    left_out: Option<usize>,
}

impl Answers {
    /// Answers with a datagram.
    pub fn push(&mut self, datagram: Vec<u8>) {
        self.queue.push_back(datagram);
    }

    /// Acknowledges a message: 0 is success, and an error number goes before `rest`, what the kernel adds of the
    /// request.
    pub fn acknowledge(&mut self, sequence: u32, errno: i32, rest: &[u8]) {
        let mut payload = errno.saturating_neg().to_ne_bytes().to_vec();
        payload.extend_from_slice(rest);
        self.push(message(NLMSG_ERROR, 0, sequence, &payload));
    }

    /// Whether a list is being read, while which the kernel begins no other.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        !self.list.is_empty()
    }

    /// Begins a list of these datagrams of whole messages, or refuses it (`EBUSY`) while another is read.
    pub fn list(&mut self, sequence: u32, datagrams: impl IntoIterator<Item = Vec<u8>>) {
        if self.is_listing() {
            return self.acknowledge(sequence, EBUSY, &[]);
        }
        let changed = if self.list_changed {
            NLM_F_DUMP_INTR
        } else {
            0
        };
        let flags = MULTI | changed;
        for (place, mut datagram) in datagrams.into_iter().enumerate() {
            if self.left_out == Some(place) {
                continue;
            }
            let mut start = 0;
            while let Some(header) = datagram.get_mut(start..).filter(|rest| rest.len() >= 16) {
                header[6..8].copy_from_slice(&flags.to_ne_bytes());
                let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
                start += (length as usize).next_multiple_of(4).max(16);
            }
            self.list.push_back(datagram);
        }
        let end = message(NLMSG_DONE, flags, sequence, &[0; 4]);
        self.list.push_back(end);
        self.queue.extend(self.list.pop_front());
    }
}

/// A kernel that channels can be opened to, with the faults that are to come.
#[derive(Debug)]
pub struct Faulty<K> {
    shared: Arc<Mutex<Shared<K>>>,
}

/// A kernel and what goes wrong with it.
#[derive(Debug, Default)]
pub struct Shared<K> {
    /// What answers.
    pub kernel: K,
    /// Faults of the sends to come.
    pub faults: VecDeque<Fault>,
    /// How many sockets were opened.
    pub opened: usize,
}

impl<K> Clone for Faulty<K> {
    fn clone(&self) -> Self {
        let shared = self.shared.clone();
        Self { shared }
    }
}

impl<K: Default> Default for Faulty<K> {
    fn default() -> Self {
        let shared = Arc::default();
        Self { shared }
    }
}

impl<K: Kernel> Faulty<K> {
    /// The kernel.
    pub fn lock(&self) -> MutexGuard<'_, Shared<K>> {
        self.shared.lock().expect("no test panics while it looks")
    }

    /// A channel to it.
    #[must_use]
    pub fn channel(&self) -> Channel {
        let faulty = self.clone();
        let opener = move || {
            faulty.lock().opened += 1;
            let transport = FakeTransport {
                faulty: faulty.clone(),
                answers: Answers::default(),
                fault: Fault::None,
                interruptions: 0,
                read: 0,
            };
            Ok(Box::new(transport) as Box<dyn Transport>)
        };
        Channel::over(Box::new(opener)).expect("it always opens")
    }
}

struct FakeTransport<K> {
    faulty: Faulty<K>,
    answers: Answers,
    fault: Fault,
    /// How often the call that is being tried was interrupted.
    interruptions: usize,
    /// How many datagrams were read since the last send.
    read: usize,
}

impl<K: Kernel> FakeTransport<K> {
    /// Fails as often as a fault says before the next call comes through.
    fn interrupt(&mut self, fault: Fault) -> io::Result<()> {
        match fault {
            Fault::Interrupted(times) if self.interruptions < times => {
                self.interruptions += 1;
                Err(io::Error::from_raw_os_error(EINTR))
            }
            _ => {
                self.interruptions = 0;
                Ok(())
            }
        }
    }
}

impl<K: Kernel> Transport for FakeTransport<K> {
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize> {
        let fault = self.faulty.lock().faults.front().copied();
        self.fault = fault.unwrap_or(Fault::None);
        self.interrupt(self.fault)?;
        let mut shared = self
            .faulty
            .shared
            .lock()
            .expect("no test panics while it looks");
        shared.faults.pop_front();
        self.read = 0;
        match self.fault {
            Fault::NoMemory => {
                self.fault = Fault::None;
                return Err(io::Error::from_raw_os_error(ENOBUFS));
            }
            Fault::Reloaded => shared.kernel.reload(),
            _ => {}
        }
        self.answers.list_changed = self.fault == Fault::ListChanged;
        self.answers.left_out = match self.fault {
            Fault::LeftOut(behind) => Some(behind),
            _ => None,
        };
        for message in messages(datagram) {
            let message = message.expect("messages are whole");
            shared.kernel.handle(&message, &mut self.answers);
        }
        Ok(datagram.len())
    }

    fn receive(&mut self, buffer: &mut Vec<u8>, _: bool) -> io::Result<usize> {
        self.interrupt(self.fault)?;
        let Answers { queue, list, .. } = &mut self.answers;
        let fault = std::mem::replace(&mut self.fault, Fault::None);
        match fault {
            Fault::AnswersLost(behind) => {
                queue.truncate(behind);
                return Err(io::Error::from_raw_os_error(ENOBUFS));
            }
            Fault::Silent(behind) if self.read >= behind => queue.clear(),
            Fault::Cut(behind) if self.read >= behind => {
                if let Some(datagram) = queue.front_mut() {
                    datagram.truncate(datagram.len().saturating_sub(6));
                }
            }
            other => self.fault = other,
        }
        let Some(datagram) = queue.pop_front() else {
            return Err(io::Error::from_raw_os_error(EAGAIN));
        };
        queue.extend(list.pop_front());
        self.read += 1;
        buffer.extend_from_slice(&datagram);
        Ok(datagram.len())
    }
}

/// A message with these bytes behind its header.
#[must_use]
pub fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).expect("a short one");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
