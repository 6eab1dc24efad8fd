//! A kernel for tests, below the codec: it reads the bytes that are sent and answers with bytes, over
//! transports that fail as they are told to. What it does about a fault is what Linux does:
//!
//! - an answer that finds no room is dropped, and the next receive call fails with `ENOBUFS`, before
//!   what was queued earlier can be read;
//! - a list goes on only as it is read, and while it does no other begins on that socket (`EBUSY`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use netlink_packet_generic::constants::{CTRL_ATTR_FAMILY_ID, CTRL_CMD_NEWFAMILY, GENL_ID_CTRL};

use crate::attribute::{self, EncodeError};
use crate::channel::Channel;
use crate::request::put_generic_header;
use crate::transport::Transport;
use crate::{
    Destination, DestinationKey, Envelope, Info, Reply, Request, Service, ServiceKey, Socket,
    Timeouts, messages,
};

const FAMILY: u16 = 29;
/// `NLM_F_MULTI`: the message is part of a list.
const MULTI: u16 = 2;
/// Messages of a list in one datagram.
const PER_DATAGRAM: usize = 4;

pub(crate) const EINTR: i32 = 4;
pub(crate) const EAGAIN: i32 = 11;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOBUFS: i32 = 105;

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
    /// IPVS was loaded anew before it: the family has another number, and what was there is gone.
    Reloaded,
}

/// The longest timeout in seconds where the clock ticks 250 times in one: more does not fit.
pub(crate) const LONGEST_TIMEOUT: u32 = 8_589_934;

/// What the kernel holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) timeouts: Timeouts,
    pub(crate) servers: BTreeMap<ServiceKey, (Service, BTreeMap<DestinationKey, Destination>)>,
    /// Faults of the sends to come.
    pub(crate) faults: VecDeque<Fault>,
    /// Real servers that it refuses.
    pub(crate) refused: Vec<DestinationKey>,
    /// How often IPVS was loaded anew.
    pub(crate) reloaded: u16,
    /// How many sockets were opened.
    pub(crate) opened: usize,
    /// How many writes were done.
    pub(crate) writes: usize,
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

impl State {
    /// The number of the family.
    fn family(&self) -> u16 {
        FAMILY + self.reloaded
    }

    /// Does what a request asks for, or refuses it as Linux does.
    fn write(&mut self, request: &Request) -> Result<(), i32> {
        self.writes += 1;
        match request {
            Request::NewService(service) => {
                if self.servers.contains_key(&service.key) {
                    return Err(EEXIST);
                }
                let held = (service.clone(), BTreeMap::new());
                self.servers.insert(service.key, held);
            }
            Request::SetService(service) => {
                self.servers.get_mut(&service.key).ok_or(ESRCH)?.0 = service.clone();
            }
            Request::DelService(key) => drop(self.servers.remove(key).ok_or(ESRCH)?),
            Request::NewDestination(key, destination) => {
                let (_, held) = self.servers.get_mut(key).ok_or(ESRCH)?;
                if self.refused.contains(&destination.key()) {
                    return Err(EINVAL);
                }
                if held.contains_key(&destination.key()) {
                    return Err(EEXIST);
                }
                held.insert(destination.key(), destination.clone());
            }
            Request::SetDestination(key, destination) => {
                let (_, held) = self.servers.get_mut(key).ok_or(ESRCH)?;
                *held.get_mut(&destination.key()).ok_or(ENOENT)? = destination.clone();
            }
            Request::DelDestination(key, destination) => {
                let (_, held) = self.servers.get_mut(key).ok_or(ESRCH)?;
                held.remove(destination).ok_or(ENOENT)?;
            }
            Request::SetTimeouts(timeouts) => {
                let Timeouts { tcp, tcp_fin, udp } = *timeouts;
                if [tcp, tcp_fin, udp].iter().any(|s| *s > LONGEST_TIMEOUT) {
                    return Err(EINVAL);
                }
                let held = &mut self.timeouts;
                for (held, wanted) in [
                    (&mut held.tcp, tcp),
                    (&mut held.tcp_fin, tcp_fin),
                    (&mut held.udp, udp),
                ] {
                    if wanted > 0 {
                        *held = wanted;
                    }
                }
            }
            other => panic!("{other} does not write"),
        }
        Ok(())
    }

    fn list(&self, request: &Request) -> Vec<Reply> {
        match request {
            Request::GetServices => {
                let services = self.servers.values();
                services
                    .map(|(service, _)| Reply::Service(service.clone()))
                    .collect()
            }
            Request::GetDestinations(key) => {
                let held = self.servers.get(key).into_iter();
                held.flat_map(|(_, held)| held.values())
                    .map(|destination| Reply::Destination(destination.clone()))
                    .collect()
            }
            other => panic!("{other} asks for no list"),
        }
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

    fn answer(&mut self, sequence: u32, code: i32) {
        let mut datagram = Vec::new();
        put(
            &mut datagram,
            NLMSG_ERROR,
            0,
            sequence,
            &(-code).to_ne_bytes(),
        );
        self.queue.push_back(datagram);
    }

    fn begin_list(&mut self, sequence: u32, replies: &[Reply]) {
        let changed = if self.fault == Fault::ListChanged {
            NLM_F_DUMP_INTR
        } else {
            0
        };
        for chunk in replies.chunks(PER_DATAGRAM) {
            let mut datagram = Vec::new();
            for reply in chunk {
                let mut message = Vec::new();
                reply.encode(envelope(sequence), &mut message).unwrap();
                let flags = (MULTI | changed).to_ne_bytes();
                message[6..8].copy_from_slice(&flags);
                datagram.append(&mut message);
            }
            self.list.push_back(datagram);
        }
        let mut end = Vec::new();
        put(&mut end, NLMSG_DONE, MULTI | changed, sequence, &[0; 4]);
        self.list.push_back(end);
        self.queue.extend(self.list.pop_front());
    }

    fn handle(&mut self, message: &crate::RawMessage<'_>) {
        let header = message.header;
        let sequence = header.sequence_number;
        let family = self.kernel.lock().family();
        if header.message_type == GENL_ID_CTRL {
            let mut datagram = Vec::new();
            envelope(sequence)
                .put(&mut datagram, 0, |payload| {
                    put_generic_header(payload, CTRL_CMD_NEWFAMILY);
                    attribute::put(payload, CTRL_ATTR_FAMILY_ID, &family.to_ne_bytes());
                    Ok::<_, EncodeError>(())
                })
                .unwrap();
            self.queue.push_back(datagram);
            return self.answer(sequence, 0);
        }
        if header.message_type != family {
            return self.answer(sequence, ENOENT);
        }
        let request = Request::decode(message).unwrap();
        if request.is_dump() {
            if !self.list.is_empty() {
                return self.answer(sequence, EBUSY);
            }
            let replies = self.kernel.lock().list(&request);
            return self.begin_list(sequence, &replies);
        }
        if request.is_write() {
            let done = self.kernel.lock().write(&request);
            match done {
                Err(errno) => self.answer(sequence, errno),
                Ok(()) if header.flags & NLM_F_ACK != 0 => self.answer(sequence, 0),
                Ok(()) => {}
            }
            return;
        }
        let reply = match request {
            Request::GetTimeouts => Reply::Timeouts(self.kernel.lock().timeouts),
            _ => Reply::Info(Info::default()),
        };
        let mut datagram = Vec::new();
        reply.encode(envelope(sequence), &mut datagram).unwrap();
        self.queue.push_back(datagram);
        self.answer(sequence, 0);
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
        if self.fault == Fault::Reloaded {
            let mut state = self.kernel.lock();
            state.reloaded += 1;
            state.servers.clear();
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
            Fault::Silent(behind) if self.read >= behind => {
                self.queue.clear();
            }
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

fn envelope(sequence: u32) -> Envelope {
    Envelope {
        family_id: FAMILY,
        sequence,
        acknowledge: false,
    }
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
