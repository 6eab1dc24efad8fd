//! The table `raw`: selects the packets from other hosts that are routed to IPVS, and applies `guard`.
//!
//! Marks are usually set in `mangle`. There, however, Calico accepts packets of established connections before any
//! rule after its own, and keeps its own rule first. Other programs restore the whole mark of a connection in `mangle`,
//! and the mark set here is lost (S-243). So the same rules are in both tables.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

use super::{Jump, Place, Table, guard, mark, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[Jump {
    from: "PREROUTING",
    to: "PREROUTING",
    place: Place::Any,
}];

pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let mut rules = vec![guard(family)];
    rules.extend(capture(family, settings));
    Table {
        name: "raw",
        jumps: JUMPS,
        chains: BTreeMap::from([("PREROUTING", rules)]),
    }
}

/// Marks packets for IPVS. Packets to the node's own addresses need no mark: they are delivered locally anyway, and
/// IPVS takes those for a Service.
pub(super) fn capture(family: Family, settings: &Settings) -> Vec<String> {
    let mark = mark(settings.capture.mark());
    let to = |role| format!("-m set --match-set {}", set(family, role));
    let capture = format!("-m addrtype ! --dst-type LOCAL -j MARK --set-xmark {mark}/{mark}");
    let mut rules = vec![
        format!("{} dst,dst {capture}", to(SetRole::Frontend)),
        // Existing TCP connections end at the virtual server, and new ones are rejected. A captured UDP packet cannot
        // be rejected by the kernel, so UDP is rejected where it would be forwarded.
        format!("-p tcp {} dst,dst {capture}", to(SetRole::Refuse)),
    ];
    // ICMP errors, for example from a router that could not forward a too large packet, go to the packet's sender,
    // which is an endpoint behind IPVS.
    let (error, types): (_, &[u8]) = match family {
        Family::Ipv4 => (["-p icmp", "-m icmp --icmp-type"], &[3, 11, 12]),
        Family::Ipv6 => (["-p ipv6-icmp", "-m icmp6 --icmpv6-type"], &[1, 2, 3, 4]),
    };
    let [protocol, kind] = error;
    let vips = to(SetRole::Vips);
    let errors = types.iter();
    rules.extend(errors.map(|number| format!("{protocol} {vips} dst {kind} {number} {capture}")));
    rules
}
