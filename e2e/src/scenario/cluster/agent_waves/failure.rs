//! An image that fails on the nodes of one zone is rolled back.

use std::collections::BTreeSet;

use anyhow::Result;

use super::lab::{Lab, MAX_UNAVAILABLE, Seen};
use super::statuses::settled;
use super::{STEP, WAVE, zone_of};
use crate::checks::Checks;
use crate::light_agents::FAILURE;

pub(super) fn run(lab: &Lab<'_>, checks: &mut Checks, canary: &str) -> Result<()> {
    // A zone with another one after it.
    let zone = match zone_of(canary) {
        "zone-2" => "zone-1",
        _ => "zone-2",
    };
    let all = (1..=lab.size).map(|number| format!("node-{number}"));
    let there: BTreeSet<_> = all.filter(|node| zone_of(node) == zone).collect();
    lab.fleet.break_on("3", there.iter().cloned());
    let before = lab.fleet.starts();
    lab.fleet.begin_count(lab.nodes() + 1);
    lab.change("3")?;
    let seen = lab.until("the change to be rolled back", WAVE, |seen| {
        seen.text("phase") == "RolledBack"
    })?;
    let reason = seen.text("reason");
    checks.require(
        "a failing image is rolled back, and the reason names the wave and the error of a node",
        reason.contains(&format!("zone {zone}")) && reason.contains(FAILURE),
        reason,
    );
    let seen = lab.until("all nodes to have the previous image", WAVE, |seen| {
        seen.with("2").len() == lab.nodes() + 1
    })?;
    checks.require(
        "all nodes have the previous image again",
        seen.with("3").is_empty(),
        &format!("{seen:?}"),
    );
    let after = lab.fleet.starts();
    let changed = |node: &&String| after.get(*node) != before.get(*node);
    let changed: BTreeSet<_> = before.keys().filter(changed).collect();
    let failed = there.iter().filter(|node| changed.contains(node)).count();
    let beyond = changed
        .iter()
        .filter(|node| zone_of(node) > zone && ***node != *canary);
    checks.require(
        &format!(
            "no node in later zones was restarted, and no more nodes of the zone than allowed at \
             once ({failed})"
        ),
        beyond.count() == 0 && (1..=MAX_UNAVAILABLE).contains(&failed),
        &format!("{changed:?}"),
    );
    let most = lab.fleet.most_missing();
    let what = format!(
        "at most {MAX_UNAVAILABLE} agents were missing at once, also during the rollback \
        (seen: {most})"
    );
    checks.require(&what, most <= MAX_UNAVAILABLE, &most.to_string());
    let planned = |_: &Seen| lab.fleet.planned() == lab.nodes() + 1;
    lab.until("all agents to have plans again", STEP, planned)?;
    settled(lab)
}
