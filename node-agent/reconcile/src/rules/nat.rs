//! The table `nat`: how packets are masqueraded, and that nobody else translates packets to Services.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use portolan_plan::{Family, Settings};

use super::{CHAIN_PREFIX, Jump, Table, mark, set};
use crate::set::SetRole;

/// Where masqueraded connections come from: below node ports (from 30000) and below the ports that the node's own
/// connections have (`net.ipv4.ip_local_port_range`, from 32768), unless either was changed.
///
/// The node of an endpoint may remember a connection of this node to one of its node ports. IPVS there takes every
/// packet from that endpoint to the same address and port for its answer, without asking connection tracking, and gives
/// it the node port as its source. A masqueraded connection from that port would never be answered.
const MASQUERADE_PORTS: RangeInclusive<u16> = 1024..=29_999;

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
    // Ports are taken for protocols alone. IPVS handles no others.
    let ports = format!("{}-{}", MASQUERADE_PORTS.start(), MASQUERADE_PORTS.end());
    let masquerade = ["tcp", "udp", "sctp"]
        .map(|protocol| format!("-p {protocol} -j MASQUERADE --to-ports {ports} --random-fully"));
    // Whatever answers, no other rule translates it: chains for host ports and published ports take every address
    // of this node, and a node port or balancer's address may be one (S-166, S-212).
    let accept = format!("-m set --match-set {frontend} dst,dst -j ACCEPT");
    let chains = BTreeMap::from([
        (
            "MASQUERADE",
            // The packet that an overlay makes of this one inherits its mark: it would be
            // masqueraded again, to a random port, and lost.
            [format!("-j MARK --set-xmark 0x0/{mark}")]
                .into_iter()
                .chain(masquerade)
                .collect(),
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
                format!("-m set --match-set {hairpin} dst,dst,src -j {CHAIN_PREFIX}MASQUERADE"),
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
