//! The table `filter`: which packets are accepted, rejected or forwarded.

use std::collections::BTreeMap;

use portolan_plan::{Family, HostFirewall, Settings};

use super::{Jump, Others, Place, Table, mark, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[
    Jump {
        from: "FORWARD",
        to: "FORWARD",
        place: Place::Any,
    },
    Jump {
        from: "INPUT",
        to: "INPUT",
        place: Place::Any,
    },
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
        place: Place::Any,
    },
];

pub(super) fn table(family: Family, settings: &Settings, recognises_pods: bool) -> Table {
    let mark = mark(settings.masquerade.mark());
    let mut forward = Vec::from_iter(invalid(family, settings));
    // Replies of connections that IPVS forwards, and packets that will be masqueraded, are accepted even if the host
    // forwards nothing by default (S-81).
    forward.push("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".into());
    forward.extend(refused(family, ""));
    forward.extend(unused(family, ""));
    if recognises_pods {
        forward.extend(strays(family, settings));
    }
    forward.push(format!("-m mark --mark {mark}/{mark} -j ACCEPT"));
    let mut output = refused(family, "").to_vec();
    // A program on this node may use an address of the range; its other ports are its own.
    output.extend(unused(family, " -m addrtype ! --dst-type LOCAL"));
    Table {
        name: "filter",
        jumps: JUMPS,
        chains: BTreeMap::from([
            ("FORWARD", forward),
            ("INPUT", input(family, settings)),
            ("OUTPUT", output),
        ]),
    }
}

fn input(family: Family, settings: &Settings) -> Vec<String> {
    // Load balancers send health checks to the node's addresses and to their own, whether or not the host's firewall
    // opens the port (S-27, S-144).
    let mut rules = vec![format!(
        "-p tcp -m set --match-set {} dst -j ACCEPT",
        set(family, SetRole::Health)
    )];
    rules.extend(invalid(family, settings));
    rules.extend(refused(family, ""));
    // The host's firewall does not know Services. Clients that may not connect were dropped before (S-213).
    let whose = match settings.host_firewall {
        HostFirewall::Open => "",
        HostFirewall::Respect => " -m addrtype ! --dst-type LOCAL",
    };
    let frontend = set(family, SetRole::Frontend);
    rules.push(format!(
        "-m set --match-set {frontend} dst,dst{whose} -j ACCEPT"
    ));
    rules
}

/// Rejects new connections to frontends without a backend (S-21, S-224).
fn refused(family: Family, rest: &str) -> [String; 2] {
    let refuse = set(family, SetRole::Refuse);
    refusal(
        family,
        "",
        &format!("-m set --match-set {refuse} dst,dst{rest}"),
    )
}

/// Rejects new connections to addresses and ports of the service ranges that no Service uses (S-27).
fn unused(family: Family, rest: &str) -> [String; 2] {
    let (ranges, frontend) = (set(family, SetRole::Ranges), set(family, SetRole::Frontend));
    let to =
        format!("-m set --match-set {ranges} dst -m set ! --match-set {frontend} dst,dst{rest}");
    refusal(family, "", &to)
}

/// Rejects new connections from outside to ports of balancers that no Service uses. They would go back to the router that
/// sent them. Those of pods go to the router, which may know another machine that has the address (S-18, S-247).
fn strays(family: Family, settings: &Settings) -> [String; 2] {
    let Others { input, source } = Others::new(family, settings);
    let (balancers, frontend) = (
        set(family, SetRole::Balancers),
        set(family, SetRole::Frontend),
    );
    let to = format!(
        "-m set --match-set {balancers} dst{source} -m set ! --match-set {frontend} dst,dst"
    );
    refusal(family, &input, &to)
}

/// TCP gets a reset. An ICMP error that arrives while the client is still in its connect call takes effect only at
/// the next retransmission, a second later.
fn refusal(family: Family, input: &str, to: &str) -> [String; 2] {
    let new = "-m conntrack --ctstate NEW";
    let unreachable = match family {
        Family::Ipv4 => "icmp-port-unreachable",
        Family::Ipv6 => "icmp6-port-unreachable",
    };
    [
        format!("{input}-p tcp {to} {new} -j REJECT --reject-with tcp-reset"),
        format!("{input}{to} {new} -j REJECT --reject-with {unreachable}"),
    ]
}

/// Drops packets from a backend of this node that connection tracking cannot assign to a connection. They would reach
/// the client with the backend's address, and the client would reset its connection (S-173). Packets of other senders
/// are not affected.
fn invalid(family: Family, settings: &Settings) -> Option<String> {
    // Liberal tracking classifies no segment as invalid because of its window.
    let wanted = settings.drop_invalid && !settings.conntrack.tcp_be_liberal;
    let backends = set(family, SetRole::Hairpin);
    wanted.then(|| {
        format!("-m conntrack --ctstate INVALID -m set --match-set {backends} src,src,src -j DROP")
    })
}
