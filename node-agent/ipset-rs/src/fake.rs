//! A kernel for tests, below the codec: it reads the bytes that are sent and answers with bytes, over
//! transports that fail as they are told to. What it does about a fault is what Linux does:
//!
//! - an answer that finds no room is dropped, and the next receive call fails with `ENOBUFS`, before
//!   what was queued earlier can be read;
//! - a list goes on only as it is read, and while it does no other begins on that socket (`EBUSY`);
//! - of a message with many entries those before a refused one are added, and those behind it are not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};

use crate::attribute;
use crate::channel::Channel;
use crate::entry::LINENO;
use crate::transport::Transport;
use crate::{
    Detail, Entry, Envelope, Header, PROTOCOL_VERSION, RawMessage, Reply, Request, Revisions,
    SetPart, Socket, messages,
};

/// `NLM_F_MULTI`: the message is part of a list.
const MULTI: u16 = 2;
/// Entries of a list in one datagram.
const PER_DATAGRAM: usize = 50;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
pub(crate) const ENOBUFS: i32 = 105;
/// `IPSET_ERR_HASH_FULL`.
pub(crate) const HASH_FULL: i32 = 4352;

/// What goes wrong with one send and with what it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Signals interrupt the send call and every receive call, so often each.
    Interrupted(usize),
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
pub(crate) struct State {
    pub(crate) sets: BTreeMap<String, BTreeSet<Entry>>,
    /// Faults of the sends to come.
    pub(crate) faults: VecDeque<Fault>,
    /// Entries that it refuses, as if there were no room for them.
    pub(crate) refused: BTreeSet<Entry>,
    /// How many sockets were opened.
    pub(crate) opened: usize,
}

/// A kernel that sockets can be opened to.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeKernel {
    state: Arc<Mutex<State>>,
}

impl FakeKernel {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn socket(&self) -> Socket {
        let kernel = self.clone();
        let opener = move || {
            kernel.lock().opened += 1;
            let transport = FakeTransport {
                kernel: kernel.clone(),
                queue: VecDeque::new(),
                list: VecDeque::new(),
                fault: Fault::None,
                interruptions: 0,
                read: 0,
            };
            Ok(Box::new(transport) as Box<dyn Transport>)
        };
        let channel = Channel::over(Box::new(opener)).unwrap();
        Socket::over(channel).unwrap()
    }
}

/// A refusal, and the entry of the message that it is about.
struct Refused {
    errno: i32,
    line: Option<u32>,
}

impl From<i32> for Refused {
    fn from(errno: i32) -> Self {
        Self { errno, line: None }
    }
}

impl State {
    /// Does what a request asks for, or refuses it as Linux does.
    fn write(&mut self, request: &Request) -> Result<(), Refused> {
        match request {
            Request::Create { name, .. } => {
                if self.sets.contains_key(name.as_str()) {
                    return Err(EEXIST.into());
                }
                self.sets.insert(name.as_str().to_owned(), BTreeSet::new());
            }
            Request::Destroy(name) => {
                self.sets.remove(name.as_str()).ok_or(ENOENT)?;
            }
            Request::Swap(from, to) => {
                let mut take = |name: &str| self.sets.remove(name).ok_or(ENOENT);
                let (one, other) = (take(from.as_str())?, take(to.as_str())?);
                self.sets.insert(to.as_str().to_owned(), one);
                self.sets.insert(from.as_str().to_owned(), other);
            }
            Request::Add(name, entries) => {
                let set = self.sets.get_mut(name.as_str()).ok_or(ENOENT)?;
                for (line, entry) in (1..).zip(entries) {
                    if self.refused.contains(entry) {
                        let line = Some(line);
                        let errno = HASH_FULL;
                        return Err(Refused { errno, line });
                    }
                    set.insert(*entry);
                }
            }
            Request::Delete(name, entries) => {
                let set = self.sets.get_mut(name.as_str()).ok_or(ENOENT)?;
                set.retain(|held| !entries.contains(held));
            }
            other => panic!("{other} does not write"),
        }
        Ok(())
    }

    fn list(&self, name: Option<&str>, detail: Detail) -> Vec<SetPart> {
        let wanted = |found: &&String| name.is_none_or(|name| name == *found);
        let mut parts = Vec::new();
        for name in self.sets.keys().filter(wanted) {
            let part = |header, entries: &[Entry]| SetPart {
                name: name.clone(),
                header,
                entries: entries.to_vec(),
                other_entries: Vec::new(),
            };
            let header = (detail != Detail::Names).then(|| Header {
                name: name.clone(),
                type_name: "hash:ip,port".to_owned(),
                ..Header::default()
            });
            parts.push(part(header, &[]));
            let entries: Vec<_> = self.sets[name].iter().copied().collect();
            if detail == Detail::Entries {
                parts.extend(entries.chunks(PER_DATAGRAM).map(|chunk| part(None, chunk)));
            }
        }
        parts
    }
}

struct FakeTransport {
    kernel: FakeKernel,
    /// Datagrams that can be read.
    queue: VecDeque<Vec<u8>>,
    /// What is left of the list that is being read.
    list: VecDeque<Vec<u8>>,
    fault: Fault,
    /// How often the call that is being tried was interrupted.
    interruptions: usize,
    /// How many datagrams were read since the last send.
    read: usize,
}

impl FakeTransport {
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

    fn answer(&mut self, sequence: u32, refused: &Refused) {
        let mut payload = (-refused.errno).to_ne_bytes().to_vec();
        // The header of the request that failed; behind it the kernel puts its attributes.
        payload.extend_from_slice(&[0; 16]);
        if let Some(line) = refused.line {
            payload.extend_from_slice(&[0; 4]);
            attribute::put_u32(&mut payload, LINENO, line).unwrap();
        }
        let mut datagram = Vec::new();
        put(&mut datagram, NLMSG_ERROR, 0, sequence, &payload);
        self.queue.push_back(datagram);
    }

    fn begin_list(&mut self, sequence: u32, parts: Vec<SetPart>) {
        let changed = if self.fault == Fault::ListChanged {
            NLM_F_DUMP_INTR
        } else {
            0
        };
        for part in parts {
            let mut datagram = reply(sequence, &Reply::Set(part));
            let flags = (MULTI | changed).to_ne_bytes();
            datagram[6..8].copy_from_slice(&flags);
            self.list.push_back(datagram);
        }
        let mut end = Vec::new();
        put(&mut end, NLMSG_DONE, MULTI | changed, sequence, &[0; 4]);
        self.list.push_back(end);
        self.queue.extend(self.list.pop_front());
    }

    fn handle(&mut self, message: &RawMessage<'_>) {
        let header = message.header;
        let sequence = header.sequence_number;
        let request = Request::decode(message).unwrap();
        if let Request::List { name, detail } = &request {
            if !self.list.is_empty() {
                return self.answer(sequence, &EBUSY.into());
            }
            let name = name.as_ref().map(|name| name.as_str());
            let parts = self.kernel.lock().list(name, *detail);
            if name.is_some() && parts.is_empty() {
                return self.answer(sequence, &ENOENT.into());
            }
            return self.begin_list(sequence, parts);
        }
        let known = match request {
            Request::Protocol => Some(Reply::Protocol(Revisions {
                min: 6,
                max: PROTOCOL_VERSION,
            })),
            Request::Type { .. } => Some(Reply::Type(Revisions { min: 0, max: 6 })),
            _ => None,
        };
        if let Some(known) = known {
            self.queue.push_back(reply(sequence, &known));
            return self.answer(sequence, &0.into());
        }
        let done = self.kernel.lock().write(&request);
        match done {
            Err(refused) => self.answer(sequence, &refused),
            Ok(()) if header.flags & NLM_F_ACK != 0 => self.answer(sequence, &0.into()),
            Ok(()) => {}
        }
    }
}

impl Transport for FakeTransport {
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize> {
        let fault = self.kernel.lock().faults.front().copied();
        self.fault = fault.unwrap_or(Fault::None);
        self.interrupt(self.fault)?;
        self.kernel.lock().faults.pop_front();
        self.read = 0;
        if self.fault == Fault::NoMemory {
            self.fault = Fault::None;
            return Err(io::Error::from_raw_os_error(ENOBUFS));
        }
        for message in messages(datagram) {
            self.handle(&message.unwrap());
        }
        Ok(datagram.len())
    }

    fn receive(&mut self, buffer: &mut Vec<u8>, _: bool) -> io::Result<usize> {
        self.interrupt(self.fault)?;
        let fault = std::mem::replace(&mut self.fault, Fault::None);
        match fault {
            Fault::AnswersLost(behind) => {
                self.queue.truncate(behind);
                return Err(io::Error::from_raw_os_error(ENOBUFS));
            }
            Fault::Silent(behind) if self.read >= behind => self.queue.clear(),
            Fault::Cut(behind) if self.read >= behind => {
                if let Some(datagram) = self.queue.front_mut() {
                    datagram.truncate(datagram.len() - 6);
                }
            }
            other => self.fault = other,
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

fn reply(sequence: u32, reply: &Reply) -> Vec<u8> {
    let mut datagram = Vec::new();
    let envelope = Envelope {
        sequence,
        protocol: PROTOCOL_VERSION,
        acknowledge: false,
    };
    reply.encode(envelope, &mut datagram).unwrap();
    datagram
}

fn put(buffer: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, payload: &[u8]) {
    let length = u32::try_from(16 + payload.len()).unwrap();
    buffer.extend_from_slice(&length.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(&flags.to_ne_bytes());
    buffer.extend_from_slice(&sequence.to_ne_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(payload);
}
