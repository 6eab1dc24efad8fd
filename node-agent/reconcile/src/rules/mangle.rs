//! The table `mangle`: who is kept out before IPVS looks at the packet, and whose packets are masqueraded.

use std::collections::BTreeMap;

use portolan_plan::{Family, LocalDetection, Settings};

use super::{Jump, Table, guard, mark, not_from_pods, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[
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

/// Who is kept out, in silence and before anything could answer (S-22, S-93), and what is masqueraded. The node's own
/// packets come by `OUTPUT` (S-91).
pub(super) fn table(family: Family, settings: &Settings, tells_pods: bool) -> Table {
    Table {
        name: "mangle",
        jumps: JUMPS,
        chains: BTreeMap::from([
            ("INPUT", input(family, settings, tells_pods)),
            ("OUTPUT", output(family, settings)),
        ]),
    }
}

/// For the moment without a scheduler a virtual server would refuse; a client that hears nothing tries again (S-104).
fn hold(family: Family) -> String {
    format!(
        "-m conntrack --ctstate NEW -m set --match-set {} dst,dst -j DROP",
        set(family, SetRole::Hold)
    )
}

fn input(family: Family, settings: &Settings, tells_pods: bool) -> Vec<String> {
    let masquerade = mark(settings.masquerade.mark());
    let all = mark(settings.masquerade.mark() | settings.capture.mark());
    let mut rules = vec![
        // The mark has done its work. IPVS sends the packet on as one of the node's own, and with its mark it would
        // be routed to this node once more.
        format!("-j MARK --set-xmark 0x0/{all}"),
        hold(family),
    ];
    if tells_pods {
        let outside = not_from_pods(family, settings, &set(family, SetRole::NoLocal));
        // Connections that stand go on: they drain.
        rules.push(format!("{outside} -m conntrack --ctstate NEW -j DROP"));
    }
    // Only packets from elsewhere: replies to pods find their way back by themselves (S-73). Not in `nat`
    // PREROUTING, since both marks together are how the node's own packets are routed to IPVS.
    let first = format!(
        "-m conntrack ! --ctstatus CONFIRMED -j MARK --set-xmark {masquerade}/{masquerade}"
    );
    let cluster = outsiders(family, settings, &set(family, SetRole::ClusterIp));
    let masq = not_from_here(family, settings, &set(family, SetRole::Masq));
    rules.push(format!("{cluster} {first}"));
    rules.push(format!("{masq} {first}"));
    rules
}

/// The node's own packets to Services get both marks, by which they are routed to `lo`: IPVS leaves the route of a
/// packet alone if the endpoint is this node, and by any other route the packet would leave (S-56). IPVS sends what
/// is for another node through this chain once more. The mark that masquerades stays for the first packet of a
/// connection only: the packet that an overlay makes of a later one would inherit it.
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
        // Those that stand end where they are. IPVS refuses new ones with an ICMP error if it has a virtual server, and
        // the kernel sends none for a packet that is routed to `lo` with an address of nobody.
        format!(
            "-p tcp {} -m conntrack ! --ctstate NEW {lead}",
            to(SetRole::Refuse)
        ),
    ]
}

/// Matches packets to this set that do not come from a pod; all of them where everybody counts as
/// outside (S-75).
fn outsiders(family: Family, settings: &Settings, to: &str) -> String {
    if settings.masquerade.all {
        return format!("-m set --match-set {to} dst,dst");
    }
    not_from_pods(family, settings, to)
}

/// Matches packets to this set that do not come from a pod of this node (S-77). Ranges of the whole
/// cluster do not tell which node a pod is on, and one of another node that is itself the backend
/// would wait for ever for an answer that it gave itself.
fn not_from_here(family: Family, settings: &Settings, to: &str) -> String {
    match &settings.local_detection {
        LocalDetection::ClusterCidr { .. } => format!("-m set --match-set {to} dst,dst"),
        _ => not_from_pods(family, settings, to),
    }
}
