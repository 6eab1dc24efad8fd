//! The table `mangle`: which clients are kept out before IPVS processes the packet, which packets are masqueraded, and
//! that no packet for IPVS leaves the node.

use std::collections::BTreeMap;

use portolan_plan::{Family, LocalDetection, Settings};

use super::{Jump, Place, Table, guard, mark, not_from_pods, raw, set};
use crate::set::SetRole;

pub(super) const JUMPS: &[Jump] = &[
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
    Jump {
        from: "PREROUTING",
        to: "PREROUTING",
        // Behind the rules that restore marks.
        place: Place::Last,
    },
];

/// Keeps clients out by dropping their packets before anything can answer (S-22, S-93), and marks packets to
/// masquerade. The node's own packets pass `OUTPUT` (S-91).
pub(super) fn table(family: Family, settings: &Settings, recognises_pods: bool) -> Table {
    Table {
        name: "mangle",
        jumps: JUMPS,
        chains: BTreeMap::from([
            ("FORWARD", vec![captured(settings)]),
            ("INPUT", input(family, settings, recognises_pods)),
            ("OUTPUT", output(family, settings)),
            ("PREROUTING", raw::capture(family, settings)),
        ]),
    }
}

/// Drops a packet for IPVS that would leave the node, because another program removed the policy rule or route until
/// the agent restores it. Forwarded without translation, it would end the connection: its sender would get an answer of
/// another host, and connection tracking would lose a masqueraded connection (S-244). Here and not in `filter`, where
/// other programs accept packets first.
fn captured(settings: &Settings) -> String {
    let capture = mark(settings.capture.mark());
    format!("-m mark --mark {capture}/{capture} -j DROP")
}

/// Drops new connections while the scheduler changes. Without a scheduler, a virtual server would reject them; a
/// client without an answer retries (S-104).
fn hold(family: Family) -> String {
    format!(
        "-m conntrack --ctstate NEW -m set --match-set {} dst,dst -j DROP",
        set(family, SetRole::Hold)
    )
}

fn input(family: Family, settings: &Settings, recognises_pods: bool) -> Vec<String> {
    let masquerade = mark(settings.masquerade.mark());
    let all = mark(settings.masquerade.mark() | settings.capture.mark());
    let mut rules = vec![
        // The mark is no longer needed. IPVS sends the packet on as one of the node's own, and with the mark it would
        // be routed to this node again.
        format!("-j MARK --set-xmark 0x0/{all}"),
        hold(family),
    ];
    if recognises_pods {
        let external = not_from_pods(family, settings, &set(family, SetRole::NoLocal));
        // Existing connections continue: they drain.
        rules.push(format!("{external} -m conntrack --ctstate NEW -j DROP"));
    }
    // Only packets from other hosts, because replies to pods are routed back without masquerading (S-73). This cannot
    // be done in `nat` PREROUTING, because both marks together route the node's own packets to IPVS.
    let first = format!(
        "-m conntrack ! --ctstatus CONFIRMED -j MARK --set-xmark {masquerade}/{masquerade}"
    );
    let cluster = external_clients(family, settings, &set(family, SetRole::ClusterIp));
    let masq = not_from_here(family, settings, &set(family, SetRole::Masq));
    rules.push(format!("{cluster} {first}"));
    rules.push(format!("{masq} {first}"));
    rules
}

/// The node's own packets to Services get both marks, which route them to `lo`. IPVS keeps the route of a packet if
/// the endpoint is this node, and with any other route the packet would leave the node (S-56). Packets for another
/// node pass this chain again after IPVS. Only the first packet of a connection keeps the masquerade mark, because an
/// overlay's packet around a later one would inherit it.
fn output(family: Family, settings: &Settings) -> Vec<String> {
    let capture = mark(settings.capture.mark());
    let all = mark(settings.masquerade.mark() | settings.capture.mark());
    let to = |role| format!("-m set --match-set {} dst,dst", set(family, role));
    let lead = format!("-m addrtype ! --dst-type LOCAL -j MARK --set-xmark {all}/{all}");
    vec![
        format!(
            "-m mark --mark {capture}/{capture} -m conntrack --ctstatus CONFIRMED -j MARK --set-xmark 0x0/{all}"
        ),
        format!("-j MARK --set-xmark 0x0/{capture}"),
        guard(family),
        hold(family),
        format!("{} {lead}", to(SetRole::Frontend)),
        // Existing connections end at the virtual server. IPVS would reject new ones with an ICMP error if a virtual
        // server exists, but the kernel sends none for a packet that is routed to `lo` with an address that is not
        // local.
        format!(
            "-p tcp {} -m conntrack ! --ctstate NEW {lead}",
            to(SetRole::Refuse)
        ),
    ]
}

/// Matches packets to this set that do not come from a pod. If everything is masqueraded, it matches all packets
/// (S-75).
fn external_clients(family: Family, settings: &Settings, to: &str) -> String {
    if settings.masquerade.all {
        return format!("-m set --match-set {to} dst,dst");
    }
    not_from_pods(family, settings, to)
}

/// Matches packets to this set that do not come from a pod of this node (S-77). Cluster-wide ranges do not show on
/// which node a pod is. Without masquerading, a pod of another node that is itself the backend would wait forever for
/// a reply that it sent to itself.
fn not_from_here(family: Family, settings: &Settings, to: &str) -> String {
    match &settings.local_detection {
        LocalDetection::ClusterCidr { .. } => format!("-m set --match-set {to} dst,dst"),
        _ => not_from_pods(family, settings, to),
    }
}
