//! The table `nat`: how packets are masqueraded, and that nobody else translates packets to Services.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

use super::{CHAIN_PREFIX, Jump, Table, mark, set};
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
    let mark = mark(settings.masquerade.mark());
    let frontend = set(family, SetRole::Frontend);
    let hairpin = set(family, SetRole::Hairpin);
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
                format!("-j MARK --set-xmark 0x0/{mark}"),
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
        ("PREROUTING", vec![accept]),
    ]);
    Table {
        name: "nat",
        jumps: JUMPS,
        chains,
    }
}
