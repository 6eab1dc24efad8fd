//! A fake of connection tracking for tests below the codec: it decodes requests and encodes replies as Linux does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test"
)]

use std::collections::BTreeSet;

use netlink_blocking::attribute::put;
use netlink_blocking::message::RawMessage;
use netlink_blocking::testing::{Answers, Faulty, Kernel, message};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use portolan_plan::Protocol;
use portolan_reconcile::Flow;

use super::Conntrack;
use super::codec::{self, Request};

/// Flows per datagram of a list.
const PER_DATAGRAM: usize = 8;

const ENOENT: i32 = 2;

/// The state of the fake kernel.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) flows: BTreeSet<Flow>,
    /// The protocol of all flows.
    pub(super) protocol: Protocol,
}

pub(super) type FakeKernel = Faulty<State>;

pub(super) fn open(kernel: &FakeKernel) -> Conntrack {
    Conntrack::over(kernel.channel())
}

impl Kernel for State {
    fn handle(&mut self, asked: &RawMessage<'_>, answers: &mut Answers) {
        let (flags, sequence) = (asked.header.flags, asked.header.sequence_number);
        if flags & NLM_F_DUMP == NLM_F_DUMP {
            let kind = u16::from_be_bytes([codec::SUBSYSTEM, codec::MSG_NEW]);
            let protocol = self.protocol;
            let flows: Vec<_> = self.flows.iter().copied().collect();
            let datagrams = flows.chunks(PER_DATAGRAM).map(|chunk| {
                let messages = chunk
                    .iter()
                    .map(|flow| message(kind, 0, sequence, &shown(protocol, flow)));
                messages.collect::<Vec<_>>().concat()
            });
            return answers.list(sequence, datagrams);
        }
        let is_named = |flow: &Flow| {
            let mut named = Vec::new();
            Request::Delete(self.protocol, flow).encode(sequence, false, &mut named);
            named[4..6] == asked.header.message_type.to_ne_bytes() && named[16..] == *asked.payload
        };
        let before = self.flows.len();
        self.flows.retain(|flow| !is_named(flow));
        let errno = if self.flows.len() == before {
            ENOENT
        } else {
            0
        };
        if errno != 0 || flags & NLM_F_ACK != 0 {
            answers.acknowledge(sequence, errno, &[0; 16]);
        }
    }
}

/// The payload of the kernel's message for a flow.
fn shown(protocol: Protocol, flow: &Flow) -> Vec<u8> {
    let mut payload = vec![0; 4];
    let (original, reply) = (codec::TUPLE_ORIGINAL, codec::TUPLE_REPLY);
    let there = [flow.source, flow.destination];
    codec::put_tuple(&mut payload, original, protocol, there);
    let back = [flow.reply_source, flow.source];
    codec::put_tuple(&mut payload, reply, protocol, back);
    if let Some(id) = flow.id {
        put(&mut payload, codec::ID, &id.to_be_bytes());
    }
    payload
}
