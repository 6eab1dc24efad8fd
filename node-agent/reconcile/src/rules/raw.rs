//! The table `raw`: which packets from elsewhere come to IPVS.
//!
//! In `mangle`, where marks are usual, Calico accepts packets of established connections before any rule that stands
//! behind its own, and keeps its own first.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

use super::{Jump, Table, guard, mark, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[Jump {
    from: "PREROUTING",
    to: "PREROUTING",
    first: false,
}];

/// Marks what is for IPVS. A node's own addresses need no mark: what is for them is delivered here anyhow, and IPVS
/// takes what is for a Service.
pub(super) fn table(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings.capture.mark());
    let to = |role| format!("-m set --match-set {}", set(family, role));
    let capture = format!("-m addrtype ! --dst-type LOCAL -j MARK --set-xmark {mark}/{mark}");
    let mut rules = vec![
        guard(family),
        format!("{} dst,dst {capture}", to(SetRole::Frontend)),
        // TCP connections end where they are; new ones are refused. For UDP the kernel has no way to refuse a
        // packet that was captured: it is refused where it would be forwarded.
        format!("-p tcp {} dst,dst {capture}", to(SetRole::Refuse)),
    ];
    // A router on the way tells the sender of a packet that it was too large. The sender is an endpoint behind IPVS.
    let (error, types): (_, &[u8]) = match family {
        Family::Ipv4 => (["-p icmp", "-m icmp --icmp-type"], &[3, 11, 12]),
        Family::Ipv6 => (["-p ipv6-icmp", "-m icmp6 --icmpv6-type"], &[1, 2, 3, 4]),
    };
    let [protocol, kind] = error;
    let vips = to(SetRole::Vips);
    let errors = types.iter();
    rules.extend(errors.map(|number| format!("{protocol} {vips} dst {kind} {number} {capture}")));
    Table {
        name: "raw",
        jumps: JUMPS,
        chains: BTreeMap::from([("PREROUTING", rules)]),
    }
}
