//! Adds and deletes many entries: distributes them over messages, and determines which ones failed.
//!
//! Invariant: an entry gets exactly one result. If entry *k* of a message failed, the entries before *k* were applied
//! and those after it were not, so the latter are sent again.

use std::collections::VecDeque;
use std::ops::Range;

use crate::entry::Entry;
use crate::error::{Error, WRONG_PROTOCOL};
use crate::kind::SetName;
use crate::request::Request;

/// 200 of the largest entries are 15 kB.
const ENTRIES_PER_MESSAGE: usize = 200;

/// The kernel returns the message with an error, so all messages of a send must fit into the receive buffer.
const MESSAGES_PER_SEND: usize = 4;

/// The number of messages with a single entry in one send.
const SINGLES_PER_SEND: usize = 64;

/// The kernel's answer to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: i32,
    /// The number of the failed entry within the message, starting at 1.
    pub(crate) line: Option<u32>,
}

/// Add or delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Add,
    Delete,
}

impl Direction {
    pub(crate) fn request(self, name: &SetName, entries: &[Entry]) -> Request {
        match self {
            Self::Add => Request::Add(name.clone(), entries.to_vec()),
            Self::Delete => Request::Delete(name.clone(), entries.to_vec()),
        }
    }
}

/// A message to send: the range of entries in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    entries: Range<usize>,
    /// Whether it is the rest after a failed entry. If this fails too, its rest is sent one by one, so that a set
    /// that refuses everything costs one message per entry and not the square of that.
    rest: bool,
}

/// The remaining work and the results so far.
pub(crate) struct Fill<'a> {
    name: &'a SetName,
    direction: Direction,
    entries: &'a [Entry],
    pieces: VecDeque<Piece>,
    results: Vec<Result<(), Error>>,
}

impl<'a> Fill<'a> {
    pub(crate) fn new(name: &'a SetName, direction: Direction, entries: &'a [Entry]) -> Self {
        let mut pieces = VecDeque::new();
        let mut start = 0;
        for chunk in entries.chunks(ENTRIES_PER_MESSAGE) {
            let end = chunk.len().saturating_add(start);
            pieces.push_back(Piece {
                entries: start..end,
                rest: false,
            });
            start = end;
        }
        let results = entries.iter().map(|_| Ok(())).collect();
        Self {
            name,
            direction,
            entries,
            pieces,
            results,
        }
    }

    /// The messages of the next send; empty if everything is done.
    pub(crate) fn next_send(&self) -> Vec<Request> {
        let mut size = 0_usize;
        let budget = MESSAGES_PER_SEND.saturating_mul(ENTRIES_PER_MESSAGE);
        self.pieces
            .iter()
            .take(SINGLES_PER_SEND)
            .take_while(|piece| {
                size = size.saturating_add(piece.entries.len());
                size <= budget
            })
            .map(|piece| {
                let entries = self.entries.get(piece.entries.clone()).unwrap_or_default();
                self.direction.request(self.name, entries)
            })
            .collect()
    }

    /// Takes the kernel's answers to the messages of [`Fill::next_send`], in their order.
    pub(crate) fn answered(&mut self, answers: &[Result<Option<Failure>, Error>]) {
        for answer in answers {
            let Some(piece) = self.pieces.pop_front() else {
                return;
            };
            match answer {
                Ok(None) => {}
                Ok(Some(failure)) => self.failed(&piece, *failure),
                Err(error) => self.fail_all(piece.entries, |_| error.clone()),
            }
        }
    }

    /// Sets the same error for all remaining entries.
    pub(crate) fn give_up(&mut self, error: &Error) {
        while let Some(piece) = self.pieces.pop_front() {
            self.fail_all(piece.entries, |_| error.clone());
        }
    }

    pub(crate) fn finish(self) -> Vec<Result<(), Error>> {
        self.results
    }

    fn failed(&mut self, piece: &Piece, failure: Failure) {
        let Range { start, end } = piece.entries;
        let line = failure.line.and_then(|line| usize::try_from(line).ok());
        // Line numbers start at 1, so line k is the entry before `start + k`.
        let behind = line
            .map(|line| start.saturating_add(line))
            .filter(|index| *index <= end);
        let errno = failure.errno;
        match behind {
            Some(behind) => {
                self.fail_one(behind.saturating_sub(1), errno);
                self.again(behind..end, piece.rest);
            }
            // The kernel rejected the form of a message without naming the entry.
            None if errno == WRONG_PROTOCOL && piece.entries.len() > 1 => {
                self.again(start..end, true);
            }
            None => {
                for index in start..end {
                    self.fail_one(index, errno);
                }
            }
        }
    }

    fn again(&mut self, entries: Range<usize>, one_by_one: bool) {
        if entries.is_empty() {
            return;
        }
        if one_by_one {
            for index in entries {
                let entries = index..index.saturating_add(1);
                self.pieces.push_back(Piece {
                    entries,
                    rest: true,
                });
            }
        } else {
            self.pieces.push_back(Piece {
                entries,
                rest: true,
            });
        }
    }

    fn fail_one(&mut self, index: usize, errno: i32) {
        if let (Some(entry), Some(result)) = (self.entries.get(index), self.results.get_mut(index))
        {
            let request = Box::new(self.direction.request(self.name, &[*entry]));
            *result = Err(Error::Kernel { errno, request });
        }
    }

    fn fail_all(&mut self, entries: Range<usize>, error: impl Fn(usize) -> Error) {
        for index in entries {
            if let Some(result) = self.results.get_mut(index) {
                *result = Err(error(index));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(port: u16) -> Entry {
        format!("10.0.0.1,tcp:{port}").parse().unwrap()
    }

    /// A kernel that refuses the entries of `bad`, and names the line unless `mute`.
    struct Kernel {
        bad: BTreeSet<Entry>,
        mute: bool,
        set: BTreeSet<Entry>,
        messages: usize,
    }

    impl Kernel {
        fn handle(&mut self, request: &Request) -> Option<Failure> {
            let Request::Add(_, entries) = request else {
                panic!("{request}")
            };
            self.messages += 1;
            if self.mute && entries.iter().any(|entry| self.bad.contains(entry)) {
                // In this model, a message that is rejected for its form applies no entries.
                return Some(Failure {
                    errno: WRONG_PROTOCOL,
                    line: None,
                });
            }
            for (line, entry) in (1..).zip(entries) {
                if self.bad.contains(entry) {
                    return Some(Failure {
                        errno: 4104,
                        line: Some(line),
                    });
                }
                self.set.insert(*entry);
            }
            None
        }
    }

    proptest! {
        #[test]
        fn every_entry_gets_its_own_result(
            count in 0_u16..2000,
            bad in proptest::collection::btree_set(0_u16..2000, 0..300),
            mute in any::<bool>(),
        ) {
            let entries: Vec<Entry> = (0..count).map(entry).collect();
            let bad: BTreeSet<Entry> = bad.into_iter().map(entry).collect();
            let mut kernel = Kernel { bad, mute, set: BTreeSet::new(), messages: 0 };
            let name = SetName::new("a").unwrap();
            let mut fill = Fill::new(&name, Direction::Add, &entries);
            loop {
                let requests = fill.next_send();
                if requests.is_empty() {
                    break;
                }
                prop_assert!(requests.len() <= SINGLES_PER_SEND);
                let answers: Vec<_> = requests.iter().map(|r| Ok(kernel.handle(r))).collect();
                fill.answered(&answers);
            }
            let results = fill.finish();
            prop_assert_eq!(results.len(), entries.len());
            for (entry, result) in entries.iter().zip(&results) {
                prop_assert_eq!(result.is_err(), kernel.bad.contains(entry));
                prop_assert_eq!(result.is_ok(), kernel.set.contains(entry));
            }
            // Never more than one message per entry plus two rounds of full messages.
            prop_assert!(kernel.messages <= entries.len() + 2 * entries.len().div_ceil(200));
        }
    }

    #[test]
    fn a_broken_socket_fails_what_is_left() {
        let entries: Vec<Entry> = (0..1000).map(entry).collect();
        let name = SetName::new("a").unwrap();
        let mut fill = Fill::new(&name, Direction::Add, &entries);
        assert_eq!(fill.next_send().len(), MESSAGES_PER_SEND);
        fill.answered(&[Ok(None), Ok(None)]);
        fill.give_up(&Error::Socket(netlink_blocking::Error::AnswerLost));
        assert!(fill.next_send().is_empty());
        let results = fill.finish();
        assert!(results[..400].iter().all(Result::is_ok));
        assert!(
            results[400..]
                .iter()
                .all(|r| matches!(r, Err(Error::Socket(netlink_blocking::Error::AnswerLost))))
        );
    }
}
