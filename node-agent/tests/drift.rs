//! The programmer on a model kernel: drift, which is changes by other programs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use portolan_agent::kernel::SharedModel;
use portolan_plan::{Drift as Mode, Family, PlanDocument};
use portolan_reconcile::{
    Drift, DriftCount, DriftKind, HostRoute, RealServerKey, Route, SetId, SetRole, VirtualServerKey,
};
use tempfile::TempDir;

use running::{Running, document};

const FRONTENDS: SetId = SetId {
    role: SetRole::Frontend,
    family: Family::Ipv4,
};

fn web() -> VirtualServerKey {
    "TCP 10.96.0.20:80".parse().unwrap()
}

/// The plan, with a sync period short enough for a test.
fn plan(mode: Mode) -> PlanDocument {
    let mut document = document();
    document.settings.drift = mode;
    document.settings.sync.period = "50ms".parse().unwrap();
    document
}

fn backend_of(kernel: &SharedModel) -> RealServerKey {
    let model = kernel.lock();
    let held = &model.state.virtual_servers[&web()];
    held.real_servers.keys().next().expect("it has some")
}

/// A real server without weight, a set without entries, no route, a setting: by hand.
fn damage(kernel: &SharedModel) -> RealServerKey {
    let backend = backend_of(kernel);
    let state = &mut kernel.lock().state;
    let held = state.virtual_servers.get_mut(&web()).unwrap();
    held.real_servers.insert(backend, 0);
    state.sets.get_mut(&FRONTENDS).unwrap().entries.clear();
    state.routes.pop_first();
    let name = "net.ipv4.vs.conntrack".into();
    state.sysctls.insert(name, "0".into());
    backend
}

/// One counter of each kind.
fn counts(drift: &Drift, of: fn(&DriftCount) -> u64) -> Vec<(DriftKind, u64)> {
    drift
        .iter()
        .map(|(kind, count)| (*kind, of(count)))
        .collect()
}

fn entries(kernel: &SharedModel) -> u64 {
    kernel.lock().state.sets[&FRONTENDS].entries.len() as u64
}

fn expected(frontends: u64) -> Vec<(DriftKind, u64)> {
    vec![
        (DriftKind::Weight, 1),
        (DriftKind::SetEntry, frontends),
        (DriftKind::Route, 1),
        (DriftKind::KernelSetting, 1),
    ]
}

fn weight(kernel: &SharedModel, backend: &RealServerKey) -> Option<u32> {
    let model = kernel.lock();
    let held = model.state.virtual_servers.get(&web())?;
    held.real_servers.get(backend)
}

/// S-107, S-161, S-184: changes by hand are repaired and counted by kind.
#[test]
fn drift_is_repaired_and_counted_by_kind() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let applied = running.program(plan(Mode::Repair));
    assert_eq!((applied.failed, &applied.drift), (0, &Drift::new()));
    let frontends = entries(&running.kernel);
    let backend = damage(&running.kernel);
    let repaired = |drift: &Drift| counts(drift, |count| count.repaired);
    let applied = running.wait(|applied| repaired(&applied.drift) == expected(frontends));
    assert_eq!(counts(&applied.drift, |c| c.found), expected(frontends));
    assert!(applied.drift.values().all(|count| count.unrepaired == 0));
    assert_eq!(weight(&running.kernel, &backend), Some(1));
    running.stop();
}

/// Drift that is only reported is not repaired by any number of reads. Changes of the plan are applied, and failures
/// retried. The other mode repairs the rest.
#[test]
fn reported_drift_stays_until_the_plan_or_the_settings_change() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(plan(Mode::Report)).failed, 0);
    let frontends = entries(&running.kernel);
    let written = running.kernel.lock().log.len();
    let backend = damage(&running.kernel);
    let unrepaired = |drift: &Drift| counts(drift, |count| count.unrepaired);
    running.wait(|applied| unrepaired(&applied.drift) == expected(frontends));
    let looks = running.kernel.faults().services;
    running.until("more reads", |kernel| kernel.faults().services > looks + 3);
    assert_eq!(
        running.kernel.lock().log.len(),
        written,
        "nothing is written"
    );

    // The plan changes something else and a part of the drift, and contains an impossible change.
    let mut changed = plan(Mode::Report);
    changed.services.retain(|service| &*service.name != "empty");
    let service = changed.services.iter_mut().find(|s| &*s.name == "web");
    let ports = &mut service.expect("the plan has it").ports;
    ports[0].affinity_seconds = Some(77);
    let mut refused = changed.clone();
    let last = refused
        .services
        .iter_mut()
        .flat_map(|s| &mut s.ports)
        .last();
    last.expect("the plan has some").scheduler = "none-such".into();
    // It is no wish of that Service alone.
    refused.settings.scheduler = "none-such".into();
    assert!(running.program(refused).failed > 0);
    let held = running.kernel.lock().state.virtual_servers[&web()].clone();
    assert_eq!(
        (held.timeout, held.real_servers.get(&backend)),
        (77, Some(0))
    );
    // The failure is retried, and the drift stays.
    let loads = |kernel: &SharedModel| kernel.lock().log.len();
    let before = loads(&running.kernel);
    let applied = running.wait(|applied| applied.failed > 0);
    assert_eq!(unrepaired(&applied.drift), expected(frontends));
    assert_eq!(
        (loads(&running.kernel), entries(&running.kernel)),
        (before, 0)
    );
    assert_eq!(running.program(changed.clone()).failed, 0);
    assert_eq!(entries(&running.kernel), 0);

    changed.settings.drift = Mode::Repair;
    let applied = running.program(changed);
    assert_eq!(counts(&applied.drift, |c| c.repaired), expected(frontends));
    assert_eq!(
        counts(&applied.drift, |c| c.found),
        expected(frontends),
        "once"
    );
    assert!(applied.drift.values().all(|count| count.unrepaired == 0));
    assert_eq!(
        (weight(&running.kernel, &backend), entries(&running.kernel)),
        (Some(1), frontends)
    );
    running.stop();
}

/// A change of the plan for an object with drift takes the actual state into account.
#[test]
fn a_changed_plan_recreates_what_is_gone() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(plan(Mode::Report)).failed, 0);
    running.kernel.lock().state.virtual_servers.remove(&web());
    running.wait(|applied| applied.drift.values().any(|count| count.unrepaired == 1));
    let mut changed = plan(Mode::Report);
    let service = changed.services.iter_mut().find(|s| &*s.name == "web");
    let list = &mut service.expect("the plan has it").ports[0].internal;
    let first = list.endpoints.iter().position(|e| e.address.is_ipv4());
    list.endpoints.remove(first.expect("it has one"));
    let left = list
        .endpoints
        .iter()
        .filter(|e| e.address.is_ipv4())
        .count();
    let applied = running.program(changed);
    assert_eq!(applied.failed, 0, "{applied:?}");
    let held = running.kernel.lock().state.virtual_servers[&web()]
        .real_servers
        .len();
    assert_eq!(held, left);
    assert!(
        applied
            .drift
            .values()
            .all(|count| (count.repaired, count.unrepaired) == (1, 0))
    );
    running.stop();
}

/// Routes and the device are read again after events, without waiting for the sync period, which is an hour here.
#[test]
fn changes_found_after_events_count_as_drift() {
    for (mode, unrepaired) in [(Mode::Repair, 0), (Mode::Report, 1)] {
        let state = TempDir::new().unwrap();
        let running = Running::start(SharedModel::default(), state.path());
        let mut document = plan(mode);
        document.settings.sync.period = "1h".parse().unwrap();
        assert_eq!(running.program(document).failed, 0);
        {
            let state = &mut running.kernel.lock().state;
            state.device_up = false;
            state
                .routes
                .retain(|route| matches!(route, Route::Deliver { .. }));
        }
        running.plans.disturb();
        let applied = running.wait(|applied| !applied.drift.is_empty());
        let count = applied.drift[&DriftKind::Device];
        assert_eq!(
            (count.found, count.repaired, count.unrepaired),
            (1, 1 - unrepaired, unrepaired)
        );
        assert_eq!(applied.drift.len(), 1, "its routes are gone with it");
        assert_eq!(running.kernel.lock().state.device_up, mode == Mode::Repair);
        // Changes of other programs' objects are not drift.
        let route = HostRoute {
            destination: "10.244.7.0/24".parse().unwrap(),
            gateway: None,
        };
        running.kernel.lock().state.host.routes.push(route);
        let looks = running.kernel.faults().network;
        running.plans.disturb();
        running.until("another read", |kernel| kernel.faults().network > looks);
        let kernel = running.stop();
        assert_eq!(kernel.lock().state.device_up, mode == Mode::Repair);
    }
}
