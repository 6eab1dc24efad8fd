//! The table `nat`: masquerades packets, and prevents other rules from translating packets to Services.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use portolan_plan::{Family, Settings};

use super::{CHAIN_PREFIX, Jump, Place, Table, mark, set};
use crate::set::SetRole;

/// The source ports of masqueraded connections: below node ports (from 30000) and below the ports of the node's own
/// connections (`net.ipv4.ip_local_port_range`, from 32768), unless either range was changed.
///
/// The endpoint's node may have a connection of this node to one of its node ports. Its IPVS treats every packet from
/// that endpoint to the same address and port as the reply, without consulting connection tracking, and sets the node
/// port as its source. A masqueraded connection from that port would never get a reply. So this is also the range of a
/// node whose own dataplane is not IPVS.
pub(crate) const MASQUERADE_PORTS: RangeInclusive<u16> = 1024..=29_999;

pub(super) const JUMPS: &[Jump] = &[
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
        place: Place::First,
    },
    Jump {
        from: "POSTROUTING",
        to: "POSTROUTING",
        place: Place::Any,
    },
    Jump {
        from: "PREROUTING",
        to: "PREROUTING",
        place: Place::First,
    },
];

pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings.masquerade.mark());
    let frontend = set(family, SetRole::Frontend);
    let hairpin = set(family, SetRole::Hairpin);
    let set_mark = format!("-j MARK --set-xmark {mark}/{mark}");
    // Source ports can only be given per protocol. IPVS handles no other protocols.
    let ports = format!("{}-{}", MASQUERADE_PORTS.start(), MASQUERADE_PORTS.end());
    let masquerade = ["tcp", "udp", "sctp"]
        .map(|protocol| format!("-p {protocol} -j MASQUERADE --to-ports {ports} --random-fully"));
    // Packets to frontends must not be translated by other rules. Chains for host ports and published ports match
    // every address of this node, which may include a node port's or load balancer's address (S-166, S-212).
    let accept = format!("-m set --match-set {frontend} dst,dst -j ACCEPT");
    let chains = BTreeMap::from([
        (
            "MASQUERADE",
            // The overlay's packet around this one inherits its mark. It would be masqueraded again, to a random
            // port, and lost.
            [format!("-j MARK --set-xmark 0x0/{mark}")]
                .into_iter()
                .chain(masquerade)
                .collect(),
        ),
        // The node's own connections may have a source address to which backends cannot reply.
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
                // Packets that stay on the node need no masquerading. With it, they would get the address of `lo` if
                // it has one, and a daemon would reply from there (S-55). The mark is no longer needed and must not
                // affect later rules.
                format!("-o lo -j MARK --set-xmark 0x0/{mark}"),
                "-o lo -j RETURN".into(),
                format!("-m mark --mark {mark}/{mark} -j {CHAIN_PREFIX}MASQUERADE"),
                // A pod that connects to itself through a Service would reply to itself directly (S-74).
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
