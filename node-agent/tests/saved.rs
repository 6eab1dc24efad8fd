//! The saved plan: a written plan is read back or rejected, and served by a node without a controller.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::{PlanWatch, Source};
use portolan_agent::programmer::Applied;
use portolan_agent::receive::{Link, Outdated};
use portolan_agent::saved::{FileError, Keeper, Origin, SavedError, SavedPlan, restore_saved};
use portolan_plan::{
    Change, EntryHash, NodePlan, PlanDocument, PlanHash, ServiceId, StagedChanges, strategies,
};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::sync::watch;

use running::{Running, document};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn later(seconds: u64) -> SystemTime {
    now() + Duration::from_secs(seconds)
}

fn saved(state: &Path) -> SavedPlan {
    SavedPlan::new(state, "node-a")
}

fn plan() -> NodePlan {
    document().into_plan().unwrap()
}

/// Writes a saved plan as after a reboot: with another boot ID.
fn write_before_reboot(state: &Path, plan: &NodePlan) {
    saved(state).write(plan, now()).unwrap();
    let path = state.join("plan");
    let bytes = std::fs::read(&path).unwrap();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    let at = bytes
        .windows(boot.len() - 1)
        .position(|window| *window == boot[..boot.len() - 1])
        .unwrap();
    let mut other = bytes[..bytes.len() - 8].to_vec();
    other[at] ^= 1;
    let sum = xxhash_rust::xxh3::xxh3_64(&other).to_le_bytes();
    other.extend(sum);
    std::fs::write(&path, other).unwrap();
}

/// Commits a plan as from a controller.
fn put_live(plans: &PlanWatch, plan: &NodePlan) {
    let mut staged = StagedChanges::snapshot();
    for (key, entry) in plan.entries() {
        staged.push(Change::Upsert {
            key: key.clone(),
            hash: EntryHash::default(),
            entry: Some(entry.clone()),
        });
    }
    plans.commit(staged, PlanHash::default()).unwrap();
}

fn boot_critical(names: &[&str]) -> PlanDocument {
    let mut document = document();
    for service in &mut document.services {
        service.boot_critical = names.contains(&&*service.name);
    }
    document
}

fn names(plans: &PlanWatch) -> Vec<String> {
    plans.peek(|plan| plan.heads().map(|(id, _)| id.name.to_string()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A written plan is read back with the same hashes, so that a controller with the same plan has nothing to send.
    #[test]
    fn a_written_plan_is_read_unchanged(entries in strategies::entries()) {
        let entries = entries.into_iter();
        let plan = NodePlan::from_entries(entries.map(|(key, entry)| (key, EntryHash::default(), entry)));
        let state = TempDir::new().unwrap();
        let saved = saved(state.path());
        saved.write(&plan, now()).unwrap();
        let (read, origin) = saved.read().unwrap().unwrap();
        prop_assert!(read.entries().eq(plan.entries()));
        // The hash as the controller computes it.
        let sent = plan.entries().map(|(key, entry)| {
            let bytes = portolan_proto::encode_entry(entry);
            (key.clone(), EntryHash::of(key, &bytes), entry.clone())
        });
        prop_assert_eq!(read.hash(), NodePlan::from_entries(sent).hash());
        prop_assert_eq!(origin.written, now());
        prop_assert!(saved.is_of_this_boot(&origin));
        saved.write(&read, now()).unwrap();
        let (again, _) = saved.read().unwrap().unwrap();
        prop_assert_eq!(again.hash(), read.hash());
    }

    /// A truncated or changed file is never read as a different plan.
    #[test]
    fn a_damaged_plan_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u32, cut in any::<bool>()) {
        let state = TempDir::new().unwrap();
        let saved = saved(state.path());
        saved.write(&plan(), now()).unwrap();
        let path = state.path().join("plan");
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        std::fs::write(&path, bytes).unwrap();
        let refused = saved.read().unwrap_err();
        prop_assert!(
            matches!(refused, SavedError::File { error: FileError::Checksum | FileError::Version, .. }),
            "{refused}"
        );
    }
}

#[test]
fn a_plan_of_another_node_is_rejected_and_a_missing_one_is_none() {
    let state = TempDir::new().unwrap();
    assert!(saved(state.path()).read().unwrap().is_none());
    saved(state.path()).write(&plan(), now()).unwrap();
    let other = SavedPlan::new(state.path(), "node-b").read().unwrap_err();
    assert!(
        other
            .to_string()
            .contains("it is the plan of node \"node-a\", but this node is \"node-b\""),
        "{other}"
    );
    saved(state.path()).remove().unwrap();
    assert!(saved(state.path()).read().unwrap().is_none());
    saved(state.path()).remove().unwrap();
}

#[test]
fn a_failed_write_is_reported_and_the_previous_plan_stays() {
    let state = TempDir::new().unwrap();
    saved(state.path()).write(&plan(), now()).unwrap();
    std::fs::create_dir(state.path().join("plan.new")).unwrap();
    let failed = saved(state.path())
        .write(&NodePlan::default(), now())
        .unwrap_err();
    assert!(
        failed
            .to_string()
            .contains("does the state directory exist"),
        "{failed}"
    );
    let (read, _) = saved(state.path()).read().unwrap().unwrap();
    assert_eq!(read.heads().count(), plan().heads().count());
}

fn origin(state: &Path) -> Origin {
    saved(state).read().unwrap().unwrap().1
}

const HOUR: Duration = Duration::from_secs(3600);

/// A keeper with a connected controller, and its clock.
struct Keeping {
    applied: watch::Sender<Applied>,
    link: watch::Sender<Link>,
    begun: tokio::time::Instant,
}

impl Keeping {
    fn start(state: &Path, plans: &Arc<PlanWatch>) -> Self {
        let (applied_sender, applied) = watch::channel(Applied::default());
        let connected = Link {
            streams: 1,
            ..Link::default()
        };
        let (link_sender, link) = watch::channel(connected);
        let begun = tokio::time::Instant::now();
        let mut keeper = Keeper::new(saved(state), plans.clone());
        tokio::spawn(async move { keeper.keep(applied, link, || now() + begun.elapsed()).await });
        Self {
            applied: applied_sender,
            link: link_sender,
            begun,
        }
    }

    /// A pass takes the plan, and the keeper writes it.
    async fn apply(&self, plans: &PlanWatch) {
        plans.take();
        self.applied.send_replace(Applied::default());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// The time since a controller confirmed the plan, as it is on disk.
    fn age(&self, state: &Path) -> Duration {
        let clock = now() + self.begun.elapsed();
        clock.duration_since(origin(state).confirmed).unwrap()
    }
}

/// The age of a plan is the time since a controller last confirmed it, not since it changed.
#[tokio::test(start_paused = true)]
async fn an_unchanged_plan_stays_recent_while_a_controller_is_connected() {
    let state = TempDir::new().unwrap();
    let plans = Arc::new(PlanWatch::default());
    put_live(&plans, &plan());
    let keeping = Keeping::start(state.path(), &plans);
    keeping.apply(&plans).await;
    let first = origin(state.path());
    assert_eq!((first.written, first.confirmed), (now(), now()));
    let age = || keeping.age(state.path());
    tokio::time::sleep(HOUR).await;
    assert_eq!(origin(state.path()).written, now(), "it is not rewritten");
    // A quarter of `disk.maxAge`, plus the pause between two writes.
    assert!(age() <= Duration::from_secs(160), "{:?}", age());
    let gone = |link: &mut Link| link.trouble = Some("it is gone".into());
    keeping.link.send_modify(gone);
    tokio::time::sleep(HOUR).await;
    assert!(age() >= HOUR, "{:?}", age());
    keeping.link.send_modify(|link| link.trouble = None);
    tokio::time::sleep(Duration::from_secs(160)).await;
    assert!(age() <= Duration::from_secs(160), "{:?}", age());
}

/// S-231. After a reboot, a plan that such a controller sent or kept must not count as recent.
#[tokio::test(start_paused = true)]
async fn an_outdated_controller_confirms_no_plan_and_a_plan_from_it_is_old() {
    let state = TempDir::new().unwrap();
    let plans = Arc::new(PlanWatch::default());
    put_live(&plans, &plan());
    let keeping = Keeping::start(state.path(), &plans);
    keeping.apply(&plans).await;
    let outdated = Outdated::of(Duration::from_secs(100));
    assert!(outdated.is_some());
    keeping.link.send_modify(|link| link.outdated = outdated);
    tokio::time::sleep(HOUR).await;
    assert_eq!(origin(state.path()).confirmed, now(), "it is not confirmed");
    let other = boot_critical(&["dns"]).into_plan().unwrap();
    put_live(&plans, &other);
    keeping.apply(&plans).await;
    let age = keeping.age(state.path());
    assert!(age >= HOUR + Duration::from_secs(100), "{age:?}");
    keeping.link.send_modify(|link| link.outdated = None);
    tokio::time::sleep(Duration::from_secs(160)).await;
    let age = keeping.age(state.path());
    assert!(age <= Duration::from_secs(160), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_the_last_confirmation_of_this_plan_decides() {
    let state = TempDir::new().unwrap();
    let document = boot_critical(&["dns"]);
    write_before_reboot(state.path(), &document.clone().into_plan().unwrap());
    let (held, _) = saved(state.path()).read().unwrap().unwrap();
    saved(state.path())
        .confirm(held.hash(), later(7200))
        .unwrap();
    let plans = Arc::new(PlanWatch::default());
    restore_saved(&saved(state.path()), &plans, later(7800)).await;
    assert_eq!(names(&plans).len(), plan().heads().count());
    // The confirmation is for another plan, as after a crash between the two writes.
    saved(state.path())
        .confirm(PlanHash::default(), later(7200))
        .unwrap();
    assert_eq!(origin(state.path()).confirmed, now());
}

/// Within one boot the kernel still holds the state of the plan, so it is served completely, regardless of its age.
#[tokio::test(start_paused = true)]
async fn after_a_restart_of_the_agent_the_complete_plan_is_served() {
    let state = TempDir::new().unwrap();
    saved(state.path()).write(&plan(), now()).unwrap();
    let plans = Arc::new(PlanWatch::default());
    restore_saved(&saved(state.path()), &plans, later(86_400)).await;
    assert_eq!(names(&plans).len(), plan().heads().count());
    assert!(
        !plans.is_live() && plans.live().is_none(),
        "it is not rewritten"
    );
    let (read, _) = saved(state.path()).read().unwrap().unwrap();
    assert_eq!(
        plans.hash(),
        Some(read.hash()),
        "a controller with the same plan sends nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_an_old_plan_serves_only_boot_critical_services_at_first() {
    let state = TempDir::new().unwrap();
    write_before_reboot(state.path(), &boot_critical(&["dns"]).into_plan().unwrap());
    let plans = Arc::new(PlanWatch::default());
    restore_saved(&saved(state.path()), &plans, later(600)).await;
    assert_eq!(names(&plans).len(), plan().heads().count(), "it is recent");
    let plans = Arc::new(PlanWatch::default());
    let disk = saved(state.path());
    let begun = tokio::time::Instant::now();
    let waiting = tokio::spawn({
        let plans = plans.clone();
        async move { restore_saved(&disk, &plans, later(601)).await }
    });
    tokio::time::sleep(Duration::from_millis(59_999)).await;
    assert_eq!(names(&plans), ["dns"]);
    waiting.await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert_eq!(names(&plans).len(), plan().heads().count());
}

#[tokio::test(start_paused = true)]
async fn a_plan_from_a_controller_is_never_replaced_by_the_saved_one() {
    let state = TempDir::new().unwrap();
    write_before_reboot(state.path(), &plan());
    let running = Running::start(SharedModel::default(), state.path());
    let disk = saved(state.path());
    let plans = running.plans.clone();
    let waiting = tokio::spawn(async move { restore_saved(&disk, &plans, later(601)).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut document = document();
    document.services.retain(|service| &*service.name == "web");
    put_live(&running.plans, &document.into_plan().unwrap());
    waiting.await.unwrap();
    assert_eq!(names(&running.plans), ["web"]);
    restore_saved(&saved(state.path()), &running.plans, later(0)).await;
    assert_eq!(names(&running.plans), ["web"]);
    running.stop();
}

/// S-183: a saved plan may be older than the kernel state; nothing is removed until a controller sends a plan.
#[test]
fn a_saved_plan_removes_nothing() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    let kernel = running.stop();
    let before = kernel.lock().state.virtual_servers.clone();
    let running = Running::start(kernel, state.path());
    let web = ServiceId::new("default", "web");
    running
        .plans
        .restore_saved(plan().part([&web]), Source::Disk);
    let first = running.wait(|applied| applied.generation > 0);
    assert_eq!((first.failed, first.operations), (0, 0));
    assert_eq!(running.kernel.lock().state.virtual_servers, before);
    let mut document = document();
    document.services.retain(|service| &*service.name == "web");
    let live = running.program(document);
    assert!(live.operations > 0, "now they are removed");
    assert!(running.kernel.lock().state.virtual_servers.len() < before.len());
    running.stop();
}

/// After a reboot the kernel is empty, and the saved plan is programmed.
#[test]
fn a_saved_plan_is_programmed_into_an_empty_kernel() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.plans.restore_saved(plan(), Source::Disk);
    let first = running.wait(|applied| applied.generation > 0);
    assert!(first.failed == 0 && first.operations > 0);
    let fresh = running.stop();
    let other = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), other.path());
    running.program(document());
    let live = running.stop();
    assert_eq!(
        fresh.lock().state.virtual_servers,
        live.lock().state.virtual_servers
    );
    assert_eq!(fresh.lock().state.sets, live.lock().state.sets);
}
