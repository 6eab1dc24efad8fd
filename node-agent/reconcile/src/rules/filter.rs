//! The table `filter`: what is let in, refused or passed on.

use std::collections::BTreeMap;

use portolan_plan::{Family, HostFirewall, Settings};

use super::{Jump, Table, mark, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[
    Jump {
        from: "FORWARD",
        to: "FORWARD",
        first: false,
    },
    Jump {
        from: "INPUT",
        to: "INPUT",
        first: false,
    },
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
        first: false,
    },
];

pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings.masquerade.mark());
    let mut forward = Vec::from_iter(invalid(family, settings));
    // Replies of connections that IPVS forwards, and what is about to be masqueraded, pass even
    // where the host forwards nothing by default (S-81).
    forward.push("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".into());
    forward.extend(refused(family, ""));
    forward.extend(unused(family, ""));
    forward.push(format!("-m mark --mark {mark}/{mark} -j ACCEPT"));
    let mut output = refused(family, "").to_vec();
    // A program of this node may have an address of the range, and other ports of it are its own.
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
    // Balancers ask for health on the node's addresses and on their own, whatever the host's
    // firewall thinks of a port that nobody told it about (S-27, S-144).
    let mut rules = vec![format!(
        "-p tcp -m set --match-set {} dst -j ACCEPT",
        set(family, SetRole::Health)
    )];
    rules.extend(invalid(family, settings));
    rules.extend(refused(family, ""));
    // The host's firewall does not know of Services; who may not connect was dropped before (S-213).
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

/// Refuses new connections to frontends without a backend (S-21, S-224).
fn refused(family: Family, rest: &str) -> [String; 2] {
    let refuse = set(family, SetRole::Refuse);
    refusal(
        family,
        &format!("-m set --match-set {refuse} dst,dst{rest}"),
    )
}

/// Refuses new connections to what no Service uses of the service ranges (S-27).
fn unused(family: Family, rest: &str) -> [String; 2] {
    let (ranges, frontend) = (set(family, SetRole::Ranges), set(family, SetRole::Frontend));
    let to =
        format!("-m set --match-set {ranges} dst -m set ! --match-set {frontend} dst,dst{rest}");
    refusal(family, &to)
}

/// TCP gets a reset: an ICMP error that arrives while the client is still inside its connect call only takes effect
/// at the next retransmission, a second later.
fn refusal(family: Family, to: &str) -> [String; 2] {
    let new = "-m conntrack --ctstate NEW";
    let unreachable = match family {
        Family::Ipv4 => "icmp-port-unreachable",
        Family::Ipv6 => "icmp6-port-unreachable",
    };
    [
        format!("-p tcp {to} {new} -j REJECT --reject-with tcp-reset"),
        format!("{to} {new} -j REJECT --reject-with {unreachable}"),
    ]
}

/// Drops what a backend of this node sends that connection tracking cannot place: it would reach the
/// client under the backend's address, and the client would reset its connection (S-173). Others'
/// packets are not ours to judge.
fn invalid(family: Family, settings: &Settings) -> Option<String> {
    // Liberal tracking calls no segment invalid for its window.
    let wanted = settings.drop_invalid && !settings.conntrack.tcp_be_liberal;
    let backends = set(family, SetRole::Hairpin);
    wanted.then(|| {
        format!("-m conntrack --ctstate INVALID -m set --match-set {backends} src,src,src -j DROP")
    })
}
