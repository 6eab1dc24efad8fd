//! A fake IPVS for tests, below the codec: it reads the bytes that are sent and answers with bytes, like Linux.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::BTreeMap;

use netlink_blocking::testing::{Answers, Faulty, Kernel};
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_generic::constants::{CTRL_ATTR_FAMILY_ID, CTRL_CMD_NEWFAMILY, GENL_ID_CTRL};

use crate::attribute::{self, EncodeError};
use crate::request::put_generic_header;
use crate::{
    Destination, DestinationKey, Envelope, Info, RawMessage, Reply, Request, Service, ServiceKey,
    Socket, Timeouts,
};

const FAMILY: u16 = 29;
/// The number of messages of a list in one datagram.
const PER_DATAGRAM: usize = 4;

const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;

/// The maximum timeout in seconds with a clock of 250 ticks per second.
pub(crate) const MAX_TIMEOUT: u32 = 8_589_934;

/// The state of the fake kernel.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) timeouts: Timeouts,
    pub(crate) servers: BTreeMap<ServiceKey, (Service, BTreeMap<DestinationKey, Destination>)>,
    /// Real servers that it refuses.
    pub(crate) refused: Vec<DestinationKey>,
    /// How often IPVS was reloaded.
    pub(crate) reloaded: u16,
    /// The number of writes.
    pub(crate) writes: usize,
}

pub(crate) type FakeKernel = Faulty<State>;

/// A socket to the fake kernel.
pub(crate) fn open(kernel: &FakeKernel) -> Socket {
    Socket::over(kernel.channel()).unwrap()
}

impl State {
    /// The number of the generic netlink family.
    fn family(&self) -> u16 {
        FAMILY + self.reloaded
    }

    /// Executes a request, or refuses it like Linux.
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
                if [tcp, tcp_fin, udp].iter().any(|s| *s > MAX_TIMEOUT) {
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
            other => panic!("{other} is not a write"),
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
            other => panic!("{other} does not request a list"),
        }
    }
}

impl Kernel for State {
    fn handle(&mut self, message: &RawMessage<'_>, answers: &mut Answers) {
        let header = message.header;
        let sequence = header.sequence_number;
        let family = self.family();
        if header.message_type == GENL_ID_CTRL {
            let mut datagram = Vec::new();
            envelope(sequence)
                .put(&mut datagram, 0, |payload| {
                    put_generic_header(payload, CTRL_CMD_NEWFAMILY);
                    attribute::put(payload, CTRL_ATTR_FAMILY_ID, &family.to_ne_bytes());
                    Ok::<_, EncodeError>(())
                })
                .unwrap();
            answers.push(datagram);
            return answers.acknowledge(sequence, 0, &[]);
        }
        if header.message_type != family {
            return answers.acknowledge(sequence, ENOENT, &[]);
        }
        let request = Request::decode(message).unwrap();
        if request.is_dump() {
            let replies = self.list(&request);
            let datagrams = replies.chunks(PER_DATAGRAM).map(|chunk| {
                let mut datagram = Vec::new();
                for reply in chunk {
                    reply.encode(envelope(sequence), &mut datagram).unwrap();
                }
                datagram
            });
            return answers.list(sequence, datagrams);
        }
        if request.is_write() {
            match self.write(&request) {
                Err(errno) => answers.acknowledge(sequence, errno, &[]),
                Ok(()) if header.flags & NLM_F_ACK != 0 => answers.acknowledge(sequence, 0, &[]),
                Ok(()) => {}
            }
            return;
        }
        let reply = match request {
            Request::GetTimeouts => Reply::Timeouts(self.timeouts),
            _ => Reply::Info(Info::default()),
        };
        let mut datagram = Vec::new();
        reply.encode(envelope(sequence), &mut datagram).unwrap();
        answers.push(datagram);
        answers.acknowledge(sequence, 0, &[]);
    }

    fn reload(&mut self) {
        self.reloaded += 1;
        self.servers.clear();
    }
}

fn envelope(sequence: u32) -> Envelope {
    Envelope {
        family_id: FAMILY,
        sequence,
        acknowledge: false,
    }
}
