//! Routes packets for Services to this node's IPVS by a mark, not by their addresses.
//!
//! A rule in the table `raw` marks packets to frontends. Policy rules send marked packets to a routing table whose
//! only route delivers them locally, where IPVS processes them. No address is bound or routed as a whole, so other
//! ports of an address are not affected. Rules and routes are the same for one Service and for ten thousand.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::{Family, NodeEntry, Settings};

use crate::host::HostNetwork;

/// The routing protocol of Portolan's routes and policy rules, by which they are recognised. No routing daemon uses
/// it.
pub const ROUTE_PROTOCOL: u8 = 112;

/// The metric of routes to service ranges. It is high, so that another program's route to the same range takes
/// precedence.
pub const RANGE_METRIC: u32 = 10_270;

/// A route that Portolan owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// `local default dev lo table TABLE`: packets looked up in the table are delivered locally.
    Deliver {
        /// The family.
        family: Family,
        /// The table.
        table: u32,
    },
    /// A unicast route of a service range to Portolan's device. IPVS takes the node's own connections regardless of
    /// their route, but the kernel needs some route, and a node may have no default route.
    Range {
        /// The range.
        to: IpNet,
        /// The source address of the node's own connections. If the endpoint is the node itself, a daemon that
        /// receives datagrams on all addresses replies from the address at which it was addressed, so this must be
        /// the endpoint's address. The kernel's own choice may be any address, even one of `lo`.
        source: Option<IpAddr>,
    },
    /// `local TO dev DEVICE table local`: written by Portolan's first version. It makes other ports of the addresses
    /// unreachable, so it is removed.
    Local {
        /// The addresses.
        to: IpNet,
    },
}

impl Route {
    /// The family.
    pub fn family(&self) -> Family {
        match self {
            Self::Deliver { family, .. } => *family,
            Self::Range { to, .. } | Self::Local { to } => Family::of(to.addr()),
        }
    }

    /// Whether the kernel keeps only one of the two routes: a route of the same range with another source replaces
    /// this one.
    pub fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Range { to, .. }, Self::Range { to: other, .. }) => to == other,
            _ => self == other,
        }
    }

    /// The arguments of `ip route add`, or of `ip -6 route add` for IPv6.
    pub fn text(&self, device: &str) -> String {
        match self {
            Self::Deliver { table, .. } => {
                format!("local default dev lo table {table} proto {ROUTE_PROTOCOL}")
            }
            Self::Range { to, source } => {
                let source = source.map_or(String::new(), |source| format!(" src {source}"));
                format!("{to} dev {device} proto {ROUTE_PROTOCOL}{source} metric {RANGE_METRIC}")
            }
            Self::Local { to } => format!("local {to} dev {device} table local"),
        }
    }
}

/// Formats without the device, whose name is a setting.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver { family, table } => write!(f, "local default table {table} ({family})"),
            Self::Range { to, source } => {
                to.fmt(f)?;
                source.map_or(Ok(()), |source| write!(f, " src {source}"))
            }
            Self::Local { to } => write!(f, "local {to}"),
        }
    }
}

/// A policy routing rule that Portolan owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRule {
    /// The family.
    pub family: Family,
    /// Its priority: rules with a lower number are evaluated first.
    pub priority: u32,
    /// Its action.
    pub action: PolicyAction,
}

/// The action of a policy rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyAction {
    /// `iif lo fwmark MARK/MASK goto TARGET`: look-ups that start on this node skip Portolan's rules, unless the
    /// packet has all bits of the mask, as the node's own packets to Services do. The other look-ups are checks of
    /// the route back to a packet's source. A check that includes the mark (`src_valid_mark`, `rpfilter --validmark`)
    /// would otherwise find every source to be local, and drop the packet.
    Skip {
        /// The capture bit.
        mark: u32,
        /// The capture bit and the masquerade bit.
        mask: u32,
        /// The priority of the rule after Portolan's look-up rule.
        target: u32,
    },
    /// `fwmark MARK/MARK lookup TABLE`.
    Lookup {
        /// The mark and its mask.
        mark: u32,
        /// The table.
        table: u32,
    },
    /// `nop`: the target of [`PolicyAction::Skip`].
    Nop,
}

impl PolicyRule {
    /// The rules of a family, in order.
    pub fn of(family: Family, settings: &Settings) -> [Self; 3] {
        let capture = &settings.capture;
        let (mark, table) = (capture.mark(), capture.table);
        let mask = mark | settings.masquerade.mark();
        let rule = |offset, action| Self {
            family,
            priority: capture.rule_priority.saturating_add(offset),
            action,
        };
        let target = capture.rule_priority.saturating_add(2);
        [
            rule(0, PolicyAction::Skip { mark, mask, target }),
            rule(1, PolicyAction::Lookup { mark, table }),
            rule(2, PolicyAction::Nop),
        ]
    }
}

/// Formats as the arguments of `ip rule add`, or of `ip -6 rule add` for IPv6.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pref {} ", self.priority)?;
        match self.action {
            PolicyAction::Skip { mark, mask, target } => {
                write!(f, "iif lo fwmark {mark:#x}/{mask:#x} goto {target}")
            }
            PolicyAction::Lookup { mark, table } => {
                write!(f, "fwmark {mark:#x}/{mark:#x} lookup {table}")
            }
            PolicyAction::Nop => f.write_str("nop"),
        }?;
        write!(f, " proto {ROUTE_PROTOCOL}")
    }
}

/// Whether other programs may have virtual servers in the range.
fn overlaps(range: &IpNet, excluded: &[IpNet]) -> bool {
    excluded
        .iter()
        .any(|other| range.contains(&other.network()) || other.contains(&range.network()))
}

/// The service ranges that no other program or route uses. Connections to their unused addresses and ports are
/// rejected.
pub(crate) fn own_ranges<'a>(
    service_ranges: &'a [IpNet],
    excluded: &'a [IpNet],
    host: &'a HostNetwork,
) -> impl Iterator<Item = IpNet> + 'a {
    let ranges = service_ranges.iter().map(IpNet::trunc);
    ranges
        .filter(|range| host.supports(Family::of(range.addr())))
        .filter(|range| host.leaves_free(range) && !overlaps(range, excluded))
}

/// The routes of a node for these service ranges.
pub(crate) fn routes(
    ranges: impl Iterator<Item = IpNet>,
    node: &NodeEntry,
    host: &HostNetwork,
) -> BTreeSet<Route> {
    let source = |range: IpNet| {
        let family = Family::of(range.addr());
        let mut own = node
            .addresses
            .iter()
            .filter(|own| Family::of(**own) == family);
        // The kernel rejects a source address that the node does not have, or cannot use yet.
        own.find(|own| host.can_send_from(**own)).copied()
    };
    let families = Family::BOTH.into_iter();
    let families = families.filter(|family| host.supports(*family));
    let table = node.settings.capture.table;
    let deliver = families.map(|family| Route::Deliver { family, table });
    deliver
        .chain(ranges.map(|to| Route::Range {
            to,
            source: source(to),
        }))
        .collect()
}

/// The policy rules of a node.
pub(crate) fn policy(settings: &Settings, host: &HostNetwork) -> BTreeSet<PolicyRule> {
    let families = Family::BOTH.into_iter();
    let families = families.filter(|family| host.supports(*family));
    families
        .flat_map(|family| PolicyRule::of(family, settings))
        .collect()
}
