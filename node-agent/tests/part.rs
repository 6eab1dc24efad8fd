//! A pass compares only the changed Services, and everything only if necessary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use portolan_agent::kernel::SharedModel;
use portolan_plan::{Change, PlanDocument, PlanHash, StagedChanges};
use tempfile::TempDir;

use running::{Running, address, document};

fn without(name: &str) -> PlanDocument {
    let mut document = document();
    document.services.retain(|service| &*service.name != name);
    document
}

/// S-185: only the changed Service is compared.
#[test]
fn a_change_of_one_service_compares_only_that_one() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(document()).services, None, "the first plan");
    let removed = running.program(without("web"));
    assert_eq!((removed.failed, removed.services), (0, Some(1)));
    assert!(removed.operations > 0);
    let back = running.program(document());
    assert_eq!((back.failed, back.services), (0, Some(1)));
    let kernel = running.stop();
    let restarted = Running::start(kernel, state.path());
    let again = restarted.program(document());
    assert_eq!((again.operations, again.services), (0, None), "I-4");
    restarted.stop();
}

/// After a failure everything is compared until a pass succeeds: failed operations are retried although their Service
/// did not change again.
#[test]
fn after_a_failure_everything_is_compared() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(without("web"));
    let web = "TCP 10.96.0.20:80".parse().unwrap();
    running.kernel.faults().refused_servers.insert(web);
    let failed = running.program(document());
    assert!(failed.failed > 0);
    assert_eq!(failed.services, Some(1));
    running.kernel.faults().refused_servers.clear();
    let other = running.program(without("dns"));
    assert_eq!((other.failed, other.services), (0, None));
    let both = running.program(without("web"));
    assert_eq!((both.failed, both.services), (0, Some(2)), "web and dns");
    running.stop();
}

/// A change of the network leads to a complete comparison, together with changes of the plan.
#[test]
fn after_a_change_of_the_network_everything_is_compared() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    let moved = ["192.168.50.7/24", "fd00:50::1/64"];
    let mut staged = StagedChanges::delta();
    running.plans.peek(|plan| {
        for (key, _) in plan.entries() {
            if key.service().is_some_and(|service| &*service.name == "web") {
                staged.push(Change::Remove { key: key.clone() });
            }
        }
    });
    // While the lock is held the network cannot be read, so both changes are processed in one pass.
    let mut kernel = running.kernel.lock();
    kernel.state.host.addresses = moved.map(address).into();
    running.plans.disturb();
    let generation = running.plans.commit(staged, PlanHash::default()).unwrap();
    drop(kernel);
    let removed = running.wait(|applied| applied.generation >= generation);
    assert_eq!((removed.failed, removed.services), (0, None));
    running.stop();
}
