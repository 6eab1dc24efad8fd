//! A fake nf_tables for tests, below the codec: it reads the bytes that are sent and answers with bytes, like Linux. It
//! has sets with elements only. It reports each refused message of a transaction, and then executes nothing of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::{BTreeMap, BTreeSet};

use netlink_blocking::testing::{Answers, Faulty, Kernel, message};
use netlink_packet_core::{NLM_F_ACK, NLMSG_ERROR};

use crate::message::{BATCH_BEGIN, BATCH_END};
use crate::{
    Bytes, Element, Elements, Envelope, Errno, Family, Generation, Operation, RawMessage, Reply,
    Socket, TableId,
};

/// The number of elements of a list in one datagram.
const PER_DATAGRAM: usize = 50;
const CAPPED_WITH_ATTRIBUTES: u16 = 0x300;

type Sets = BTreeMap<String, BTreeMap<Bytes, Option<Bytes>>>;

/// The state of the fake kernel.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sets: Sets,
    /// Keys that it refuses, as if the set were full.
    pub(crate) refused: BTreeSet<Bytes>,
    /// Whether errors name the place, as from Linux 5.19 on.
    pub(crate) names_places: bool,
    /// Refuses each transaction when it ends.
    pub(crate) refuses_all: Option<Errno>,
    pub(crate) generation: u32,
    /// The number of transactions that were begun.
    pub(crate) attempts: usize,
    open: Option<Transaction>,
}

/// A transaction that has not ended.
#[derive(Debug)]
struct Transaction {
    begin: u32,
    sets: Sets,
    answers: Vec<Vec<u8>>,
    failed: bool,
}

pub(crate) type FakeKernel = Faulty<State>;

/// A socket to the fake kernel.
pub(crate) fn open(kernel: &FakeKernel) -> Socket {
    Socket::over(kernel.channel()).unwrap()
}

pub(crate) fn table() -> TableId {
    TableId::new(Family::Ipv4, "t")
}

/// Executes an operation. An error has the number of the element that failed.
fn execute(
    operation: &Operation,
    sets: &mut Sets,
    refused: &BTreeSet<Bytes>,
) -> Result<(), (Errno, Option<usize>)> {
    match operation {
        Operation::AddSet(_, set) => {
            sets.entry(set.name.to_string()).or_default();
        }
        Operation::DeleteSet(_, name) => {
            sets.remove(&**name).ok_or((Errno::NOT_FOUND, None))?;
        }
        Operation::AddElements(of) => {
            let set = sets.get_mut(&*of.set).ok_or((Errno::NOT_FOUND, None))?;
            for (number, element) in of.elements.iter().enumerate() {
                if refused.contains(&element.key) {
                    return Err((Errno::SET_FULL, Some(number)));
                }
                let old = set.insert(element.key.clone(), element.data.clone());
                if old.is_some_and(|old| old != element.data) {
                    return Err((Errno::EXISTS, Some(number)));
                }
            }
        }
        Operation::DeleteElements(of) => {
            let set = sets.get_mut(&*of.set).ok_or((Errno::NOT_FOUND, None))?;
            for (number, element) in of.elements.iter().enumerate() {
                set.remove(&element.key)
                    .ok_or((Errno::NOT_FOUND, Some(number)))?;
            }
        }
        Operation::AddTable(_) => {}
        other => panic!("the fake kernel cannot {other}"),
    }
    Ok(())
}

/// An answer with an error number, and with the place of the element that failed.
fn answer(sequence: u32, errno: Errno, offset: Option<usize>) -> Vec<u8> {
    let mut payload = (-errno.0).to_ne_bytes().to_vec();
    payload.extend_from_slice(&[0; 16]);
    let mut flags = 0;
    if let Some(offset) = offset {
        flags = CAPPED_WITH_ATTRIBUTES;
        payload.extend_from_slice(&[8, 0, 2, 0]);
        payload.extend_from_slice(&u32::try_from(offset).unwrap().to_ne_bytes());
    }
    message(NLMSG_ERROR, flags, sequence, &payload)
}

/// Where the element with a number begins in a message: where a message without it and its followers ends.
fn place(operation: &Operation, number: usize) -> usize {
    let mut shorter = operation.clone();
    let (Operation::AddElements(of) | Operation::DeleteElements(of)) = &mut shorter else {
        panic!("no elements");
    };
    of.elements.truncate(number);
    let envelope = Envelope {
        sequence: 0,
        acknowledge: false,
    };
    let mut bytes = Vec::new();
    shorter.encode(envelope, &mut bytes).unwrap();
    bytes.len()
}

impl State {
    fn change(&mut self, message: &RawMessage<'_>) {
        let operation = Operation::decode(message).unwrap();
        let transaction = self.open.as_mut().unwrap();
        let sequence = message.header.sequence_number;
        match execute(&operation, &mut transaction.sets, &self.refused) {
            Ok(()) if message.header.flags & NLM_F_ACK != 0 => {
                transaction.answers.push(answer(sequence, Errno(0), None));
            }
            Ok(()) => {}
            Err((errno, number)) => {
                let offset = number
                    .filter(|_| self.names_places)
                    .map(|number| place(&operation, number));
                transaction.answers.push(answer(sequence, errno, offset));
                transaction.failed = true;
            }
        }
    }

    fn end(&mut self, answers: &mut Answers) {
        let transaction = self.open.take().unwrap();
        if let Some(errno) = self.refuses_all {
            answers.push(answer(transaction.begin, errno, None));
        }
        for datagram in transaction.answers {
            answers.push(datagram);
        }
        if !transaction.failed && self.refuses_all.is_none() {
            self.sets = transaction.sets;
            self.generation += 1;
        }
    }

    fn read(&self, message: &RawMessage<'_>, answers: &mut Answers) {
        let sequence = message.header.sequence_number;
        let envelope = Envelope {
            sequence,
            acknowledge: false,
        };
        let encoded = |reply: Reply| {
            let mut bytes = Vec::new();
            reply.encode(envelope, &mut bytes).unwrap();
            bytes
        };
        match message.header.message_type & 0xff {
            // GETGEN
            16 => {
                let generation = Generation {
                    id: self.generation,
                    ..Generation::default()
                };
                answers.push(encoded(Reply::Generation(generation)));
                answers.acknowledge(sequence, 0, &[]);
            }
            // GETSETELEM
            13 => {
                let mut asked = *message;
                asked.header.message_type = asked.header.message_type & 0xff00 | 12;
                let Reply::Elements(asked) = Reply::decode(&asked).unwrap() else {
                    panic!("elements")
                };
                let Some(set) = self.sets.get(&*asked.set) else {
                    return answers.acknowledge(sequence, Errno::NOT_FOUND.0, &[]);
                };
                let all: Vec<Element> = set
                    .iter()
                    .map(|(key, data)| Element {
                        key: key.clone(),
                        data: data.clone(),
                        ..Element::default()
                    })
                    .collect();
                let datagrams = all.chunks(PER_DATAGRAM).map(|part| {
                    encoded(Reply::Elements(Elements {
                        elements: part.to_vec(),
                        ..asked.clone()
                    }))
                });
                answers.list(sequence, datagrams);
            }
            other => panic!("the fake kernel does not know command {other}"),
        }
    }
}

impl Kernel for State {
    fn handle(&mut self, message: &RawMessage<'_>, answers: &mut Answers) {
        match message.header.message_type {
            BATCH_BEGIN => {
                self.attempts += 1;
                self.open = Some(Transaction {
                    begin: message.header.sequence_number,
                    sets: self.sets.clone(),
                    answers: Vec::new(),
                    failed: false,
                });
            }
            BATCH_END => self.end(answers),
            _ if self.open.is_some() => self.change(message),
            _ => self.read(message, answers),
        }
    }
}
