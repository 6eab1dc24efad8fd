//! The programmer on a model kernel: ownership, failures, and the record.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::cell::Cell;
use std::time::Duration;

use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::Woken;
use portolan_agent::programmer::Step;
use portolan_agent::record::Record;
use portolan_plan::{Change, EntryHash, EntryKey, Period, PlanDocument, PlanHash, StagedChanges};
use portolan_reconcile::{
    LinkOp, ModelKernel, Op, RESCHEDULED_AT_ONCE, RealServers, Route, SetOp, SetRole,
    VirtualServer, VirtualServerKey,
};
use tempfile::TempDir;

use running::{Running, address, document};

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

fn put(kernel: &SharedModel, server: &str) {
    let foreign = VirtualServer {
        scheduler: "wlc".into(),
        flags: 0,
        timeout: 0,
        real_servers: RealServers::new(),
    };
    kernel
        .lock()
        .state
        .virtual_servers
        .insert(key(server), foreign);
}

fn has(kernel: &SharedModel, server: &str) -> bool {
    kernel
        .lock()
        .state
        .virtual_servers
        .contains_key(&key(server))
}

fn without_web() -> PlanDocument {
    let mut document = document();
    document.services.retain(|service| &*service.name != "web");
    document
}

/// I-7, S-109: only recorded virtual servers are owned, regardless of their address.
#[test]
fn with_a_record_only_recorded_servers_are_removed() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(document()).failed, 0);
    // Another program uses an address of the service range.
    put(&running.kernel, "TCP 10.96.200.1:80");
    put(&running.kernel, "TCP 203.0.113.9:80");
    let kernel = running.stop();
    let again = Running::start(kernel, state.path());
    assert_eq!(again.program(without_web()).failed, 0);
    assert!(
        !has(&again.kernel, "TCP 10.96.0.20:80"),
        "the deleted Service"
    );
    assert!(has(&again.kernel, "TCP 10.96.200.1:80") && has(&again.kernel, "TCP 203.0.113.9:80"));
    again.stop();
}

/// I-7: without a record the service ranges count as owned, so that no leftover stays forever.
#[test]
fn without_a_record_the_service_ranges_count_as_owned() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let running = Running::start(SharedModel::default(), first.path());
    running.program(document());
    put(&running.kernel, "TCP 203.0.113.9:80");
    let again = Running::start(running.stop(), second.path());
    again.program(without_web());
    assert!(!has(&again.kernel, "TCP 10.96.0.20:80") && has(&again.kernel, "TCP 203.0.113.9:80"));
    again.stop();
}

/// `settings.sync.minPeriod`: changes wait and are applied together, regardless of other events.
#[test]
fn frequent_changes_wait_and_are_applied_together() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    document.settings.sync.min_period = Period::seconds(3600);
    document.settings.sync.period = Period::seconds(7200);
    assert_eq!(running.program(document.clone()).generation, 1, "the first");
    document.services.retain(|service| &*service.name != "web");
    running.commit(document.clone());
    // The programmer has read the network, without applying the plan.
    let looked = running.kernel.faults().network;
    running.plans.disturb();
    running.until("a read of the network", |kernel| {
        kernel.faults().network > looked
    });
    assert!(has(&running.kernel, "TCP 10.96.0.20:80"));
    document.settings.sync.min_period = Period::seconds(0);
    let applied = running.program(document);
    assert_eq!((applied.generation, applied.failed), (3, 0));
    assert!(!has(&running.kernel, "TCP 10.96.0.20:80"));
    running.stop();
}

/// The routes move to the new device before the old one is removed. Another read of the network follows.
#[test]
fn a_replaced_device_is_removed_last() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    running.program(document.clone());
    running.kernel.lock().log.clear();
    // The model has only one device, so a read of another one finds nothing.
    running.kernel.lock().state.routes.clear();
    running.kernel.lock().state.device_up = false;
    let looked = running.kernel.faults().network;
    let old = std::mem::replace(&mut document.settings.device, "another0".into());
    assert_eq!(running.program(document).failed, 0);
    running.until("another read", |kernel| {
        kernel.faults().network > looked + 2
    });
    let kernel = running.stop();
    let log = &kernel.lock().log;
    let raised = Op::Link(LinkOp::RaiseDevice {
        device: "another0".into(),
    });
    let retired = Op::Link(LinkOp::RetireDevice { device: old });
    assert_eq!((log.first(), log.last()), (Some(&raised), Some(&retired)));
    let on = |op: &&Op| matches!(op, Op::Link(LinkOp::AddRoute { device, route }) if &**device == "another0" && matches!(**route, Route::Range { .. }));
    assert!(log.iter().filter(on).count() > 1, "a range of each family");
}

/// S-108: ranges that the settings exclude are never modified.
#[test]
fn excluded_ranges_are_left_alone() {
    let state = TempDir::new().unwrap();
    let kernel = SharedModel::default();
    put(&kernel, "TCP 10.96.0.20:80");
    let running = Running::start(kernel, state.path());
    let mut document = document();
    document.settings.exclude_cidrs = vec!["10.96.0.20/32".parse().unwrap()];
    assert_eq!(running.program(document).failed, 0);
    let kernel = running.stop();
    let kernel = kernel.lock();
    assert_eq!(
        &*kernel.state.virtual_servers[&key("TCP 10.96.0.20:80")].scheduler,
        "wlc"
    );
    assert!(
        kernel
            .state
            .virtual_servers
            .contains_key(&key("UDP 10.96.0.10:53"))
    );
}

#[test]
fn a_plan_without_the_node_fails_and_writes_nothing() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut staged = StagedChanges::snapshot();
    staged.push(Change::Upsert {
        key: EntryKey::Node,
        hash: EntryHash(7),
        entry: None,
    });
    running.plans.commit(staged, PlanHash(7)).unwrap();
    let applied = running.wait(|applied| applied.failed > 0);
    assert_eq!(
        applied.failures,
        ["read the plan: it has no entry for this node; is the controller newer than the agent?"]
    );
    let kernel = running.stop();
    assert!(kernel.lock().log.is_empty(), "I-4");
}

/// With a failing disk Services work, but the failure is reported and retried.
#[test]
fn an_unwritable_record_is_a_failure_until_it_can_be_written() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    // A directory with the name of the temporary file.
    let blocker = state.path().join("virtual-servers.new");
    std::fs::create_dir(&blocker).unwrap();
    let applied = running.program(document());
    assert!(
        applied.failures[0].starts_with("record virtual servers"),
        "{applied:?}"
    );
    assert_eq!(applied.failed, 1, "once in a pass: {applied:?}");
    assert!(has(&running.kernel, "TCP 10.96.0.20:80"));
    std::fs::remove_dir(&blocker).unwrap();
    running.wait(|applied| applied.failed == 0);
    let record = std::fs::read_to_string(state.path().join("virtual-servers")).unwrap();
    assert!(record.contains("TCP 10.96.0.20:80\n"), "{record}");
    running.stop();
}

#[test]
fn the_error_for_a_damaged_record_contains_its_line() {
    let state = TempDir::new().unwrap();
    let record = Record::open(state.path()).unwrap();
    assert_eq!(record.read().unwrap(), None);
    let servers = [key("TCP 10.96.0.20:80"), key("UDP [fd00::1]:53")].into();
    record.write(&servers).unwrap();
    assert_eq!(record.read().unwrap(), Some(servers));
    let file = state.path().join("virtual-servers");
    std::fs::write(
        &file,
        "portolan virtual servers 1\nTCP 10.96.0.20:80\nTCP 10.96\n",
    )
    .unwrap();
    let error = record.read().unwrap_err().to_string();
    assert!(
        error.ends_with(
            "virtual-servers:3: \"TCP 10.96\" is not a virtual server; ignoring the record"
        ),
        "{error}"
    );
}

/// S-109: an unreadable record does not prevent programming, and is replaced.
#[test]
fn a_damaged_record_is_replaced_by_certain_ownership() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    put(&running.kernel, "TCP 203.0.113.9:80");
    let kernel = running.stop();
    let file = state.path().join("virtual-servers");
    std::fs::write(&file, b"portolan virtual servers 1\nTCP \xff\n").unwrap();
    let again = Running::start(kernel, state.path());
    assert_eq!(again.program(without_web()).failed, 0);
    assert!(!has(&again.kernel, "TCP 10.96.0.20:80") && has(&again.kernel, "TCP 203.0.113.9:80"));
    again.stop();
    let record = std::fs::read_to_string(&file).unwrap();
    assert!(
        record.contains("UDP 10.96.0.10:53\n") && !record.contains("203.0.113.9"),
        "{record}"
    );
}

/// S-184: changes by other programs are found within the sync period.
#[test]
fn the_kernel_is_read_again_in_every_sync_period() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    document.settings.sync.period = "50ms".parse().unwrap();
    running.program(document);
    let server = key("TCP 10.96.0.20:80");
    running.kernel.lock().state.virtual_servers.remove(&server);
    running.until("the removed virtual server", |kernel| {
        has(kernel, "TCP 10.96.0.20:80")
    });
    running.stop();
}

/// S-184: with an operation that always fails, and a network that changes all the time.
#[test]
fn despite_a_lasting_failure_and_constant_events_the_kernel_is_still_read() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut refused = document();
    refused.settings.sync.period = "5h".parse().unwrap();
    let ports = refused.services.iter_mut().flat_map(|s| &mut s.ports);
    ports.last().expect("the plan has some").scheduler = "none-such".into();
    refused.settings.scheduler = "none-such".into();
    assert!(running.program(refused).failed > 0);
    let server = key("TCP 10.96.0.20:80");
    let removed = running.kernel.lock().state.virtual_servers.remove(&server);
    assert!(removed.is_some());
    let passing = address("192.168.60.7/24");
    let changes = Cell::new(0);
    running.until("the removed virtual server", |kernel| {
        // Wait until the previous change was processed: two changes would cancel each other.
        if running.plans.wait(Duration::ZERO) == Woken::TimedOut {
            let addresses = &mut kernel.lock().state.host.addresses;
            if addresses.contains(&passing) {
                addresses.retain(|held| *held != passing);
            } else {
                addresses.push(passing.clone());
            }
            running.plans.disturb();
            changes.set(changes.get() + 1);
        }
        has(kernel, "TCP 10.96.0.20:80")
    });
    assert!(
        changes.get() > 10,
        "only {changes:?} changes of the network"
    );
    running.stop();
}

/// This number of Services like `web`, each with its own cluster IP, and with this scheduler.
fn many(count: u8, scheduler: &str) -> PlanDocument {
    let mut document = document();
    let web = document
        .services
        .iter()
        .find(|service| &*service.name == "web");
    let web = web.expect("the plan has it").clone();
    let copy = |number: u8| {
        let mut service = web.clone();
        service.name = format!("web-{number}").into();
        service.ports.truncate(1);
        for port in &mut service.ports {
            port.scheduler = scheduler.into();
            port.frontends.truncate(1);
            port.frontends[0].address = Some([10, 96, 7, number].into());
        }
        service
    };
    document.services = (0..count).map(copy).collect();
    document
}

/// S-104: more changes than one pass makes follow without waiting for the sync period.
#[test]
fn postponed_scheduler_changes_follow_at_once() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let count = u8::try_from(RESCHEDULED_AT_ONCE * 3).unwrap();
    assert_eq!(running.program(many(count, "rr")).failed, 0);
    let applied = running.program(many(count, "lc"));
    assert_eq!(applied.failed, 0);
    running.until("the last scheduler", |kernel| {
        let model = kernel.lock();
        let mut servers = model.state.virtual_servers.values();
        servers.len() == usize::from(count) && servers.all(|server| &*server.scheduler == "lc")
    });
    let kernel = running.stop();
    let held = |model: &ModelKernel| {
        let holds = |op: &&Op| matches!(op, Op::Set(SetOp::AddEntry { set, .. }) if set.role == SetRole::Hold);
        model.log.iter().filter(holds).count()
    };
    assert_eq!(held(&kernel.lock()), usize::from(count));
}

/// The steps that a trace shows for the programmer.
#[test]
fn a_pass_reports_the_duration_of_each_step() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let first = running.program(document());
    let names = |steps: &[Step]| steps.iter().map(|step| step.name).collect::<Vec<_>>();
    let steps = names(&first.steps);
    assert_eq!(
        steps[..4],
        ["read network", "desired state", "observe", "diff"]
    );
    let phases = [
        "create sets",
        "add guards",
        "load rules",
        "add first routes",
        "add first policy rules",
        "add frontends",
    ];
    let places = phases.map(|phase| steps.iter().position(|name| *name == phase));
    assert!(places.is_sorted() && places[0].is_some(), "{steps:?}");
    let operations = first
        .steps
        .iter()
        .map(|step| step.operations)
        .sum::<usize>();
    assert_eq!(operations, first.operations, "each is in one step");
    let mut end = Duration::ZERO;
    for step in first.steps.iter() {
        assert!(
            step.after >= end,
            "{} begins before the end of the previous step",
            step.name
        );
        end = step.after + step.took;
    }
    assert!(end <= first.took);
    let second = running.program(without_web());
    assert!(
        second
            .steps
            .iter()
            .any(|step| step.name == "remove servers")
    );
    assert!(second.began > first.began);
    running.stop();
}

/// A pass is a sequence of steps, so that a long one is not taken for a hang; a kernel that does not answer is one.
#[test]
fn each_step_of_a_pass_is_progress_and_a_wait_for_the_kernel_is_none() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let steps = || running.plans.heartbeat().count();
    let before = steps();
    let applied = running.program(document());
    assert!(applied.steps.len() > 3, "{applied:?}");
    assert!(steps() >= before + applied.steps.len() as u64);
    let model = running.kernel.lock();
    let mut document = document();
    document.settings.scheduler = "wrr".into();
    running.commit(document);
    // It waits for the lock of the model.
    let mut last = None;
    let hangs = || {
        let now = running.plans.progress();
        let same = now.is_some() && now == last;
        last = now;
        same
    };
    let observed = std::iter::repeat_with(hangs).inspect(|_| {
        std::thread::sleep(Duration::from_millis(5));
    });
    let observed: Vec<_> = observed.take(200).collect();
    let end = observed.iter().rev().take_while(|hangs| **hangs).count();
    assert!(end > 10, "{observed:?}");
    drop(model);
    running.stop();
}
