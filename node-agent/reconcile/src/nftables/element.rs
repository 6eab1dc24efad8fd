//! Elements of the sets and maps: as values, and as the kernel has them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use nft_rs::{Element, Key, KeyReader};
use portolan_plan::{Family, LocalEndpoint, Protocol};
use smallvec::{SmallVec, smallvec};

use super::set::SetName;
use crate::{RealServerKey, VirtualServerKey};

/// An element of a set or map of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableElement {
    /// A backend in a slot of a frontend.
    Slot {
        /// The frontend.
        frontend: VirtualServerKey,
        /// The slot.
        slot: u32,
        /// The backend.
        backend: RealServerKey,
    },
    /// A frontend in a set of frontends.
    Member {
        /// The set.
        set: SetName,
        /// The frontend.
        frontend: VirtualServerKey,
    },
    /// A range that may connect to a guarded frontend.
    Allow {
        /// The frontend.
        frontend: VirtualServerKey,
        /// The range.
        range: IpNet,
    },
    /// An endpoint of this node that connects to itself.
    Hairpin(LocalEndpoint),
    /// A range of a set of ranges.
    Range {
        /// The set: [`SetName::Pods`], [`SetName::Ranges`] or [`SetName::Balancers`].
        set: SetName,
        /// The range.
        range: IpNet,
    },
    /// An element that Portolan never writes.
    Foreign {
        /// The family of the table.
        family: Family,
        /// The set.
        set: SetName,
        /// The element as it was read.
        element: Arc<Element>,
    },
}

/// A range of addresses has two elements: its start and its end.
pub(super) type Elements = SmallVec<[Element; 2]>;

impl TableElement {
    /// The family of its table.
    pub fn family(&self) -> Family {
        match self {
            Self::Slot { frontend, .. }
            | Self::Member { frontend, .. }
            | Self::Allow { frontend, .. } => Family::of(frontend.address),
            Self::Hairpin(endpoint) => Family::of(endpoint.address),
            Self::Range { range, .. } => Family::of(range.addr()),
            Self::Foreign { family, .. } => *family,
        }
    }

    /// Its set.
    pub fn set(&self) -> SetName {
        match self {
            Self::Slot { .. } => SetName::Endpoint,
            Self::Allow { .. } => SetName::Allow,
            Self::Hairpin(_) => SetName::Hairpin,
            Self::Member { set, .. } | Self::Range { set, .. } | Self::Foreign { set, .. } => *set,
        }
    }

    /// The frontend to which it belongs; `None` if it belongs to none.
    pub fn frontend(&self) -> Option<&VirtualServerKey> {
        match self {
            Self::Slot { frontend, .. }
            | Self::Member { frontend, .. }
            | Self::Allow { frontend, .. } => Some(frontend),
            Self::Hairpin(_) | Self::Range { .. } | Self::Foreign { .. } => None,
        }
    }

    /// The elements for the kernel.
    pub(super) fn encode(&self) -> Elements {
        let element = match self {
            Self::Slot {
                frontend,
                slot,
                backend,
            } => Element::with_data(key(frontend).mark(*slot), data(backend)),
            Self::Member { frontend, .. } => Element::new(key(frontend)),
            Self::Allow { frontend, range } => Element::range(
                key(frontend).address(range.network()),
                key(frontend).address(range.broadcast()),
            ),
            Self::Hairpin(endpoint) => {
                let key = Key::new().address(endpoint.address);
                let key = key.address(endpoint.address);
                let key = key.protocol(number(endpoint.protocol));
                Element::new(key.port(endpoint.port))
            }
            Self::Range { range, .. } => return interval(range),
            Self::Foreign { element, .. } => Element::clone(element),
        };
        smallvec![element]
    }

    /// The element of a set in the kernel, other than one that rules add or of a set of ranges, whose elements
    /// come in pairs.
    pub(super) fn decode(family: Family, set: SetName, element: &Element) -> Self {
        let found = match set {
            SetName::Endpoint => slot(family, element),
            SetName::Allow => allow(family, element),
            SetName::Hairpin => hairpin(family, element),
            _ if set.is_of_frontends() => member(family, set, element),
            _ => None,
        };
        // A form that would not be written in the same way could not be deleted either.
        let same = |found: &Self| found.encode().as_slice() == [element.clone()];
        found.filter(same).unwrap_or_else(|| Self::Foreign {
            family,
            set,
            element: Arc::new(element.clone()),
        })
    }
}

/// For people: `endpoint TCP 10.96.0.1:443 slot 3 10.0.0.7:6443`.
impl fmt::Display for TableElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.set())?;
        match self {
            Self::Slot {
                frontend,
                slot,
                backend,
            } => write!(f, "{frontend} slot {slot} {backend}"),
            Self::Member { frontend, .. } => frontend.fmt(f),
            Self::Allow { frontend, range } => write!(f, "{frontend} from {range}"),
            Self::Hairpin(LocalEndpoint {
                address,
                protocol,
                port,
            }) => VirtualServerKey {
                address: *address,
                port: *port,
                protocol: *protocol,
            }
            .fmt(f),
            Self::Range { range, .. } => range.fmt(f),
            Self::Foreign { element, .. } => element.fmt(f),
        }
    }
}

/// The key of a frontend, to which components can be added.
pub(super) fn key(frontend: &VirtualServerKey) -> Key {
    let key = Key::new().address(frontend.address);
    key.protocol(number(frontend.protocol)).port(frontend.port)
}

fn data(backend: &RealServerKey) -> Key {
    Key::new().address(backend.address).port(backend.port)
}

fn interval(range: &IpNet) -> Elements {
    let octets = |address| nft_rs::Bytes::address(address);
    let (first, last) = (octets(range.network()), octets(range.broadcast()));
    Element::interval(&first, &last).into()
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    let mut all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
    all.find(|protocol| self::number(*protocol) == number)
}

/// Reads an address of a family.
pub(super) fn address(family: Family, reader: &mut KeyReader<'_>) -> Option<IpAddr> {
    Some(match family {
        Family::Ipv4 => reader.ipv4()?.into(),
        Family::Ipv6 => reader.ipv6()?.into(),
    })
}

/// Reads the key of a frontend.
pub(super) fn frontend(family: Family, reader: &mut KeyReader<'_>) -> Option<VirtualServerKey> {
    let address = address(family, reader)?;
    let protocol = protocol(reader.protocol()?)?;
    let port = reader.port()?;
    Some(VirtualServerKey {
        address,
        port,
        protocol,
    })
}

/// Reads a backend from the data of a map.
pub(super) fn backend(family: Family, element: &Element) -> Option<RealServerKey> {
    let mut reader = KeyReader::new(element.data.as_ref()?);
    let address = address(family, &mut reader)?;
    let port = reader.port()?;
    Some(RealServerKey { address, port })
}

fn slot(family: Family, element: &Element) -> Option<TableElement> {
    let mut reader = KeyReader::new(&element.key);
    Some(TableElement::Slot {
        frontend: frontend(family, &mut reader)?,
        slot: reader.mark()?,
        backend: backend(family, element)?,
    })
}

fn member(family: Family, set: SetName, element: &Element) -> Option<TableElement> {
    let frontend = frontend(family, &mut KeyReader::new(&element.key))?;
    Some(TableElement::Member { set, frontend })
}

fn allow(family: Family, element: &Element) -> Option<TableElement> {
    let mut first = KeyReader::new(&element.key);
    let mut last = KeyReader::new(element.key_end.as_ref()?);
    let (frontend, end) = (frontend(family, &mut first)?, frontend(family, &mut last)?);
    let range = range(address(family, &mut first)?, address(family, &mut last)?)?;
    (frontend == end).then_some(TableElement::Allow { frontend, range })
}

fn hairpin(family: Family, element: &Element) -> Option<TableElement> {
    let mut reader = KeyReader::new(&element.key);
    // The other address is equal, or the element is not written like this.
    address(family, &mut reader)?;
    let VirtualServerKey {
        address,
        port,
        protocol,
    } = frontend(family, &mut reader)?;
    Some(TableElement::Hairpin(LocalEndpoint {
        address,
        protocol,
        port,
    }))
}

/// The range from one address to another; `None` if they are not the ends of one.
pub(super) fn range(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let whole: u8 = if first.is_ipv4() { 32 } else { 128 };
    let nets = (0..=whole).filter_map(|length| IpNet::new(first, length).ok());
    let mut nets = nets.filter(|net| net.network() == first && net.broadcast() == last);
    nets.next()
}
