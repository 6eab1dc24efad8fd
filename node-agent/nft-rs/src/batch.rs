//! A transaction: operations that the kernel executes all at once or not at all.
//!
//! Operations are encoded as they are added, because many elements as values take much more memory than as messages.
//! Elements are cut into messages whose list is shorter than the longest attribute.

use std::borrow::Borrow;
use std::fmt;
use std::iter::Peekable;
use std::sync::Arc;

use netlink_blocking::message::messages;
use netlink_packet_core::DecodeError;

use crate::attribute::EncodeError;
use crate::chain::Chain;
use crate::element::Element;
use crate::elements::{self, Elements};
use crate::errno::Errno;
use crate::family::TableId;
use crate::message::Envelope;
use crate::operation::Operation;
use crate::rule::Rule;
use crate::set::Set;
use crate::table::Table;

/// The length of a list of elements from which on the next element begins another message.
const LIST_BYTES: usize = 60_000;
/// The longest attribute.
const LIST_BYTES_MOST: usize = 65_535;

/// One message of a batch.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "socket"),
    expect(dead_code, reason = "only the socket sends messages again")
)]
pub(crate) struct Message {
    /// Where it begins in the bytes of the batch.
    pub(crate) start: usize,
    /// The operation to which it belongs.
    pub(crate) operation: usize,
    /// For elements, where the list begins within the message, and the first element's number in the operation.
    pub(crate) list: Option<(usize, usize)>,
}

/// A transaction. Each operation has a position, counted from 0, by which refusals name it.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: Vec<Message>,
    operations: usize,
    unencodable: Vec<Refusal>,
}

/// An operation, or one of its elements, that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The position of the operation in its batch.
    pub operation: usize,
    /// The number of the element in the operation, counted from 0; `None` if the refusal is not about an element, or
    /// if it is not known which one it is.
    pub element: Option<usize>,
    /// Why it was refused.
    pub errno: Errno,
    /// What was refused: with one element, if that is known.
    pub what: Box<Operation>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.errno)
    }
}

impl Batch {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Whether it has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// The length of its messages in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The operations and elements that do not fit into a message, and are never sent.
    #[must_use]
    pub fn unencodable(&self) -> &[Refusal] {
        &self.unencodable
    }

    /// The operations as the kernel will read them, for logs and tests. One with many elements comes in parts.
    pub fn decoded(&self) -> impl Iterator<Item = Result<Operation, DecodeError>> {
        messages(&self.bytes).map(|message| Operation::decode(&message?))
    }

    /// Adds a table. An existing one is not an error.
    pub fn add_table(&mut self, table: &Table) -> usize {
        self.add(Operation::AddTable(table.clone().as_written()))
    }

    /// Deletes a table with everything in it. A missing one is an error: to delete one that may be missing, add it
    /// first.
    pub fn delete_table(&mut self, table: &TableId) -> usize {
        self.add(Operation::DeleteTable(table.clone()))
    }

    /// Adds a chain. An existing one with the same hook is not an error.
    pub fn add_chain(&mut self, table: &TableId, chain: &Chain) -> usize {
        let chain = chain.clone().as_written();
        self.add(Operation::AddChain(table.clone(), chain))
    }

    /// Deletes a chain without rules, to which no rule leads.
    pub fn delete_chain(&mut self, table: &TableId, chain: &str) -> usize {
        self.add(Operation::DeleteChain(table.clone(), chain.into()))
    }

    /// Adds a set or a map. An existing one with the same properties is not an error.
    pub fn add_set(&mut self, table: &TableId, set: &Set) -> usize {
        let set = set.clone().as_written();
        self.add(Operation::AddSet(table.clone(), set))
    }

    /// Deletes a set that no rule uses, with its elements.
    pub fn delete_set(&mut self, table: &TableId, set: &str) -> usize {
        self.add(Operation::DeleteSet(table.clone(), set.into()))
    }

    /// Deletes all elements of a set.
    pub fn flush_set(&mut self, table: &TableId, set: &str) -> usize {
        self.add(Operation::FlushSet(table.clone(), set.into()))
    }

    /// Adds a rule at the end of its chain, or after the rule of its position.
    pub fn add_rule(&mut self, table: &TableId, rule: &Rule) -> usize {
        let rule = Rule {
            handle: None,
            ..rule.clone()
        };
        self.add(Operation::AddRule(table.clone(), rule))
    }

    /// Deletes the rule with a handle.
    pub fn delete_rule(&mut self, table: &TableId, chain: &str, handle: u64) -> usize {
        self.add(Operation::DeleteRules {
            table: table.clone(),
            chain: Some(chain.into()),
            handle: Some(handle),
        })
    }

    /// Deletes all rules of a chain.
    pub fn flush_chain(&mut self, table: &TableId, chain: &str) -> usize {
        self.add(Operation::DeleteRules {
            table: table.clone(),
            chain: Some(chain.into()),
            handle: None,
        })
    }

    /// Adds elements. An existing one with the same data is not an error, with other data it is. Without elements, this
    /// is a position for nothing.
    pub fn add_elements<E: Borrow<Element>>(
        &mut self,
        table: &TableId,
        set: &str,
        elements: impl IntoIterator<Item = E>,
    ) -> usize {
        self.elements(table, set, elements, Operation::AddElements)
    }

    /// Deletes elements. A missing one is an error. Without elements, this is a position for nothing.
    pub fn delete_elements<E: Borrow<Element>>(
        &mut self,
        table: &TableId,
        set: &str,
        elements: impl IntoIterator<Item = E>,
    ) -> usize {
        self.elements(table, set, elements, Operation::DeleteElements)
    }

    /// Adds any operation.
    pub fn add(&mut self, operation: Operation) -> usize {
        match operation {
            Operation::AddElements(of) => {
                self.elements(&of.table, &of.set, of.elements, Operation::AddElements)
            }
            Operation::DeleteElements(of) => {
                self.elements(&of.table, &of.set, of.elements, Operation::DeleteElements)
            }
            other => {
                let position = self.next_position();
                let start = self.bytes.len();
                let envelope = self.envelope();
                match other.encode(envelope, &mut self.bytes) {
                    Ok(()) => self.messages.push(Message {
                        start,
                        operation: position,
                        list: None,
                    }),
                    Err(_) => self.refuse(position, None, other),
                }
                position
            }
        }
    }

    fn elements<E: Borrow<Element>>(
        &mut self,
        table: &TableId,
        set: &str,
        elements: impl IntoIterator<Item = E>,
        operation: fn(Elements) -> Operation,
    ) -> usize {
        let position = self.next_position();
        let mut elements = elements.into_iter().enumerate().peekable();
        let empty = Elements {
            table: table.clone(),
            set: Arc::from(set),
            elements: Vec::new(),
        };
        let head = operation(empty.clone());
        while let Some((first, _)) = elements.peek() {
            let first = *first;
            let start = self.bytes.len();
            let envelope = self.envelope();
            if head.encode(envelope, &mut self.bytes).is_err() {
                // Each element has the same names, so none of them can be written.
                self.refuse(position, None, head);
                break;
            }
            // The empty list is the last attribute, and grows.
            let list = self.bytes.len().saturating_sub(4);
            if let Some((number, element)) = fill(&mut self.bytes, list, &mut elements) {
                let of = Elements {
                    elements: vec![element],
                    ..empty.clone()
                };
                self.refuse(position, Some(number), operation(of));
            }
            let is_empty = self.bytes.len() <= list.saturating_add(4);
            let list = list.saturating_sub(start);
            if !is_empty && close(&mut self.bytes, start, list).is_ok() {
                self.messages.push(Message {
                    start,
                    operation: position,
                    list: Some((list, first)),
                });
            } else {
                self.bytes.truncate(start);
            }
        }
        position
    }

    fn next_position(&mut self) -> usize {
        let position = self.operations;
        self.operations = self.operations.saturating_add(1);
        position
    }

    /// A sequence number that no other message of the batch has. The socket replaces it; it stays the number of a set.
    fn envelope(&self) -> Envelope {
        let sequence = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        Envelope {
            sequence: sequence.saturating_add(1),
            acknowledge: false,
        }
    }

    fn refuse(&mut self, operation: usize, element: Option<usize>, what: Operation) {
        self.unencodable.push(Refusal {
            operation,
            element,
            errno: Errno::TOO_LONG,
            what: Box::new(what),
        });
    }
}

/// Appends elements to a list that begins at `list`, as many as fit. Returns an element that is longer than a message,
/// with its number.
fn fill<E: Borrow<Element>>(
    bytes: &mut Vec<u8>,
    list: usize,
    elements: &mut Peekable<impl Iterator<Item = (usize, E)>>,
) -> Option<(usize, Element)> {
    let empty = bytes.len();
    while bytes.len().saturating_sub(list) < LIST_BYTES {
        let (number, element) = elements.peek()?;
        let (number, element): (usize, &Element) = (*number, element.borrow());
        let before = bytes.len();
        let put = elements::put_element(bytes, element);
        if put.is_ok() && bytes.len().saturating_sub(list) <= LIST_BYTES_MOST {
            elements.next();
            continue;
        }
        bytes.truncate(before);
        if put.is_ok() && before > empty {
            // It begins the next message.
            return None;
        }
        let refused = element.clone();
        elements.next();
        return Some((number, refused));
    }
    None
}

/// Writes the lengths of a message that begins at `start` and of its list, which are the last parts of `bytes`.
pub(crate) fn close(bytes: &mut [u8], start: usize, list: usize) -> Result<(), EncodeError> {
    let message = bytes.get_mut(start..).unwrap_or_default();
    let whole = message.len();
    let length = whole.saturating_sub(list);
    let too_long = EncodeError {
        kind: elements::ELEMENTS,
        length,
    };
    let short = u16::try_from(length).map_err(|_| too_long.clone())?;
    let message_length = u32::try_from(whole).map_err(|_| too_long.clone())?;
    let header = message.first_chunk_mut::<4>().ok_or(too_long.clone())?;
    *header = message_length.to_ne_bytes();
    let attribute = message.get_mut(list..).and_then(<[u8]>::first_chunk_mut);
    let attribute: &mut [u8; 2] = attribute.ok_or(too_long)?;
    *attribute = short.to_ne_bytes();
    Ok(())
}
