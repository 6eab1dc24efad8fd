//! Converts between rtnetlink messages and values: routes of the agent and of others, and the agent's policy rules.
//! Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use portolan_plan::Family;
use portolan_reconcile::{
    HostRoute, PolicyAction, PolicyRule, RANGE_METRIC, ROUTE_PROTOCOL, Route,
};
use rtnetlink::RouteMessageBuilder;

/// The index of `lo`, the same in every network namespace.
const LOOPBACK: u32 = 1;
/// The routing table for local addresses; the library has no name for it.
const RT_TABLE_LOCAL: u32 = 255;

/// The message for a route. `device` is the index of the agent's device.
pub(super) fn message(route: &Route, device: u32) -> RouteMessage {
    let everything = match route.family() {
        Family::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    match route {
        Route::Deliver { table, .. } => RouteParts {
            to: (everything, 0),
            kind: RouteType::Local,
            scope: RouteScope::Host,
            protocol: RouteProtocol::Other(ROUTE_PROTOCOL),
            table: Some(*table),
            oif: LOOPBACK,
            metric: None,
            source: None,
        },
        Route::Range { to, source } => RouteParts {
            to: (to.network(), to.prefix_len()),
            kind: RouteType::Unicast,
            scope: RouteScope::Link,
            protocol: RouteProtocol::Other(ROUTE_PROTOCOL),
            table: None,
            oif: device,
            metric: Some(RANGE_METRIC),
            source: *source,
        },
        Route::Local { to } => RouteParts {
            to: (to.network(), to.prefix_len()),
            kind: RouteType::Local,
            scope: RouteScope::Host,
            protocol: RouteProtocol::Static,
            table: Some(RT_TABLE_LOCAL),
            oif: device,
            metric: None,
            source: None,
        },
    }
    .message()
}

/// The parts of a route message.
struct RouteParts {
    to: (IpAddr, u8),
    kind: RouteType,
    scope: RouteScope,
    protocol: RouteProtocol,
    /// `None` is the main table.
    table: Option<u32>,
    oif: u32,
    metric: Option<u32>,
    source: Option<IpAddr>,
}

impl RouteParts {
    fn message(self) -> RouteMessage {
        let (address, length) = self.to;
        let mut message = match address {
            IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(address, length)
                .build(),
            IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(address, length)
                .build(),
        };
        message.header.kind = self.kind;
        message.header.scope = self.scope;
        message.header.protocol = self.protocol;
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Oif(self.oif));
        attributes.extend(self.metric.map(RouteAttribute::Priority));
        let source = self.source.map(RouteAddress::from);
        attributes.extend(source.map(RouteAttribute::PrefSource));
        if let Some(table) = self.table {
            match u8::try_from(table) {
                Ok(table) => message.header.table = table,
                Err(_) => attributes.push(RouteAttribute::Table(table)),
            }
        }
        message
    }
}

/// Whether it is an exception that the kernel learnt for one address, such as a path MTU or a redirect. Route lists
/// contain these as well, but they are not routes.
pub(super) fn is_learnt(route: &RouteMessage) -> bool {
    route.header.flags.contains(RouteFlags::Cloned)
}

/// Whether the route has the agent's protocol number.
pub(super) fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL)
}

/// A route of the agent; `None` for the kernel's own routes over the device, and those of other programs.
pub(super) fn route(route: &RouteMessage, device: Option<u32>) -> Option<Route> {
    let find = |pick: fn(&RouteAttribute) -> Option<u32>| route.attributes.iter().find_map(pick);
    let oif = find(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let table = find(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let table = table.unwrap_or(route.header.table.into());
    let over_device = oif.is_some() && oif == device;
    let family = match route.header.address_family {
        AddressFamily::Inet => Family::Ipv4,
        AddressFamily::Inet6 => Family::Ipv6,
        _ => return None,
    };
    match (route.header.kind, is_ours(route)) {
        (RouteType::Local, true)
            if oif == Some(LOOPBACK) && route.header.destination_prefix_length == 0 =>
        {
            Some(Route::Deliver { family, table })
        }
        (RouteType::Unicast, true) if over_device => destination(route).map(|to| Route::Range {
            to,
            source: source(route),
        }),
        (RouteType::Local, false)
            if over_device
                && table == RT_TABLE_LOCAL
                && route.header.protocol == RouteProtocol::Static =>
        {
            destination(route).map(|to| Route::Local { to })
        }
        _ => None,
    }
}

/// The source address of the node's own connections by this route.
fn source(route: &RouteMessage) -> Option<IpAddr> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => ip(address),
            _ => None,
        })
}

/// Whether a route goes over this device.
pub(super) fn is_over(route: &RouteMessage, device: Option<u32>) -> bool {
    device.is_some_and(|device| route.attributes.contains(&RouteAttribute::Oif(device)))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn destination(route: &RouteMessage) -> Option<IpNet> {
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        })?;
    IpNet::new(address, route.header.destination_prefix_length).ok()
}

/// A route of the node; those without a destination are default routes, wider than any range.
pub(super) fn host_route(route: &RouteMessage) -> Option<HostRoute> {
    let gateway = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        });
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let everything = || IpNet::new(unspecified, 0).ok();
    Some(HostRoute {
        destination: destination(route).or_else(everything)?,
        gateway,
    })
}

/// The message for a policy rule.
pub(super) fn rule_message(rule: &PolicyRule) -> RuleMessage {
    use RuleAttribute::{FwMark, FwMask, Goto, Iifname, Priority, Protocol, Table};
    let (action, attributes) = match rule.action {
        PolicyAction::Skip { mark, mask, target } => (
            RuleAction::Goto,
            vec![
                Iifname("lo".into()),
                FwMark(mark),
                FwMask(mask),
                Goto(target),
            ],
        ),
        PolicyAction::Lookup { mark, table } => (
            RuleAction::ToTable,
            vec![FwMark(mark), FwMask(mark), Table(table)],
        ),
        PolicyAction::Nop => (RuleAction::Nop, Vec::new()),
    };
    let mut message = RuleMessage::default();
    message.header.family = match rule.family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    };
    message.header.action = action;
    message.attributes = attributes;
    message.attributes.extend([
        Priority(rule.priority),
        Protocol(RouteProtocol::Other(ROUTE_PROTOCOL)),
    ]);
    message
}

/// A policy rule of the agent.
pub(super) fn policy_rule(message: &RuleMessage) -> Option<PolicyRule> {
    let protocol = RuleAttribute::Protocol(RouteProtocol::Other(ROUTE_PROTOCOL));
    if !message.attributes.contains(&protocol) {
        return None;
    }
    let find = |pick: fn(&RuleAttribute) -> Option<u32>| message.attributes.iter().find_map(pick);
    let mark = find(|attribute| match attribute {
        RuleAttribute::FwMark(mark) => Some(*mark),
        _ => None,
    });
    let mask = find(|attribute| match attribute {
        RuleAttribute::FwMask(mask) => Some(*mask),
        _ => None,
    });
    let table = find(|attribute| match attribute {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let target = find(|attribute| match attribute {
        RuleAttribute::Goto(target) => Some(*target),
        _ => None,
    });
    let priority = find(|attribute| match attribute {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    let action = match message.header.action {
        RuleAction::Goto => PolicyAction::Skip {
            mark: mark?,
            mask: mask?,
            target: target?,
        },
        RuleAction::ToTable => PolicyAction::Lookup {
            mark: mark?,
            table: table.unwrap_or(message.header.table.into()),
        },
        RuleAction::Nop => PolicyAction::Nop,
        _ => return None,
    };
    let family = match message.header.family {
        AddressFamily::Inet => Family::Ipv4,
        AddressFamily::Inet6 => Family::Ipv6,
        _ => return None,
    };
    Some(PolicyRule {
        family,
        priority: priority?,
        action,
    })
}

#[cfg(test)]
mod tests {
    use portolan_plan::Settings;

    use super::*;

    #[test]
    fn learnt_exceptions_are_not_routes() {
        let destination = Ipv4Addr::new(10, 96, 1, 21);
        let mut message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination, 32)
            .build();
        assert!(!is_learnt(&message), "S-30");
        message.header.flags = RouteFlags::from_bits_retain(0x200);
        assert!(is_learnt(&message), "S-24");
    }

    #[test]
    fn own_routes_and_rules_are_recognised() {
        let range = |text: &str| text.parse().unwrap();
        for family in Family::BOTH {
            let (to, table) = match family {
                Family::Ipv4 => (range("10.96.0.0/12"), 10_270),
                Family::Ipv6 => (range("fd00:96::/112"), 300),
            };
            for own in [
                Route::Deliver { family, table },
                Route::Range { to, source: None },
                Route::Range {
                    to,
                    source: Some(to.addr()),
                },
                Route::Local { to },
            ] {
                assert_eq!(route(&message(&own, 7), Some(7)), Some(own));
            }
            let other = message(&Route::Range { to, source: None }, 8);
            assert_eq!(route(&other, Some(7)), None, "over another device");
            for rule in PolicyRule::of(family, &Settings::default()) {
                let mut message = rule_message(&rule);
                assert_eq!(policy_rule(&message), Some(rule));
                message.attributes.pop();
                assert_eq!(policy_rule(&message), None, "another program's");
            }
        }
    }
}
