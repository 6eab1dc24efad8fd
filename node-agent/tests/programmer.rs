//! The programmer on a model kernel: what it takes for its own, what it does when something fails,
//! and what it remembers.

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
use portolan_agent::programmer::Step;
use portolan_agent::record::Record;
use portolan_agent::slot::Woken;
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

/// I-7, S-109: what is on record is ours, nothing else, wherever it is.
#[test]
fn with_a_record_only_what_is_on_it_is_removed() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert_eq!(running.program(document()).failed, 0);
    // Somebody uses an address of the service range for something of their own.
    put(&running.kernel, "TCP 10.96.200.1:80");
    put(&running.kernel, "TCP 203.0.113.9:80");
    let kernel = running.stop();
    let again = Running::start(kernel, state.path());
    assert_eq!(again.program(without_web()).failed, 0);
    assert!(
        !has(&again.kernel, "TCP 10.96.0.20:80"),
        "the Service that is gone"
    );
    assert!(has(&again.kernel, "TCP 10.96.200.1:80") && has(&again.kernel, "TCP 203.0.113.9:80"));
    again.stop();
}

/// I-7: without a record the service ranges count as ours, so that nothing of ours stays for ever.
#[test]
fn without_a_record_the_service_ranges_are_ours() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let running = Running::start(SharedModel::default(), first.path());
    running.program(document());
    put(&running.kernel, "TCP 203.0.113.9:80");
    let again = Running::start(running.stop(), second.path());
    again.program(without_web());
    assert!(!has(&again.kernel, "TCP 10.96.0.20:80") && has(&again.kernel, "TCP 203.0.113.9:80"));
    again.stop();
}

/// `settings.sync.minPeriod`: changes wait and come together, whatever else happens meanwhile.
#[test]
fn changes_that_come_too_soon_wait_and_come_as_one() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    document.settings.sync.min_period = Period::seconds(3600);
    document.settings.sync.period = Period::seconds(7200);
    assert_eq!(running.program(document.clone()).generation, 1, "the first");
    document.services.retain(|service| &*service.name != "web");
    running.commit(document.clone());
    // The programmer has looked at the network, and left the plan alone.
    let looked = running.kernel.eyes().network;
    running.slot.disturb();
    running.until("a look at the network", |kernel| {
        kernel.eyes().network > looked
    });
    assert!(has(&running.kernel, "TCP 10.96.0.20:80"));
    document.settings.sync.min_period = Period::seconds(0);
    let applied = running.program(document);
    assert_eq!((applied.generation, applied.failed), (3, 0));
    assert!(!has(&running.kernel, "TCP 10.96.0.20:80"));
    running.stop();
}

/// The routes move to the new device before the old one goes, and what it stood in the way of follows.
#[test]
fn a_device_that_settings_do_not_name_any_more_is_removed_last() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    running.program(document.clone());
    running.kernel.lock().log.clear();
    // The model has one device; a look at another one finds nothing of it.
    running.kernel.lock().state.routes.clear();
    running.kernel.lock().state.device_up = false;
    let looked = running.kernel.eyes().network;
    let old = std::mem::replace(&mut document.settings.device, "another0".into());
    assert_eq!(running.program(document).failed, 0);
    running.until("another look", |kernel| kernel.eyes().network > looked + 2);
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

/// S-108: ranges that the settings exclude are never touched.
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
fn a_plan_that_does_not_say_what_the_node_is_is_answered_and_writes_nothing() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut staged = StagedChanges::snapshot();
    staged.push(Change::Upsert {
        key: EntryKey::Node,
        hash: EntryHash(7),
        entry: None,
    });
    running.slot.commit(staged, PlanHash(7)).unwrap();
    let applied = running.wait(|applied| applied.failed > 0);
    assert_eq!(
        applied.failures,
        ["read the plan: it does not say what this node is; is the controller newer?"]
    );
    let kernel = running.stop();
    assert!(kernel.lock().log.is_empty(), "I-4");
}

/// A disk that fails does not keep Services from working, but it is told and tried again.
#[test]
fn a_record_that_cannot_be_written_is_a_failure_until_it_can() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    // A folder in the place of the file that is written first.
    let blocker = state.path().join("virtual-servers.new");
    std::fs::create_dir(&blocker).unwrap();
    let applied = running.program(document());
    assert!(
        applied.failures[0].starts_with("put virtual servers on record"),
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
fn a_damaged_record_is_named_with_its_line() {
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
            "virtual-servers:3: \"TCP 10.96\" is no virtual server; the record is not used"
        ),
        "{error}"
    );
}

/// S-109: a record that cannot be read does not keep the node from being programmed, and is made anew.
#[test]
fn a_damaged_record_is_replaced_by_what_can_only_be_ours() {
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

/// S-184: what somebody else changed is found within the sync period.
#[test]
fn the_kernel_is_looked_at_again_in_every_sync_period() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut document = document();
    document.settings.sync.period = "50ms".parse().unwrap();
    running.program(document);
    let server = key("TCP 10.96.0.20:80");
    running.kernel.lock().state.virtual_servers.remove(&server);
    running.until("the virtual server that somebody removed", |kernel| {
        has(kernel, "TCP 10.96.0.20:80")
    });
    running.stop();
}

/// S-184: one thing that cannot be done for ever, and a network that does not come to rest.
#[test]
fn with_a_lasting_failure_and_no_quiet_moment_the_kernel_is_still_looked_at() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut refused = document();
    refused.settings.sync.period = "5h".parse().unwrap();
    let ports = refused.services.iter_mut().flat_map(|s| &mut s.ports);
    ports.last().expect("the plan has some").scheduler = "none-such".into();
    assert!(running.program(refused).failed > 0);
    let server = key("TCP 10.96.0.20:80");
    let removed = running.kernel.lock().state.virtual_servers.remove(&server);
    assert!(removed.is_some());
    let passing = address("192.168.60.7/24");
    let changes = Cell::new(0);
    running.until("the virtual server that somebody removed", |kernel| {
        // Not before the change before was followed, or two of them would be none.
        if running.slot.wait(Duration::ZERO) == Woken::TimedOut {
            let addresses = &mut kernel.lock().state.host.addresses;
            if addresses.contains(&passing) {
                addresses.retain(|held| *held != passing);
            } else {
                addresses.push(passing.clone());
            }
            running.slot.disturb();
            changes.set(changes.get() + 1);
        }
        has(kernel, "TCP 10.96.0.20:80")
    });
    assert!(
        changes.get() > 10,
        "{changes:?} of the network are no unrest"
    );
    running.stop();
}

/// So many Services like `web`, each on a cluster IP of its own, with this scheduler.
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

/// S-104: more than a pass changes are changed all the same, without waiting for the sync period.
#[test]
fn scheduler_changes_that_were_put_off_follow_at_once() {
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

/// What a trace shows of the kernel's thread.
#[test]
fn a_pass_tells_what_took_its_time_step_by_step() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let first = running.program(document());
    let names = |steps: &[Step]| steps.iter().map(|step| step.name).collect::<Vec<_>>();
    let told = names(&first.steps);
    assert_eq!(told[..4], ["look", "desired state", "observe", "diff"]);
    let phases = [
        "create sets",
        "guard",
        "rules",
        "answer",
        "route",
        "policy rules",
    ];
    let places = phases.map(|phase| told.iter().position(|name| *name == phase));
    assert!(places.is_sorted() && places[0].is_some(), "{told:?}");
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
            "{} begins before the one before ends",
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
