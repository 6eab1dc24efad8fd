//! The table `filter`: what is let in, refused or passed on.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

use super::{Jump, Table, mark, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[
    Jump {
        from: "FORWARD",
        to: "FORWARD",
    },
    Jump {
        from: "INPUT",
        to: "INPUT",
    },
];

pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings);
    let mut forward = Vec::from_iter(invalid(family, settings));
    forward.extend([
        // Replies of connections that IPVS forwards, and what is about to be masqueraded, pass even
        // where the host forwards nothing by default (S-81).
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".into(),
        format!("-m mark --mark {mark}/{mark} -j ACCEPT"),
    ]);
    Table {
        name: "filter",
        jumps: JUMPS,
        chains: BTreeMap::from([("FORWARD", forward), ("INPUT", input(family, settings))]),
    }
}

fn input(family: Family, settings: &Settings) -> Vec<String> {
    let (vip, frontend) = (set(family, SetRole::VipNet), set(family, SetRole::Frontend));
    let unreachable = match family {
        Family::Ipv4 => "icmp-port-unreachable",
        Family::Ipv6 => "icmp6-port-unreachable",
    };
    let unused = format!(
        "-m set --match-set {vip} dst -m set ! --match-set {frontend} dst,dst \
         -m conntrack --ctstate NEW"
    );
    // Balancers ask for health on the node's addresses and on their own, whatever the host's
    // firewall thinks of a port that nobody told it about (S-27, S-144).
    let mut rules = vec![format!(
        "-p tcp -m set --match-set {} dst -j ACCEPT",
        set(family, SetRole::Health)
    )];
    rules.extend(invalid(family, settings));
    // The node's own health port is refused on no address, but the host's firewall decides.
    let healthz = settings.healthz.is_on().then_some(settings.healthz.port);
    rules.extend(healthz.map(|port| format!("-p tcp -m tcp --dport {port} -j RETURN")));
    rules.extend([
        // Service addresses are local, so any daemon on 0.0.0.0 would answer on them (S-27). TCP
        // gets a reset: an ICMP error that arrives while the client is still inside its connect
        // call only takes effect at the next retransmission, a second later.
        format!("-p tcp {unused} -j REJECT --reject-with tcp-reset"),
        format!("{unused} -j REJECT --reject-with {unreachable}"),
    ]);
    rules
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
