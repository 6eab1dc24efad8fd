//! Which clients are masqueraded, so that the answers pass this node: by the destination that the connection had
//! before its translation, without marks. An overlay's packet around this one would inherit a mark.

use nft_rs::{Bytes, ConntrackKey, Expression, FibFlags, MetaKey, NatFlags, Register, Rule};
use portolan_plan::LocalDetection;

use super::LayoutOptions;
use super::load::{Loader, is_in, is_not_in, leave, local, rule, step};
use crate::nftables::set::SetName;
use crate::rules::MASQUERADE_PORTS;

const CHAIN: &str = "nat-post";

pub(super) fn rules(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let mut rules = vec![
        // With masquerading, packets would get the address of `lo` if it has one (S-55).
        rule(
            CHAIN,
            "packets that stay on the node",
            [by_loopback(), leave()],
        ),
        rule(CHAIN, "connections of others", [not_translated(), leave()]),
        rule(
            CHAIN,
            "a pod that connects to itself would answer itself directly",
            [hairpin(loader), masquerade()],
        ),
        rule(
            CHAIN,
            "only Services",
            [
                loader.original_destination(),
                is_not_in(SetName::Frontend),
                leave(),
            ],
        ),
        rule(
            CHAIN,
            "backends may be unable to answer the source address of the node itself",
            [local(FibFlags::SOURCE), masquerade()],
        ),
    ];
    rules.extend(clients(loader, options));
    rules
}

/// Clients other than the node. A frontend of policy Local is in none of the sets, so that its backends see the
/// client's address (S-78).
fn clients(loader: &Loader, options: &LayoutOptions) -> Vec<Rule> {
    let to = |set, comment| rule(CHAIN, comment, [loader.originally_to(set), masquerade()]);
    let cluster_ips = to(
        SetName::ClusterIp,
        "cluster IPs, for clients that are not pods",
    );
    let external = to(SetName::Masquerade, "other frontends of policy Cluster");
    let mut rules = Vec::new();
    if options.masquerade_all {
        rules.push(to(SetName::ClusterIp, "cluster IPs, for all clients"));
    }
    let is_of_cluster = matches!(options.detection, LocalDetection::ClusterCidr { .. });
    // Ranges of the cluster do not show on which node a pod is. Without masquerading, a pod of another node that is
    // itself the backend would wait forever for a reply that it sent to itself (S-77).
    if is_of_cluster {
        rules.push(external.clone());
    }
    rules.extend(pods(loader, &options.detection));
    if !is_of_cluster {
        rules.push(external);
    }
    if !options.masquerade_all {
        rules.push(cluster_ips);
    }
    rules
}

/// Pods leave the chain (S-73). Unknown pods do not: the answers must pass this node for every client.
fn pods(loader: &Loader, detection: &LocalDetection) -> Vec<Rule> {
    let comment = "pods keep their address";
    match detection {
        LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
            vec![rule(CHAIN, comment, [loader.from(SetName::Pods), leave()])]
        }
        LocalDetection::BridgeInterface { bridge } => {
            let name = Bytes::interface_name(bridge);
            let through = by_name(MetaKey::OutputInterfaceName, name.clone());
            by_interface(name, [bridged(), through].concat())
        }
        LocalDetection::InterfaceNamePrefix { prefix } => {
            by_interface(prefix.as_bytes().into(), bridged())
        }
    }
}

fn by_interface(name: Bytes, bridged: Vec<Expression>) -> Vec<Rule> {
    let from = by_name(MetaKey::InputInterfaceName, name);
    vec![
        rule(CHAIN, "pods keep their address", [from, leave()]),
        rule(CHAIN, "bridged pods keep their address", [bridged, leave()]),
    ]
}

/// A packet that a bridge passes between its ports (`br_netfilter`) has no input interface here, and the bridge as its
/// output interface. The node's own packets have no input interface either, and were decided before.
fn bridged() -> Vec<Expression> {
    by_name(MetaKey::InputInterfaceName, Bytes::interface_name(""))
}

fn by_name(key: MetaKey, name: Bytes) -> Vec<Expression> {
    vec![
        Expression::meta(key, Register::R0),
        Expression::equal(Register::R0, name),
    ]
}

fn masquerade() -> Vec<Expression> {
    let (first, last) = (Register::R0, Register::R1);
    vec![
        Expression::immediate(first, Bytes::port(*MASQUERADE_PORTS.start())),
        Expression::immediate(last, Bytes::port(*MASQUERADE_PORTS.end())),
        Expression::masquerade_to_ports(NatFlags::FULLY_RANDOM, first, last),
    ]
}

fn by_loopback() -> Vec<Expression> {
    by_name(MetaKey::OutputInterfaceName, Bytes::interface_name("lo"))
}

fn not_translated() -> Vec<Expression> {
    let load = step(Expression::conntrack(ConntrackKey::Status, Register::R0));
    let bits = Expression::no_bit(Register::R0, ConntrackKey::DNAT);
    [load, bits.to_vec()].concat()
}

/// Matches packets of an endpoint to itself (S-74).
fn hairpin(loader: &Loader) -> Vec<Expression> {
    let load = vec![
        Expression::source_address(loader.family, Register::R0),
        Expression::destination_address(loader.family, loader.register(1, 0)),
        Expression::protocol(loader.register(2, 0)),
        Expression::destination_port(loader.register(2, 1)),
    ];
    [load, is_in(SetName::Hairpin)].concat()
}
