//! Address sets: their names, kinds and entries. The rules are constant; everything that depends on the cluster is in
//! the sets.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use portolan_plan::{Family, Protocol};

use crate::VirtualServerKey;

/// The name of the set that is filled before it replaces another one.
pub const SPARE_SET: &str = "PORTOLAN-SPARE";

/// Sets that are removed if they exist: the remains of a crash, and sets of Portolan's first version.
pub const LEFTOVER_SETS: [&str; 3] = [SPARE_SET, "PORTOLAN-VIPNET", "PORTOLAN-6-VIPNET"];

/// The purpose of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetRole {
    /// Cluster IPs with their ports.
    ClusterIp,
    /// This node's endpoints as destination and source, for connections of a pod to itself.
    Hairpin,
    /// Other frontends of Services with policy Cluster: their clients are masqueraded (S-77).
    Masq,
    /// Frontends with policy Local that drop connections of external clients, because other nodes serve them (S-22).
    NoLocal,
    /// The sources that may connect to guarded frontends (S-86).
    Allow,
    /// Frontends with source ranges.
    Guarded,
    /// The ranges of this node's pods.
    Pods,
    /// All frontends with a backend.
    Frontend,
    /// Frontends without a backend: new connections are rejected, and existing TCP connections end here.
    Refuse,
    /// The addresses of frontends other than node ports: destinations of ICMP errors about their connections.
    Vips,
    /// The service ranges: connections to their unused addresses and ports are rejected.
    Ranges,
    /// Addresses of load balancers at whose unused ports connections from outside are rejected (S-247).
    Balancers,
    /// Health check ports (S-144).
    Health,
    /// Frontends whose scheduler is being changed: new connections are held (S-104).
    Hold,
}

impl SetRole {
    /// All roles, in the order in which their entries are added.
    pub const ALL: [Self; 14] = [
        Self::ClusterIp,
        Self::Hairpin,
        Self::Masq,
        Self::NoLocal,
        Self::Allow,
        Self::Guarded,
        Self::Pods,
        Self::Vips,
        Self::Frontend,
        Self::Refuse,
        Self::Ranges,
        Self::Balancers,
        Self::Health,
        Self::Hold,
    ];

    /// The role as written in the set's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "CLUSTERIP",
            Self::Hairpin => "HAIRPIN",
            Self::Masq => "MASQ",
            Self::NoLocal => "NOLOCAL",
            Self::Allow => "ALLOW",
            Self::Guarded => "GUARDED",
            Self::Pods => "PODS",
            Self::Frontend => "FRONTEND",
            Self::Refuse => "REFUSE",
            Self::Vips => "VIPS",
            Self::Ranges => "RANGES",
            Self::Balancers => "BALANCERS",
            Self::Health => "HEALTH",
            Self::Hold => "HOLD",
        }
    }

    /// The kind of set for the role.
    pub fn kind(self) -> SetKind {
        match self {
            Self::ClusterIp
            | Self::Masq
            | Self::NoLocal
            | Self::Guarded
            | Self::Frontend
            | Self::Refuse
            | Self::Hold => SetKind::HashIpPort,
            Self::Allow => SetKind::HashIpPortNet,
            Self::Hairpin => SetKind::HashIpPortIp,
            Self::Pods | Self::Vips | Self::Ranges | Self::Balancers => SetKind::HashNet,
            Self::Health => SetKind::BitmapPort,
        }
    }

    /// The timeout in seconds after which the kernel removes an entry; `None` if entries do not expire. Connections
    /// must not stay held if the agent dies between hold and release. A scheduler change takes some tens of
    /// milliseconds, and clients without an answer retransmit for much longer.
    pub fn timeout_seconds(self) -> Option<u32> {
        (self == Self::Hold).then_some(5)
    }
}

/// The identity of one of Portolan's sets: its role and family. The displayed form is the kernel's name, for example
/// `PORTOLAN-6-RANGES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId {
    /// Its purpose.
    pub role: SetRole,
    /// The family of its entries.
    pub family: Family,
}

impl SetId {
    /// All sets.
    pub fn all() -> impl Iterator<Item = Self> {
        let families = |role| {
            Family::BOTH
                .into_iter()
                .map(move |family| Self { role, family })
        };
        SetRole::ALL.into_iter().flat_map(families)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let infix = match self.family {
            Family::Ipv4 => "",
            Family::Ipv6 => "6-",
        };
        write!(f, "PORTOLAN-{infix}{}", self.role.as_str())
    }
}

/// The name does not belong to one of Portolan's sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSetName;

impl FromStr for SetId {
    type Err = UnknownSetName;

    fn from_str(name: &str) -> Result<Self, UnknownSetName> {
        Self::all()
            .find(|id| id.to_string() == name)
            .ok_or(UnknownSetName)
    }
}

/// The set types of the kernel that Portolan uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetKind {
    /// Addresses with protocol and port.
    HashIpPort,
    /// Address ranges.
    HashNet,
    /// Addresses with protocol and port, and a second address.
    HashIpPortIp,
    /// Addresses with protocol and port, and a range of second addresses.
    HashIpPortNet,
    /// All ports.
    BitmapPort,
}

impl SetKind {
    /// The capacity of a bitmap of all ports.
    pub const PORTS: u32 = 65_536;

    /// The type name, as in `ipset`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HashIpPort => "hash:ip,port",
            Self::HashNet => "hash:net",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashIpPortNet => "hash:ip,port,net",
            Self::BitmapPort => "bitmap:port",
        }
    }
}

/// A set entry. The displayed form is that of `ipset save`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetEntry {
    /// An entry of a `hash:ip,port`.
    AddressPort {
        /// The address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
    },
    /// An entry of a `hash:net`.
    Net(IpNet),
    /// An entry of a `hash:ip,port,ip`.
    AddressPortSource {
        /// The destination address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The destination port.
        port: u16,
        /// The source address.
        source: IpAddr,
    },
    /// An entry of a `hash:ip,port,net`.
    AddressPortNet {
        /// The destination address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The destination port.
        port: u16,
        /// The range of source addresses, never /0.
        net: IpNet,
    },
    /// An entry of a `bitmap:port`.
    Port(u16),
}

impl SetEntry {
    /// The `hash:ip,port` entry of a virtual server.
    pub fn of(server: VirtualServerKey) -> Self {
        let VirtualServerKey {
            address,
            port,
            protocol,
        } = server;
        Self::AddressPort {
            address,
            protocol,
            port,
        }
    }

    /// The virtual server of a `hash:ip,port` entry: the reverse of [`SetEntry::of`].
    pub fn server(&self) -> Option<VirtualServerKey> {
        match *self {
            Self::AddressPort {
                address,
                protocol,
                port,
            } => Some(VirtualServerKey {
                address,
                port,
                protocol,
            }),
            _ => None,
        }
    }

    /// The family of its address; `None` for a port.
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::AddressPort { address, .. }
            | Self::AddressPortSource { address, .. }
            | Self::AddressPortNet { address, .. } => Some(Family::of(*address)),
            Self::Net(net) => Some(Family::of(net.addr())),
            Self::Port(_) => None,
        }
    }
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

impl fmt::Display for SetEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressPort {
                address,
                protocol,
                port,
            } => {
                write!(f, "{address},{}:{port}", word(*protocol))
            }
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::AddressPortSource {
                address,
                protocol,
                port,
                source,
            } => {
                write!(f, "{address},{}:{port},{source}", word(*protocol))
            }
            Self::AddressPortNet {
                address,
                protocol,
                port,
                net,
            } => {
                write!(
                    f,
                    "{address},{}:{port},{}",
                    word(*protocol),
                    Self::Net(*net)
                )
            }
            Self::Port(port) => port.fmt(f),
        }
    }
}

/// The desired state of a set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredSet {
    /// The minimum capacity in entries.
    pub max_elements: u32,
    /// Its entries.
    pub entries: BTreeSet<SetEntry>,
}
