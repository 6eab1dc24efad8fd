//! Connection tracking for tests, below the codec: it reads the bytes that are sent and answers with
//! bytes, over transports that fail as they are told to. What it does about a fault is what Linux does:
//!
//! - an answer that finds no room is dropped, and the next receive call fails with `ENOBUFS`;
//! - a list goes on only as it is read, and while it does no other begins on that socket (`EBUSY`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use portolan_reconcile::Flow;

use super::Conntrack;
use super::codec::{self, Request};
use super::transport::Transport;

/// `NLM_F_MULTI`: the message is part of a list.
const MULTI: u16 = 2;
/// Flows of a list in one datagram.
const PER_DATAGRAM: usize = 8;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const ENOBUFS: i32 = 105;

/// What goes wrong with one send and with what it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// A signal interrupts the send call and every receive call.
    Interrupted,
    /// The send call finds no memory (`ENOBUFS`); nothing is done.
    NoMemory,
    /// Everything is done, and the answers behind so many datagrams are lost.
    AnswersLost(usize),
    /// A list changes while it is read.
    ListChanged,
    /// The kernel falls silent behind so many datagrams.
    Silent(usize),
    /// The datagram behind so many is cut in the middle of a message.
    Cut(usize),
}

/// What the kernel holds.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) flows: BTreeSet<Flow>,
    /// Faults of the sends to come.
    pub(super) faults: VecDeque<Fault>,
}

/// A kernel that sockets can be opened to.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeKernel {
    state: Arc<Mutex<State>>,
}

impl FakeKernel {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn open(&self) -> Conntrack {
        let kernel = self.clone();
        let opener = move || {
            let transport = FakeTransport {
                kernel: kernel.clone(),
                queue: VecDeque::new(),
                list: VecDeque::new(),
                fault: Fault::None,
                was_interrupted: false,
                read: 0,
            };
            Ok(Box::new(transport) as Box<dyn Transport>)
        };
        Conntrack::over(Box::new(opener)).unwrap()
    }
}

struct FakeTransport {
    kernel: FakeKernel,
    /// Datagrams that can be read.
    queue: VecDeque<Vec<u8>>,
    /// What is left of the list that is being read.
    list: VecDeque<Vec<u8>>,
    fault: Fault,
    was_interrupted: bool,
    /// How many datagrams were read since the last send.
    read: usize,
}

impl FakeTransport {
    /// Fails every other time.
    fn interrupt(&mut self) -> io::Result<()> {
        self.was_interrupted = self.fault == Fault::Interrupted && !self.was_interrupted;
        if self.was_interrupted {
            return Err(io::Error::from_raw_os_error(EINTR));
        }
        Ok(())
    }

    fn begin_list(&mut self, sequence: u32) {
        let changed = if self.fault == Fault::ListChanged {
            NLM_F_DUMP_INTR
        } else {
            0
        };
        let flags = MULTI | changed;
        let kind = u16::from_be_bytes([codec::SUBSYSTEM, codec::MSG_NEW]);
        let flows: Vec<_> = self.kernel.lock().flows.iter().copied().collect();
        for chunk in flows.chunks(PER_DATAGRAM) {
            let messages = chunk
                .iter()
                .map(|flow| message(kind, flags, sequence, &shown(flow)));
            self.list.push_back(messages.collect::<Vec<_>>().concat());
        }
        let end = message(NLMSG_DONE, flags, sequence, &[0; 4]);
        self.list.push_back(end);
        self.queue.extend(self.list.pop_front());
    }

    fn handle(&mut self, bytes: &[u8]) {
        let flags = u16::from_ne_bytes(bytes[6..8].try_into().unwrap());
        let sequence = u32::from_ne_bytes(bytes[8..12].try_into().unwrap());
        let acknowledge = flags & NLM_F_ACK != 0;
        let result = if flags & NLM_F_DUMP == NLM_F_DUMP {
            if self.list.is_empty() {
                return self.begin_list(sequence);
            }
            EBUSY
        } else {
            let mut kernel = self.kernel.lock();
            let is_named = |flow: &Flow| {
                let mut named = Vec::new();
                Request::Delete(flow).encode(sequence, acknowledge, &mut named);
                named == bytes
            };
            let before = kernel.flows.len();
            kernel.flows.retain(|flow| !is_named(flow));
            if kernel.flows.len() == before {
                ENOENT
            } else {
                0
            }
        };
        if result != 0 || acknowledge {
            let mut payload = (-result).to_ne_bytes().to_vec();
            payload.extend_from_slice(&[0; 16]);
            let answer = message(NLMSG_ERROR, 0, sequence, &payload);
            self.queue.push_back(answer);
        }
    }
}

impl Transport for FakeTransport {
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize> {
        let fault = self.kernel.lock().faults.front().copied();
        self.fault = fault.unwrap_or(Fault::None);
        self.interrupt()?;
        self.kernel.lock().faults.pop_front();
        self.read = 0;
        if self.fault == Fault::NoMemory {
            return Err(io::Error::from_raw_os_error(ENOBUFS));
        }
        let mut rest = datagram;
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap());
            let (message, behind) = rest.split_at(length as usize);
            self.handle(message);
            rest = behind;
        }
        Ok(datagram.len())
    }

    fn receive(&mut self, buffer: &mut Vec<u8>, _: bool) -> io::Result<usize> {
        self.interrupt()?;
        match self.fault {
            Fault::AnswersLost(behind) => {
                self.fault = Fault::None;
                self.queue.truncate(behind);
                return Err(io::Error::from_raw_os_error(ENOBUFS));
            }
            Fault::Silent(behind) if self.read >= behind => self.queue.clear(),
            Fault::Cut(behind) if self.read >= behind => {
                if let Some(datagram) = self.queue.front_mut() {
                    datagram.truncate(datagram.len() - 6);
                }
            }
            _ => {}
        }
        let Some(datagram) = self.queue.pop_front() else {
            return Err(io::Error::from_raw_os_error(EAGAIN));
        };
        self.queue.extend(self.list.pop_front());
        self.read += 1;
        buffer.extend_from_slice(&datagram);
        Ok(datagram.len())
    }
}

/// A flow as the kernel tells of it.
fn shown(flow: &Flow) -> Vec<u8> {
    let mut payload = vec![0; 4];
    let (original, reply) = (codec::TUPLE_ORIGINAL, codec::TUPLE_REPLY);
    codec::put_tuple(&mut payload, original, flow.source, flow.destination);
    codec::put_tuple(&mut payload, reply, flow.reply_source, flow.source);
    if let Some(id) = flow.id {
        codec::put(&mut payload, codec::ID, &id.to_be_bytes());
    }
    payload
}

fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
