//! The table `nat`: whose packets are masqueraded, and how.

use std::collections::BTreeMap;

use portolan_plan::{Family, LocalDetection, Settings};

use super::{CHAIN_PREFIX, Jump, Table, mark, not_from_pods, set};
use crate::set::SetRole;

pub(super) const JUMPS: &[Jump] = &[
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
        first: true,
    },
    Jump {
        from: "POSTROUTING",
        to: "POSTROUTING",
        first: false,
    },
    Jump {
        from: "PREROUTING",
        to: "PREROUTING",
        first: true,
    },
];

pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let masquerade_mark = settings.masquerade.mark();
    let all_marks = mark(masquerade_mark | settings.capture.mark());
    let mark = mark(masquerade_mark);
    let (cluster, frontend) = (
        set(family, SetRole::ClusterIp),
        set(family, SetRole::Frontend),
    );
    let (hairpin, masq) = (set(family, SetRole::Hairpin), set(family, SetRole::Masq));
    let set_mark = format!("-j MARK --set-xmark {mark}/{mark}");
    let masquerade = "-j MASQUERADE --random-fully";
    // Whatever answers, no other rule translates it: chains for host ports and published ports take every address
    // of this node, and a node port or balancer's address may be one (S-166, S-212).
    let accept = format!("-m set --match-set {frontend} dst,dst -j ACCEPT");
    let chains = BTreeMap::from([
        (
            "MASQUERADE",
            vec![
                // The packet that an overlay makes of this one inherits its mark: it would be
                // masqueraded again, to a random port, and lost.
                format!("-j MARK --set-xmark 0x0/{all_marks}"),
                masquerade.into(),
            ],
        ),
        // The node's own connections may carry an address that backends cannot answer.
        (
            "OUTPUT",
            vec![
                format!("-m set --match-set {frontend} dst,dst {set_mark}"),
                accept.clone(),
            ],
        ),
        (
            "POSTROUTING",
            vec![
                // What stays on the node finds its way back. Masqueraded, it would carry an address
                // of `lo` where that has one, and a daemon would answer from there (S-55).
                // Its mark has done its work, and is not for whatever looks at it next.
                format!("-o lo -j MARK --set-xmark 0x0/{mark}"),
                "-o lo -j RETURN".into(),
                format!("-m mark --mark {mark}/{mark} -j {CHAIN_PREFIX}MASQUERADE"),
                // A pod that reaches itself through a Service would answer itself (S-74).
                format!("-m set --match-set {hairpin} dst,dst,src {masquerade}"),
            ],
        ),
        // Only packets from elsewhere: replies to pods find their way back by themselves (S-73).
        (
            "PREROUTING",
            vec![
                format!("{} {set_mark}", outsiders(family, settings, &cluster)),
                format!("{} {set_mark}", not_from_here(family, settings, &masq)),
                accept,
            ],
        ),
    ]);
    Table {
        name: "nat",
        jumps: JUMPS,
        chains,
    }
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
