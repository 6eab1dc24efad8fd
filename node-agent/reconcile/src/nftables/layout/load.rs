//! Parts of rules: what is loaded into registers, and which packets match.

use nft_rs::{Bytes, ConntrackKey, Expression, FibFlags, FibResult, MetaKey, Register, Rule};
use portolan_plan::{Family, LocalDetection};

use crate::nftables::set::SetName;

/// The number of TCP.
const TCP: u8 = 6;

/// Loads the parts of packets of one family.
pub(super) struct Loader {
    pub(super) family: nft_rs::Family,
    /// The number of registers of an address.
    address: u32,
}

/// The rule of a chain with these steps.
pub(super) fn rule<const N: usize>(
    chain: &str,
    comment: &str,
    steps: [Vec<Expression>; N],
) -> Rule {
    Rule::new(chain, steps.into_iter().flatten()).with_comment(comment)
}

/// A single step.
pub(super) fn step(expression: Expression) -> Vec<Expression> {
    vec![expression]
}

/// Ends the chain.
pub(super) fn leave() -> Vec<Expression> {
    step(Expression::leave())
}

impl Loader {
    pub(super) fn new(family: Family) -> Self {
        let address = match family {
            Family::Ipv4 => 1,
            Family::Ipv6 => 4,
        };
        Self {
            family: crate::nftables::nft_family(family),
            address,
        }
    }

    /// The length of an address in bytes.
    pub(super) fn address_bytes(&self) -> u32 {
        self.address.saturating_mul(4)
    }

    /// The register after these numbers of addresses and shorter values.
    pub(super) fn register(&self, addresses: u32, others: u32) -> Register {
        let of_addresses = self.address.saturating_mul(addresses);
        Register::R0.after(of_addresses.saturating_add(others))
    }

    /// Loads the packet's destination as the key of a frontend.
    pub(super) fn destination(&self) -> Vec<Expression> {
        vec![
            Expression::destination_address(self.family, Register::R0),
            Expression::protocol(self.register(1, 0)),
            Expression::destination_port(self.register(1, 1)),
        ]
    }

    /// Loads the destination that the connection had before any translation as the key of a frontend.
    pub(super) fn original_destination(&self) -> Vec<Expression> {
        let key = match self.family {
            nft_rs::Family::Ipv6 => ConntrackKey::DestinationIpv6,
            _ => ConntrackKey::DestinationIpv4,
        };
        vec![
            Expression::conntrack_original(key, Register::R0),
            Expression::protocol(self.register(1, 0)),
            Expression::conntrack_original(ConntrackKey::DestinationPort, self.register(1, 1)),
        ]
    }

    /// Loads the source that the connection had before any translation.
    pub(super) fn original_source(&self, register: Register) -> Expression {
        let key = match self.family {
            nft_rs::Family::Ipv6 => ConntrackKey::SourceIpv6,
            _ => ConntrackKey::SourceIpv4,
        };
        Expression::conntrack_original(key, register)
    }

    /// Matches packets to the frontends of a set.
    pub(super) fn to(&self, set: SetName) -> Vec<Expression> {
        [self.destination(), is_in(set)].concat()
    }

    /// Matches packets of connections that began with a packet to the frontends of a set.
    pub(super) fn originally_to(&self, set: SetName) -> Vec<Expression> {
        [self.original_destination(), is_in(set)].concat()
    }

    /// Matches packets from the addresses of a set.
    pub(super) fn from(&self, set: SetName) -> Vec<Expression> {
        [self.source(), is_in(set)].concat()
    }

    fn source(&self) -> Vec<Expression> {
        step(Expression::source_address(self.family, Register::R0))
    }

    /// Matches packets that do not come from a recognised pod. Only for packets that just arrived.
    pub(super) fn not_from_pods(&self, detection: &LocalDetection) -> Vec<Expression> {
        match detection {
            LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
                [self.source(), is_not_in(SetName::Pods)].concat()
            }
            LocalDetection::BridgeInterface { bridge } => vec![
                Expression::meta(MetaKey::InputInterfaceName, Register::R0),
                Expression::not_equal(Register::R0, Bytes::interface_name(bridge)),
            ],
            LocalDetection::InterfaceNamePrefix { prefix } => vec![
                Expression::meta(MetaKey::InputInterfaceName, Register::R0),
                Expression::not_equal(Register::R0, prefix.as_bytes()),
            ],
        }
    }
}

/// Matches if a set contains the loaded key.
pub(super) fn is_in(set: SetName) -> Vec<Expression> {
    step(Expression::lookup(set.to_string(), Register::R0))
}

/// Matches if a set does not contain the loaded key.
pub(super) fn is_not_in(set: SetName) -> Vec<Expression> {
    step(Expression::lookup_missing(set.to_string(), Register::R0))
}

/// Matches packets in one of these states.
pub(super) fn state(states: u32) -> Vec<Expression> {
    let load = step(Expression::conntrack(ConntrackKey::State, Register::R0));
    [load, Expression::any_bit(Register::R0, states).to_vec()].concat()
}

/// Matches packets that begin a connection.
pub(super) fn new() -> Vec<Expression> {
    state(ConntrackKey::NEW)
}

/// Matches packets of connections whose destination is translated.
pub(super) fn translated() -> Vec<Expression> {
    let load = step(Expression::conntrack(ConntrackKey::Status, Register::R0));
    let bits = Expression::any_bit(Register::R0, ConntrackKey::DNAT);
    [load, bits.to_vec()].concat()
}

/// Matches TCP.
pub(super) fn tcp() -> Vec<Expression> {
    vec![
        Expression::protocol(Register::R0),
        Expression::equal(Register::R0, [TCP]),
    ]
}

/// Matches packets whose source (or destination) is an address of this node.
pub(super) fn local(address: FibFlags) -> Vec<Expression> {
    vec![
        Expression::address_type(address, Register::R0),
        Expression::equal(Register::R0, Bytes::host_u32(FibResult::LOCAL)),
    ]
}
