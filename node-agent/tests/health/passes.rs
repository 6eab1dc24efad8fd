//! What passes of a programmer make of health: it follows what the kernel has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portolan_agent::health::Changes;
use portolan_agent::health::{Facts, Health, NoLocal, TrafficPolicy};
use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::Source;
use portolan_plan::{
    ExternalClients, Family, FrontendKind, HealthCheckDocument, PlanDocument, Policy,
};
use serde_json::Value;
use tempfile::TempDir;

use super::node;
use super::running::{Running, document};

const PORT: u16 = 32_000;

/// A saved plan makes a node ready once it is applied completely. Endpoint counts stay 0 until a controller sends a
/// plan, because pods may be gone since.
#[test]
fn a_saved_plan_counts_as_applied_only_if_complete() {
    let scene = Scene::start();
    let plan = with_check(2).into_plan().unwrap();
    let applied = |generation| {
        scene
            .running
            .wait(|applied| applied.generation >= generation)
    };
    scene
        .running
        .plans
        .restore_saved(plan.part([]), Source::BootCritical);
    applied(1);
    assert_eq!(families(&scene.health), [None, None]);
    scene.running.plans.restore_saved(plan, Source::Disk);
    applied(2);
    assert_eq!(families(&scene.health), [Some(true), Some(true)]);
    assert_eq!(count(&scene.health), 0);
}

fn with_check(ipv4: u32) -> PlanDocument {
    let mut document = document();
    let check = serde_json::json!({
        "namespace": "default", "name": "web", "port": PORT,
        "localEndpoints": {"IPv4": ipv4, "IPv6": 0},
    });
    let check: HealthCheckDocument = serde_json::from_value(check).unwrap();
    document.health_checks = vec![check];
    document
}

fn count(health: &Health) -> Value {
    let answer = health.check(PORT, Family::Ipv4);
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    body["localEndpoints"].clone()
}

/// Whether each family is healthy, as `/livez` says.
fn families(health: &Health) -> [Option<bool>; 2] {
    let body: Value = serde_json::from_slice(health.livez().body()).unwrap();
    Family::BOTH.map(|family| body["status"][family.as_str()]["healthy"].as_bool())
}

struct Scene {
    running: Running,
    health: Arc<Health>,
    seconds: Arc<std::sync::atomic::AtomicU64>,
    _folder: TempDir,
}

impl Scene {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (health, seconds) = node::health();
        let kernel = SharedModel::default();
        let running = Running::start_with(kernel, folder.path(), health.clone());
        Self {
            running,
            health,
            seconds,
            _folder: folder,
        }
    }

    fn set_second(&self, second: u64) {
        self.seconds.store(second, Ordering::SeqCst);
    }
}

#[test]
fn counts_follow_passes_over_everything_and_over_a_part() {
    let scene = Scene::start();
    assert_eq!(scene.health.check(PORT, Family::Ipv4).status(), 503);
    assert_eq!(scene.health.healthz().status(), 503, "S-148");
    assert_eq!(scene.running.program(with_check(2)).services, None);
    assert_eq!(scene.health.healthz().status(), 200);
    assert_eq!(count(&scene.health), 0, "no plan from a controller yet");
    scene.health.queued(1, Changes::default());
    assert_eq!(count(&scene.health), 2);
    let applied = scene.running.program(with_check(0));
    assert_eq!(applied.services, Some(1), "only what changed is read");
    assert_eq!(count(&scene.health), 0);
    assert_eq!(scene.health.check(PORT, Family::Ipv4).status(), 503);
    assert_eq!(scene.running.program(document()).services, Some(1));
    assert_eq!(scene.health.check(PORT, Family::Ipv4).body()[0], b'n');
    scene.running.stop();
}

/// S-145: the endpoint counts for load balancers do not depend on other failures.
#[test]
fn counts_follow_a_failed_pass_and_a_lasting_failure_affects_only_its_family() {
    let scene = Scene::start();
    scene.health.queued(1, Changes::default());
    assert_eq!(scene.running.program(with_check(2)).failed, 0);
    scene.running.kernel.faults().refused_rules = Some(Family::Ipv6);
    scene
        .running
        .kernel
        .lock()
        .state
        .rules
        .remove(&Family::Ipv6);
    scene.set_second(100);
    // Another device name forces a complete pass.
    let mut refused = with_check(3);
    refused.settings.device = "other0".into();
    assert!(scene.running.program(refused).failed > 0);
    assert_eq!(count(&scene.health), 3);
    scene.set_second(159);
    assert_eq!(families(&scene.health), [Some(true); 2]);
    scene.set_second(160);
    assert_eq!(families(&scene.health), [Some(true), Some(false)], "S-169");
    assert_eq!(scene.health.check(PORT, Family::Ipv4).status(), 503);
    scene.running.kernel.faults().refused_rules = None;
    scene.running.wait(|applied| applied.failed == 0);
    assert_eq!(families(&scene.health), [Some(true); 2]);
    assert_eq!(scene.health.healthz().status(), 200);
    scene.running.stop();
}

/// S-71.
#[test]
fn services_without_an_endpoint_here_are_counted_once_by_policy() {
    let count =
        |document: PlanDocument| Facts::of(&document.into_plan().unwrap()).no_local().clone();
    assert_eq!(count(document()), NoLocal::new());
    let mut none_here = document();
    let mut services = none_here.services.iter_mut();
    let web = services.find(|service| &*service.name == "web").unwrap();
    for port in &mut web.ports {
        port.internal.policy = Policy::Local;
        port.internal.scope = "node/node-a".into();
        port.internal.endpoints.clear();
        let mut external = port.internal.clone();
        external.external_clients = ExternalClients::Drop;
        port.external = Some(external);
        let mut node_port = port.frontends[0].clone();
        (node_port.kind, node_port.address) = (FrontendKind::NodePort, None);
        port.frontends.push(node_port);
    }
    // A Service with two ports counts once.
    let mut another = web.ports[0].clone();
    another.name = "another".into();
    for frontend in &mut another.frontends {
        frontend.port += 1;
    }
    web.ports.push(another);
    let counted = count(none_here);
    let of = |policy| counted.get(&(Family::Ipv4, policy)).copied();
    assert_eq!(of(TrafficPolicy::Internal), Some(1), "{counted:?}");
    assert_eq!(of(TrafficPolicy::External), Some(1), "{counted:?}");
}

/// A user who may only edit one Service must not be able to remove nodes from the load balancers of all others.
#[test]
fn an_unknown_scheduler_does_not_make_a_node_unhealthy() {
    let scene = Scene::start();
    let mut wanted = document();
    let ports = wanted.services.iter_mut().flat_map(|s| &mut s.ports);
    ports.last().expect("the plan has some").scheduler = "none-such".into();
    let applied = scene.running.program(wanted);
    assert_eq!(applied.failed, 0, "S-229");
    assert!(!applied.troubles.is_empty());
    scene.set_second(1_000);
    assert_eq!(families(&scene.health), [Some(true); 2]);
    scene.running.stop();
}
