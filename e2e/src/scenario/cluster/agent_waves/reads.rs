//! Reads of the API server by the controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;

use super::super::audit::since;
use super::STEP;
use super::lab::Lab;
use crate::checks::Checks;

/// How long reads of controllers at rest are counted: longer than the interval of any read but the comparison with the
/// store, so each attempt sees a task that reads periodically.
const REST: Duration = Duration::from_secs(65);

/// The controllers read from watches. Each of the two reads the ProxyConfig every 30 s for the write budget, and the
/// Secret and the ConfigMap of its authority every 60 s. They compare ProxyPlans and slices with the store every 10
/// minutes.
pub(super) fn at_rest(lab: &Lab<'_>, checks: &mut Checks) {
    let expected = BTreeMap::from([
        ("get proxyconfigs", 6),
        ("get secrets", 4),
        ("get configmaps", 4),
        ("list proxyplans", 2),
        ("list proxyplanslices", 2),
    ]);
    let waits = lab.stage.waits;
    // The controllers may still write statuses and events of the installation.
    let rest = waits.eventually("the controllers to read from watches only", STEP, || {
        let before = lab.release.audit()?.reads();
        std::thread::sleep(REST);
        let reads = since(&before, &lab.release.audit()?.reads());
        let few = |(name, count): (&String, &usize)| {
            expected.get(&**name).is_some_and(|most| count <= most)
        };
        ensure!(reads.iter().all(few), "{reads:?} in {REST:?}");
        let console = &lab.stage.console;
        console.line(&format!(
            "reads of all controllers at rest in {REST:?}: {reads:?}"
        ));
        Ok(())
    });
    checks.check("at rest the controllers read from watches", rest);
}
