//! Reads expressions from attributes.
//!
//! An expression is kept as [`Expression::Other`] if it has an attribute that its variant cannot express, so that
//! nothing is lost.

mod actions;
mod comparisons;
mod loads;

use std::sync::Arc;

use netlink_packet_core::{DecodeError, NlaBuffer, parse_u8, parse_u32_be, parse_u64_be};

use super::kinds::{DATA, NAME};
use super::{Expression, Register};
use crate::attribute::{attributes, data, keep, text, value};
use crate::bytes::Bytes;

/// `None` if the expression has a form that its variant cannot express.
type Parsed = Result<Option<Expression>, DecodeError>;

impl Expression {
    /// Reads an expression from its name and its attributes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut name = Arc::from("");
        let mut content: &[u8] = &[];
        for item in attributes(bytes) {
            let item = item?;
            match item.kind() {
                NAME => name = text(item.value()),
                DATA => content = value(item),
                _ => {}
            }
        }
        let items = Items(attributes(content).collect::<Result<_, _>>()?);
        match parse_known(&name, &items)? {
            Some(known) => Ok(known),
            None => Ok(Self::Other {
                name,
                attributes: items.0.iter().map(keep).collect::<Result<_, _>>()?,
            }),
        }
    }
}

fn parse_known(name: &str, items: &Items<'_>) -> Parsed {
    match name {
        "payload" => loads::payload(items),
        "meta" => loads::meta(items),
        "ct" => loads::conntrack(items),
        "cmp" => comparisons::compare(items),
        "range" => comparisons::range(items),
        "bitwise" => comparisons::bitwise(items),
        "lookup" => comparisons::lookup(items),
        "immediate" => loads::immediate(items),
        "numgen" => loads::numgen(items),
        "hash" => loads::hash(items),
        "nat" => actions::nat(items),
        "masq" => actions::masquerade(items),
        "reject" => actions::reject(items),
        "fib" => loads::fib(items),
        "dynset" => actions::update(items),
        "counter" => actions::counter(items),
        _ => Ok(None),
    }
}

/// The attributes of an expression.
struct Items<'a>(Vec<NlaBuffer<&'a [u8]>>);

impl<'a> Items<'a> {
    /// Whether it has no other attributes than these, and none of them twice.
    fn are_of(&self, kinds: &[u16]) -> bool {
        let mut seen: Vec<u16> = self.0.iter().map(NlaBuffer::kind).collect();
        seen.sort_unstable();
        seen.windows(2).all(|pair| pair.first() != pair.last())
            && seen.iter().all(|kind| kinds.contains(kind))
    }

    fn value(&self, kind: u16) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|item| item.kind() == kind)
            .map(|item| value(*item))
    }

    fn number(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        self.value(kind).map(parse_u32_be).transpose()
    }

    fn wide(&self, kind: u16) -> Result<Option<u64>, DecodeError> {
        self.value(kind).map(parse_u64_be).transpose()
    }

    fn byte(&self, kind: u16) -> Result<Option<u8>, DecodeError> {
        self.value(kind).map(parse_u8).transpose()
    }

    fn register(&self, kind: u16) -> Result<Option<Register>, DecodeError> {
        Ok(self.number(kind)?.map(Register::from_number))
    }

    fn bytes(&self, kind: u16) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.value(kind).map(data).transpose()?.flatten())
    }

    /// A register that is missing if it equals the first one of its range.
    fn last(&self, kind: u16, first: Option<Register>) -> Result<Option<Register>, DecodeError> {
        Ok(self.register(kind)?.filter(|last| Some(*last) != first))
    }
}
