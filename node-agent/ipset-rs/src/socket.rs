//! The blocking socket: create, destroy, swap, list, and batches of entries.

use std::collections::HashMap;

use netlink_blocking::{Channel, Outgoing, Received};
use netlink_packet_core::{DecodeError, DefaultNla, NLM_F_DUMP_INTR};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::PROTOCOL_VERSION;
use crate::entry::Entry;
use crate::error::Error;
use crate::fill::{Direction, Fill};
use crate::kind::{Family, SetName, SetType};
use crate::message::{Envelope, error_code, messages};
use crate::options::{CreateOptions, Detail};
use crate::reply::{Header, Reply, SetPart};
use crate::request::{Request, Revisions};

const DUMP_ATTEMPTS: u32 = 5;
const EINVAL: i32 = 22;
const EPROTONOSUPPORT: i32 = 93;

/// A set in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Set {
    /// Its properties.
    pub header: Header,
    /// Its entries in the kernel's order.
    pub entries: Vec<Entry>,
    /// Entries that this crate cannot represent (another set type, an exception), as received.
    pub other_entries: Vec<DefaultNla>,
}

/// A blocking socket to the IP sets of one network namespace.
pub struct Socket {
    pub(crate) channel: Channel,
    protocol: u8,
    revisions: HashMap<(SetType, Family), Revisions>,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread and negotiates a protocol version. If the socket
    /// fails later ([`Error::is_of_socket`]), the next call opens another one, in the namespace of the thread that
    /// makes that call.
    ///
    /// # Errors
    /// [`Error::NoIpset`] if the kernel has no IP sets; [`Error::Kernel`] with `is_not_permitted` without
    /// `CAP_NET_ADMIN`; [`Error::Socket`] if the socket cannot be opened.
    pub fn open() -> Result<Self, Error> {
        let channel = Channel::open(NETLINK_NETFILTER).map_err(|error| match error.errno() {
            Some(EPROTONOSUPPORT) => Error::NoIpset,
            _ => error.into(),
        })?;
        Self::over(channel)
    }

    pub(crate) fn over(channel: Channel) -> Result<Self, Error> {
        let mut socket = Self {
            channel,
            protocol: PROTOCOL_VERSION,
            revisions: HashMap::new(),
        };
        let replies = socket
            .ask(&Request::Protocol)
            .map_err(|error| match error.errno() {
                // nfnetlink's answer for a subsystem that it does not have.
                Some(EINVAL) => Error::NoIpset,
                _ => error,
            })?;
        let supported = replies
            .iter()
            .find_map(|reply| {
                if let Reply::Protocol(range) = reply {
                    Some(*range)
                } else {
                    None
                }
            })
            .ok_or_else(|| DecodeError::from("the answer contains no version"))?;
        if supported.min > PROTOCOL_VERSION {
            return Err(Error::ProtocolTooNew { min: supported.min });
        }
        socket.protocol = supported.max.min(PROTOCOL_VERSION);
        Ok(socket)
    }

    /// Creates a set, with a revision of its type that old ipset programs also know. For a type without a family,
    /// `family` makes no difference.
    ///
    /// # Errors
    /// `is_exists` if the name is in use, with any type; [`Error::Name`] for an invalid name; `is_unsupported` if the
    /// kernel does not have the type.
    pub fn create(
        &mut self,
        name: &str,
        set_type: SetType,
        family: Family,
        options: &CreateOptions,
    ) -> Result<(), Error> {
        let name = SetName::new(name)?;
        let revision = self.revisions(set_type, family)?.choose(set_type);
        let (family, options) = (set_type.has_family().then_some(family), *options);
        self.ask(&Request::Create {
            name,
            set_type,
            revision,
            family,
            options,
        })
        .map(drop)
    }

    /// The revisions of a type that the kernel supports. The kernel is queried once for each type and family.
    ///
    /// # Errors
    /// `is_unsupported` if the kernel does not have the type.
    pub fn revisions(&mut self, set_type: SetType, family: Family) -> Result<Revisions, Error> {
        if let Some(known) = self.revisions.get(&(set_type, family)) {
            return Ok(*known);
        }
        let asked = set_type.has_family().then_some(family);
        let replies = self.ask(&Request::Type {
            set_type,
            family: asked,
        })?;
        let range = replies
            .iter()
            .find_map(|reply| {
                if let Reply::Type(range) = reply {
                    Some(*range)
                } else {
                    None
                }
            })
            .ok_or_else(|| DecodeError::from("the answer contains no revision"))?;
        self.revisions.insert((set_type, family), range);
        Ok(range)
    }

    /// Destroys a set.
    ///
    /// # Errors
    /// `is_not_found` if it does not exist; `is_in_use` if a rule or another set uses it.
    pub fn destroy(&mut self, name: &str) -> Result<(), Error> {
        self.ask(&Request::Destroy(SetName::new(name)?)).map(drop)
    }

    /// Exchanges the names of two sets of the same type atomically: rules then use the other set's entries.
    ///
    /// # Errors
    /// `is_not_found` if one does not exist; [`Error::Kernel`] if their types differ.
    pub fn swap(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let request = Request::Swap(SetName::new(from)?, SetName::new(to)?);
        self.ask(&request).map(drop)
    }

    /// The names of all sets.
    ///
    /// # Errors
    /// The kernel refused the request, the socket failed, or the list changed each time it was read.
    pub fn names(&mut self) -> Result<Vec<String>, Error> {
        let parts = self.ask_for_sets(&Request::List {
            name: None,
            detail: Detail::Names,
        })?;
        Ok(parts.into_iter().map(|part| part.name).collect())
    }

    /// The properties of all sets, including those of other programs and of unknown types.
    ///
    /// # Errors
    /// The same as [`Socket::names`].
    pub fn headers(&mut self) -> Result<Vec<Header>, Error> {
        let parts = self.ask_for_sets(&Request::List {
            name: None,
            detail: Detail::Headers,
        })?;
        Ok(parts.into_iter().filter_map(|part| part.header).collect())
    }

    /// A set with its entries; `None` if it does not exist.
    ///
    /// # Errors
    /// The same as [`Socket::names`].
    pub fn list(&mut self, name: &str) -> Result<Option<Set>, Error> {
        let name = SetName::new(name)?;
        let request = Request::List {
            name: Some(name),
            detail: Detail::Entries,
        };
        let parts = match self.ask_for_sets(&request) {
            Ok(parts) => parts,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut set = Set::default();
        for mut part in parts {
            if let Some(header) = part.header {
                set.header = header;
            }
            set.entries.append(&mut part.entries);
            set.other_entries.append(&mut part.other_entries);
        }
        Ok(Some(set))
    }

    /// Adds entries, hundreds per message, and returns one result for each. Entries that already exist succeed, and a
    /// failed entry does not stop the others.
    pub fn add(&mut self, name: &str, entries: &[Entry]) -> Vec<Result<(), Error>> {
        self.fill(name, Direction::Add, entries)
    }

    /// Deletes entries in the same way as [`Socket::add`]; missing entries succeed.
    pub fn delete(&mut self, name: &str, entries: &[Entry]) -> Vec<Result<(), Error>> {
        self.fill(name, Direction::Delete, entries)
    }

    fn fill(
        &mut self,
        name: &str,
        direction: Direction,
        entries: &[Entry],
    ) -> Vec<Result<(), Error>> {
        let name = match SetName::new(name) {
            Ok(name) => name,
            Err(error) => return entries.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let mut fill = Fill::new(&name, direction, entries);
        loop {
            let requests = fill.next_send();
            if requests.is_empty() {
                return fill.finish();
            }
            let exchanged = self.exchange(&requests);
            match self.channel.settle(exchanged, Error::is_of_socket) {
                Ok(answers) => fill.answered(&answers),
                Err(error) => fill.give_up(&error),
            }
        }
    }

    pub(crate) fn envelope(&mut self, acknowledge: bool) -> Envelope {
        let sequence = self.channel.next_sequence();
        Envelope {
            sequence,
            protocol: self.protocol,
            acknowledge,
        }
    }

    fn ask_for_sets(&mut self, request: &Request) -> Result<Vec<SetPart>, Error> {
        let replies = self.ask(request)?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| {
                if let Reply::Set(part) = reply {
                    Some(part)
                } else {
                    None
                }
            })
            .collect())
    }

    /// Sends a request and collects the answers. Repeats it if a list changed meanwhile or a part of the answer was
    /// lost.
    fn ask(&mut self, request: &Request) -> Result<Vec<Reply>, Error> {
        let mut attempts = 0_u32;
        loop {
            let asked = self.ask_once(request);
            let error = match self.channel.settle(asked, Error::is_of_socket) {
                Ok(Some(replies)) => return Ok(replies),
                Ok(None) => Error::Interrupted {
                    request: Box::new(request.clone()),
                    attempts: DUMP_ATTEMPTS,
                },
                Err(error @ Error::Socket(netlink_blocking::Error::AnswerLost))
                    if !request.is_write() =>
                {
                    error
                }
                Err(error) => return Err(error),
            };
            attempts = attempts.saturating_add(1);
            if attempts >= DUMP_ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// Sends a request once; `None` if the list changed while it was read.
    fn ask_once(&mut self, request: &Request) -> Result<Option<Vec<Reply>>, Error> {
        let boxed = || Box::new(request.clone());
        let envelope = self.envelope(true);
        let mut bytes = Vec::new();
        request
            .encode(envelope, &mut bytes)
            .map_err(|source| Error::Encode {
                request: boxed(),
                source,
            })?;
        self.channel.send(&Outgoing {
            bytes: &bytes,
            messages: 1,
            writes: request.is_write(),
        })?;
        let mut replies = Vec::new();
        let mut interrupted = false;
        loop {
            let Received::Datagram(datagram) = self.channel.receive(true)? else {
                return Err(Error::Socket(netlink_blocking::Error::AnswerLost));
            };
            for message in messages(datagram) {
                let message = message?;
                // Answers to an earlier, abandoned request are skipped.
                if message.header.sequence_number != envelope.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match error_code(&message) {
                    Some(0) if interrupted => return Ok(None),
                    Some(0) => return Ok(Some(replies)),
                    Some(errno) => {
                        return Err(Error::Kernel {
                            errno,
                            request: boxed(),
                        });
                    }
                    None => replies.push(Reply::decode(&message)?),
                }
            }
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}
