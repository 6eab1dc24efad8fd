//! Fake IP sets for tests, below the codec: they read the bytes that are sent and answer with bytes, like Linux. In a
//! message with many entries, those before a refused one are added, and those after it are not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::{BTreeMap, BTreeSet};

use netlink_blocking::testing::{Answers, Faulty, Kernel};
use netlink_packet_core::NLM_F_ACK;

use crate::attribute;
use crate::entry::LINENO;
use crate::{
    Detail, Entry, Envelope, Header, PROTOCOL_VERSION, RawMessage, Reply, Request, Revisions,
    SetPart, Socket,
};

/// The number of entries of a list in one datagram.
const PER_DATAGRAM: usize = 50;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
/// `IPSET_ERR_HASH_FULL`.
pub(crate) const HASH_FULL: i32 = 4352;

/// The state of the fake kernel.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sets: BTreeMap<String, BTreeSet<Entry>>,
    /// Entries that it refuses, as if the set were full.
    pub(crate) refused: BTreeSet<Entry>,
}

pub(crate) type FakeKernel = Faulty<State>;

/// A socket to the fake kernel.
pub(crate) fn open(kernel: &FakeKernel) -> Socket {
    Socket::over(kernel.channel()).unwrap()
}

/// A refusal, and the entry of the message to which it applies.
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
    /// Executes a request, or refuses it like Linux.
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
            other => panic!("{other} is not a write"),
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

/// Acknowledges a request like the kernel: with its header, and with the line number of the entry that failed.
fn acknowledge(answers: &mut Answers, sequence: u32, refused: &Refused) {
    let mut rest = vec![0; 16];
    if let Some(line) = refused.line {
        rest.extend_from_slice(&[0; 4]);
        attribute::put_u32(&mut rest, LINENO, line).unwrap();
    }
    answers.acknowledge(sequence, refused.errno, &rest);
}

impl Kernel for State {
    fn handle(&mut self, message: &RawMessage<'_>, answers: &mut Answers) {
        let header = message.header;
        let sequence = header.sequence_number;
        let request = Request::decode(message).unwrap();
        if let Request::List { name, detail } = &request {
            let name = name.as_ref().map(|name| name.as_str());
            let parts = self.list(name, *detail);
            if name.is_some() && parts.is_empty() && !answers.is_listing() {
                return acknowledge(answers, sequence, &ENOENT.into());
            }
            let datagrams = parts
                .into_iter()
                .map(|part| reply(sequence, &Reply::Set(part)));
            return answers.list(sequence, datagrams);
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
            answers.push(reply(sequence, &known));
            return acknowledge(answers, sequence, &0.into());
        }
        match self.write(&request) {
            Err(refused) => acknowledge(answers, sequence, &refused),
            Ok(()) if header.flags & NLM_F_ACK != 0 => {
                acknowledge(answers, sequence, &0.into());
            }
            Ok(()) => {}
        }
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
