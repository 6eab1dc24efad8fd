//! For tests: captured messages, a runner for tests in network namespaces, and a transport that fails in the same ways as the kernel, below the codec: a [`Kernel`] reads the bytes
//! that are sent and answers with bytes. The transport handles a fault like Linux:
//!
//! - an answer that does not fit into the buffer is dropped, and the next receive call fails with `ENOBUFS`, before
//!   earlier queued answers can be read;
//! - a list continues only as it is read, and until it ends, no other list starts on that socket (`EBUSY`).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "test code may panic"
)]

pub mod captures;
pub mod runner;

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
/// Nothing arrived in time.
const EAGAIN: i32 = 11;
/// Another list is being read.
const EBUSY: i32 = 16;
/// The buffer was full.
pub const ENOBUFS: i32 = 105;

/// The fault of one send and its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Signals interrupt the send call and every receive call this many times each.
    Interrupted(usize),
    /// The send call fails for lack of memory (`ENOBUFS`), and nothing is executed.
    NoMemory,
    /// Everything is executed, but the answers after this many datagrams are lost.
    AnswersLost(usize),
    /// A list changes while it is read.
    ListChanged,
    /// The datagram after this many is missing from a list, without any indication from the kernel.
    LeftOut(usize),
    /// The kernel stops answering after this many datagrams.
    Silent(usize),
    /// The datagram after this many is truncated in the middle of a message.
    Cut(usize),
    /// The subsystem was unloaded and loaded again before the send ([`Kernel::reload`]).
    Reloaded,
}

/// The fake kernel.
pub trait Kernel: Send + 'static {
    /// Executes one message.
    fn handle(&mut self, message: &RawMessage<'_>, answers: &mut Answers);

    /// Unloads and loads the subsystem, which loses its state.
    fn reload(&mut self) {}
}

/// The pending answers of one socket.
#[derive(Debug, Default)]
pub struct Answers {
    /// Datagrams that can be received.
    queue: VecDeque<Vec<u8>>,
    /// The remaining datagrams of the current list.
    list: VecDeque<Vec<u8>>,
    list_changed: bool,
    left_out: Option<usize>,
}

impl Answers {
    /// Queues a datagram as an answer.
    pub fn push(&mut self, datagram: Vec<u8>) {
        self.queue.push_back(datagram);
    }

    /// Acknowledges a message: 0 for success, otherwise an error number, followed by `rest`, the part of the request
    /// that the kernel returns.
    pub fn acknowledge(&mut self, sequence: u32, errno: i32, rest: &[u8]) {
        let mut payload = errno.saturating_neg().to_ne_bytes().to_vec();
        payload.extend_from_slice(rest);
        self.push(message(NLMSG_ERROR, 0, sequence, &payload));
    }

    /// Whether a list is being read. Until it ends, the kernel starts no other.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        !self.list.is_empty()
    }

    /// Starts a list of these datagrams of whole messages, or refuses it (`EBUSY`) while another one is being read.
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

/// A fake kernel to which channels can be opened, with upcoming faults.
#[derive(Debug)]
pub struct Faulty<K> {
    shared: Arc<Mutex<Shared<K>>>,
}

/// The state shared by all channels.
#[derive(Debug, Default)]
pub struct Shared<K> {
    /// The fake kernel.
    pub kernel: K,
    /// The faults of the next sends.
    pub faults: VecDeque<Fault>,
    /// The number of sockets opened.
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
    /// The shared state.
    pub fn lock(&self) -> MutexGuard<'_, Shared<K>> {
        self.shared
            .lock()
            .expect("no test panics while it holds the lock")
    }

    /// A channel to the kernel.
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
        Channel::over(Box::new(opener)).expect("the opener never fails")
    }
}

struct FakeTransport<K> {
    faulty: Faulty<K>,
    answers: Answers,
    fault: Fault,
    /// How often the current call was interrupted.
    interruptions: usize,
    /// The number of datagrams received since the last send.
    read: usize,
}

impl<K: Kernel> FakeTransport<K> {
    /// Fails as many times as the fault specifies before the next call succeeds.
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
            .expect("no test panics while it holds the lock");
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
            let message = message.expect("messages are well-formed");
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

/// A message with this payload.
#[must_use]
pub fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).expect("a short message");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
