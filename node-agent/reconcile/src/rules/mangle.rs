//! The table `mangle`: who is kept out before IPVS looks at the packet.

use std::collections::BTreeMap;

use portolan_plan::{Family, Settings};

use super::{Jump, Table, not_from_pods, set};
use crate::set::SetRole;

const JUMPS: &[Jump] = &[
    Jump {
        from: "INPUT",
        to: "INPUT",
    },
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
    },
];

/// Who is kept out, in silence and before anything could answer (S-22, S-86, S-93). The node's own
/// packets come by `OUTPUT` (S-91).
pub(super) fn table(family: Family, settings: &Settings, tells_pods: bool) -> Table {
    let (guarded, allow) = (set(family, SetRole::Guarded), set(family, SetRole::Allow));
    let guard = format!(
        "-m set --match-set {guarded} dst,dst -m set ! --match-set {allow} dst,dst,src -j DROP"
    );
    // For the moment without a scheduler a virtual server would refuse; a client that hears nothing
    // tries again (S-104).
    let hold = format!(
        "-m conntrack --ctstate NEW -m set --match-set {} dst,dst -j DROP",
        set(family, SetRole::Hold)
    );
    let mut input = vec![guard.clone(), hold.clone()];
    if tells_pods {
        let outside = not_from_pods(family, settings, &set(family, SetRole::NoLocal));
        // Connections that stand go on: they drain.
        input.push(format!("{outside} -m conntrack --ctstate NEW -j DROP"));
    }
    Table {
        name: "mangle",
        jumps: JUMPS,
        chains: BTreeMap::from([("INPUT", input), ("OUTPUT", vec![guard, hold])]),
    }
}
