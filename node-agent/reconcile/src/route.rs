//! How packets of Services come to this node's IPVS: by a mark, not by their addresses.
//!
//! A rule of the table `raw` marks packets to frontends. Policy rules send what is marked to a table whose only
//! route delivers locally, where IPVS takes it. No address is bound or routed as a whole, so other ports of an
//! address stay where they are. Rules and routes are the same for one Service and for ten thousand.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::{Family, NodeEntry, Settings};

use crate::host::HostNetwork;

/// The routing protocol that our routes and policy rules carry, so that we know them again. No routing daemon
/// uses it.
pub const ROUTE_PROTOCOL: u8 = 112;

/// The metric of routes to service ranges: whoever routes a range as well goes first.
pub const RANGE_METRIC: u32 = 10_270;

/// A route of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// `local default dev lo table TABLE`: what comes to the table is delivered here.
    Deliver {
        /// The family.
        family: Family,
        /// The table.
        table: u32,
    },
    /// A unicast route of a service range to our device. IPVS takes the node's own connections wherever they are
    /// routed, but the kernel asks for some route, and a node may have no default route.
    Range {
        /// The range.
        to: IpNet,
        /// The address that the node's own connections carry. Where the endpoint is the node itself, a daemon that
        /// takes datagrams on all addresses answers from the address it was asked from, so this has to be the
        /// endpoint's. The kernel's own choice may be any, one of `lo` too.
        source: Option<IpAddr>,
    },
    /// `local TO dev DEVICE table local`: what Portolan's first version wrote. It makes other ports of the addresses
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

    /// Whether the kernel has only one of the two: a route of a range that has another source replaces this one.
    pub fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Range { to, .. }, Self::Range { to: other, .. }) => to == other,
            _ => self == other,
        }
    }

    /// The arguments of `ip route add` (`ip -6 route add` for IPv6).
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

/// Without the device, whose name is a setting.
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

/// A policy routing rule of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRule {
    /// The family.
    pub family: Family,
    /// Its priority: rules with a lower number come first.
    pub priority: u32,
    /// What it does.
    pub action: PolicyAction,
}

/// What a policy rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyAction {
    /// `iif lo fwmark MARK/MASK goto TARGET`: look-ups that start on this node go on behind our rules, unless the
    /// packet has all bits of the mask, as the node's own packets to Services have. The others are checks whether the
    /// way back to a packet's source exists: a check that counts the mark (`src_valid_mark`, `rpfilter --validmark`)
    /// would find every source to be local, and drop the packet.
    Skip {
        /// The bit that captures.
        mark: u32,
        /// This bit and the one that masquerades.
        mask: u32,
        /// The priority of the rule behind ours.
        target: u32,
    },
    /// `fwmark MARK/MARK lookup TABLE`.
    Lookup {
        /// The mark and its mask.
        mark: u32,
        /// The table.
        table: u32,
    },
    /// `nop`: where [`PolicyAction::Skip`] leads.
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

/// The arguments of `ip rule add` (`ip -6 rule add` for IPv6).
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

/// Whether somebody else has virtual servers in the range.
fn overlaps(range: &IpNet, excluded: &[IpNet]) -> bool {
    excluded
        .iter()
        .any(|other| range.contains(&other.network()) || other.contains(&range.network()))
}

/// The service ranges in which nothing is anybody else's: connections to their unused addresses and ports are
/// refused.
pub(crate) fn own_ranges<'a>(
    service_ranges: &'a [IpNet],
    excluded: &'a [IpNet],
    host: &'a HostNetwork,
) -> impl Iterator<Item = IpNet> + 'a {
    let ranges = service_ranges.iter().map(IpNet::trunc);
    ranges
        .filter(|range| host.knows(Family::of(range.addr())))
        .filter(|range| host.leaves_free(range) && !overlaps(range, excluded))
}

/// The routes of a node with these ranges of its own.
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
        // The kernel refuses a source that the node does not have, or not yet.
        own.find(|own| host.can_send_from(**own)).copied()
    };
    let families = Family::BOTH.into_iter();
    let families = families.filter(|family| host.knows(*family));
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
    let families = families.filter(|family| host.knows(*family));
    families
        .flat_map(|family| PolicyRule::of(family, settings))
        .collect()
}
