//! The table `mangle`: who is kept out before IPVS looks at the packet.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

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

/// Who is kept out, in silence and before anything could answer (S-22, S-93). The node's own packets come by
/// `OUTPUT` (S-91).
pub(super) fn table(family: Family, settings: &Settings, tells_pods: bool) -> Table {
    // For the moment without a scheduler a virtual server would refuse; a client that hears nothing
    // tries again (S-104).
    let hold = format!(
        "-m conntrack --ctstate NEW -m set --match-set {} dst,dst -j DROP",
        set(family, SetRole::Hold)
    );
    // The mark has done its work. IPVS sends the packet on as one of the node's own, and with its mark it would be
    // routed to this node once more.
    let clear = format!("-j MARK --set-xmark 0x0/{}", mark(settings.capture.mark()));
    let mut input = vec![clear, hold.clone()];
    if tells_pods {
        let outside = not_from_pods(family, settings, &set(family, SetRole::NoLocal));
        // Connections that stand go on: they drain.
        input.push(format!("{outside} -m conntrack --ctstate NEW -j DROP"));
    }
    Table {
        name: "mangle",
        jumps: JUMPS,
        chains: BTreeMap::from([("INPUT", input), ("OUTPUT", vec![guard(family), hold])]),
    }
}
