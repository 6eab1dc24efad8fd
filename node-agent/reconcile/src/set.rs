//! Address sets: their names, kinds and entries. The rules are constant; all that follows the
//! cluster is in here.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use portolan_plan::{Family, Protocol};

use crate::VirtualServerKey;

/// The name under which a larger set is filled before it takes the place of another.
pub const SPARE_SET: &str = "PORTOLAN-SPARE";

/// Sets that are removed where they are found: what a crash left, and those of Portolan's first version.
pub const LEFTOVER_SETS: [&str; 3] = [SPARE_SET, "PORTOLAN-VIPNET", "PORTOLAN-6-VIPNET"];

/// What a set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetRole {
    /// Cluster IPs with their ports.
    ClusterIp,
    /// This node's endpoints as they reach themselves.
    Hairpin,
    /// Other frontends of Services with policy Cluster: their clients are masqueraded (S-77).
    Masq,
    /// Frontends whose policy Local leaves outsiders to other nodes (S-22).
    NoLocal,
    /// Who may connect to guarded frontends (S-86).
    Allow,
    /// Frontends that are for some sources only.
    Guarded,
    /// The ranges of this node's pods.
    Pods,
    /// Every address and port on which a Service answers, that is, has a backend.
    Frontend,
    /// Frontends without a backend: new connections are refused, and TCP connections that stand end here.
    Refuse,
    /// The addresses of frontends other than node ports: ICMP errors about their connections come here.
    Vips,
    /// The service ranges: connections to their unused addresses and ports are refused.
    Ranges,
    /// Ports on which health checks are answered (S-144).
    Health,
    /// Frontends whose scheduler is being changed: new connections wait (S-104).
    Hold,
}

impl SetRole {
    /// All roles, in the order in which their entries are added.
    pub const ALL: [Self; 13] = [
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
        Self::Health,
        Self::Hold,
    ];

    /// The role as it stands in the set's name.
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
            Self::Health => "HEALTH",
            Self::Hold => "HOLD",
        }
    }

    /// The kind of set that serves the role.
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
            Self::Pods | Self::Vips | Self::Ranges => SetKind::HashNet,
            Self::Health => SetKind::BitmapPort,
        }
    }

    /// Seconds after which the kernel removes an entry by itself; `None` where entries stay. What is
    /// held must not stay held when the agent dies between hold and release: a change of a scheduler
    /// takes some tens of milliseconds, and clients that hear nothing send again for much longer.
    pub fn timeout_seconds(self) -> Option<u32> {
        (self == Self::Hold).then_some(5)
    }
}

/// A set of ours: its role and family. Displayed as the kernel knows it, `PORTOLAN-6-RANGES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId {
    /// What it is for.
    pub role: SetRole,
    /// The family of its entries.
    pub family: Family,
}

impl SetId {
    /// Every set.
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

/// A name that is none of our sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOurs;

impl FromStr for SetId {
    type Err = NotOurs;

    fn from_str(name: &str) -> Result<Self, NotOurs> {
        Self::all().find(|id| id.to_string() == name).ok_or(NotOurs)
    }
}

/// The kernel's set types that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetKind {
    /// Addresses with protocol and port.
    HashIpPort,
    /// Ranges.
    HashNet,
    /// Addresses with protocol and port, and a second address.
    HashIpPortIp,
    /// Addresses with protocol and port, and a range of second addresses.
    HashIpPortNet,
    /// Ports, all of them.
    BitmapPort,
}

impl SetKind {
    /// How many entries a bitmap of all ports has room for.
    pub const PORTS: u32 = 65_536;

    /// The kind as `ipset` spells it.
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

/// An entry, displayed as `ipset save` spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetEntry {
    /// Of a `hash:ip,port`.
    AddressPort {
        /// The address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
    },
    /// Of a `hash:net`.
    Net(IpNet),
    /// Of a `hash:ip,port,ip`.
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
    /// Of a `hash:ip,port,net`.
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
    /// Of a `bitmap:port`.
    Port(u16),
}

impl SetEntry {
    /// A virtual server as it stands in a `hash:ip,port`.
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
