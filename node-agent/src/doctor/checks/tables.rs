//! Differences between the saved plan and the tables of nftables.

use portolan_reconcile::nftables::Tables;

use super::programmed::behind;
use super::{REPAIRED_BY_AGENT, some, unless_privileged};
use crate::doctor::{Check, Facts, Finding};

/// The tables of the nftables dataplane.
pub(super) fn tables(facts: &Facts) -> Vec<Finding> {
    let check = Check::Tables;
    let found = match &facts.own_tables {
        Ok(found) => found,
        Err(reason) => {
            let message = format!("the tables of nftables cannot be read: {reason}");
            let remedy = unless_privileged(facts, "`modprobe nf_tables`");
            return vec![Finding::fail(check, message, remedy)];
        }
    };
    let Some(wanted) = facts.demanded().map(|facts| Tables::of(&facts)) else {
        return Vec::new();
    };
    let absent = wanted.families.keys();
    let absent: Vec<_> = absent
        .filter(|family| !found.tables.contains_key(family))
        .collect();
    if !absent.is_empty() {
        let message = format!("tables of the agent are missing: {}", some(absent));
        return vec![Finding::fail(check, message, REPAIRED_BY_AGENT)];
    }
    let (wanted, held) = (wanted.applied().virtual_servers(), found.virtual_servers());
    let different = wanted
        .iter()
        .filter(|(key, wanted)| held.get(key) != Some(*wanted));
    let different: Vec<_> = different.map(|(key, _)| key).collect();
    let more = held.keys().filter(|key| !wanted.contains_key(key)).count();
    vec![if !different.is_empty() {
        let message = format!(
            "{} of {} frontends of the plan are missing or have other backends: {}",
            different.len(),
            wanted.len(),
            some(different)
        );
        Finding::warn(check, message, behind())
    } else if more > 0 {
        let message = format!("the tables have {more} frontends that are not in the plan");
        Finding::warn(check, message, behind())
    } else {
        let message = format!(
            "all {} frontends of the plan are in the tables",
            wanted.len()
        );
        Finding::ok(check, message)
    }]
}
