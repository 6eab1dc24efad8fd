//! What the objects of one tenant can make fail stays with its Services: the plan is in force for all others, parts are
//! still enough for their changes, and nothing is retried sooner (S-229).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_agent::kernel::SharedModel;
use portolan_agent::programmer::{Applied, Trouble};
use portolan_plan::{
    Change, EndpointDocument, EntryHash, EntryKey, PlanDocument, PlanHash, ServiceDocument,
    ServiceId, StagedChanges,
};
use portolan_reconcile::{SetRole, VirtualServer, VirtualServerKey};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tempfile::TempDir;

use running::{Running, document};

const WEB: &str = "TCP 10.96.0.20:80";

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

fn web() -> ServiceId {
    ServiceId::new("default", "web")
}

fn service<'a>(document: &'a mut PlanDocument, name: &str) -> &'a mut ServiceDocument {
    let mut services = document.services.iter_mut();
    services
        .find(|service| &*service.name == name)
        .expect("the plan has it")
}

/// The plan, with this scheduler for the Service `web`.
fn with_scheduler(scheduler: &str) -> PlanDocument {
    let mut document = document();
    for port in &mut service(&mut document, "web").ports {
        port.scheduler = scheduler.into();
    }
    document
}

fn scheduler(kernel: &SharedModel, server: &str) -> Option<String> {
    let model = kernel.lock();
    let server = model.state.virtual_servers.get(&key(server))?;
    Some(server.scheduler.to_string())
}

/// Whether connections to a virtual server are let through.
fn is_let_through(kernel: &SharedModel, server: &str) -> bool {
    frontends(kernel).contains(&key(server))
}

fn frontends(kernel: &SharedModel) -> BTreeSet<VirtualServerKey> {
    let model = kernel.lock();
    let sets = model.state.sets.iter();
    let sets = sets.filter(|(id, _)| id.role == SetRole::Frontend);
    let entries = sets.flat_map(|(_, set)| &set.entries);
    entries.filter_map(|entry| entry.server()).collect()
}

#[test]
fn a_service_whose_scheduler_the_kernel_lacks_is_served_with_that_of_the_settings() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.kernel.faults().missing_schedulers = ["lblc".into()].into();
    let applied = running.program(with_scheduler("lblc"));
    assert_eq!((applied.failed, applied.failures.len()), (0, 0));
    assert_eq!(scheduler(&running.kernel, WEB).as_deref(), Some("rr"));
    assert!(is_let_through(&running.kernel, WEB));
    let fallback = Trouble::Scheduler("lblc".into());
    assert_eq!(applied.troubles.of(&web()), Some(&fallback));
    assert!(fallback.is_in_force());
    let queue = scheduler(&running.kernel, "SCTP 10.100.0.9:7000");
    assert_eq!(queue.as_deref(), Some("mh"), "other Services keep theirs");

    // Changes of other Services are still compared alone, and change nothing about this one.
    let mut without_queue = with_scheduler("lblc");
    without_queue
        .services
        .retain(|service| &*service.name != "queue");
    let applied = running.program(without_queue);
    assert_eq!((applied.failed, applied.services), (0, Some(1)));
    assert_eq!(applied.troubles.of(&web()), Some(&fallback));
    assert_eq!(running.kernel.faults().services, 1, "one complete read");
    running.stop();
}

/// Once its module is loaded, the scheduler is used without a change of the plan.
#[test]
fn a_scheduler_that_comes_is_used_within_the_sync_period() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.kernel.faults().missing_schedulers = ["lblc".into()].into();
    let mut wanted = with_scheduler("lblc");
    wanted.settings.sync.period = "50ms".parse().unwrap();
    assert!(!running.program(wanted).troubles.is_empty());
    running.kernel.faults().missing_schedulers.clear();
    let applied = running.wait(|applied| applied.troubles.is_empty());
    assert_eq!(applied.failed, 0);
    assert_eq!(scheduler(&running.kernel, WEB).as_deref(), Some("lblc"));
    running.stop();
}

/// The operator's own setting is not replaced by anything.
#[test]
fn a_missing_scheduler_of_the_settings_is_a_failure_of_the_node() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.kernel.faults().missing_schedulers = ["lblc".into()].into();
    let mut wanted = with_scheduler("lblc");
    wanted.settings.scheduler = "lblc".into();
    let applied = running.program(wanted);
    assert!(applied.failed > 0);
    assert_eq!(applied.troubles.of(&web()), None);
    running.stop();
}

#[test]
fn a_refused_endpoint_is_no_failure_of_the_node_and_the_other_endpoints_serve() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let refused: IpAddr = [10, 244, 2, 6].into();
    running.kernel.faults().refused_backends = [refused].into();
    let mut wanted = document();
    wanted.settings.sync.period = "50ms".parse().unwrap();
    let applied = running.program(wanted);
    assert_eq!((applied.failed, applied.failures.len()), (0, 0));
    let found = applied.troubles.of(&web()).expect("the Service is named");
    assert!(!found.is_in_force());
    let Trouble::Endpoint { endpoint, .. } = found else {
        panic!("{found:?}");
    };
    assert_eq!(endpoint, "10.244.2.6:8080");
    assert!(is_let_through(&running.kernel, WEB));
    let backends = running.kernel.lock().state.virtual_servers[&key(WEB)]
        .real_servers
        .len();
    assert_eq!(backends, 2);
    running.kernel.faults().refused_backends.clear();
    running.wait(|applied| applied.troubles.is_empty());
    let backends = running.kernel.lock().state.virtual_servers[&key(WEB)]
        .real_servers
        .len();
    assert_eq!(backends, 3, "it is tried again");
    running.stop();
}

/// A virtual server without a real server would answer its clients wrongly, so it is not let through (S-21).
#[test]
fn a_service_of_which_every_endpoint_is_refused_is_not_let_through() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut wanted = document();
    for port in &mut service(&mut wanted, "web").ports {
        let of_web = port.internal.endpoints.iter().map(|e| e.address);
        running.kernel.faults().refused_backends.extend(of_web);
    }
    let applied = running.program(wanted);
    assert_eq!((applied.failed, applied.failures.len()), (0, 0));
    assert!(applied.troubles.of(&web()).is_some());
    assert!(!is_let_through(&running.kernel, WEB));
    assert!(is_let_through(&running.kernel, "UDP 10.96.0.10:53"));
    running.stop();
}

/// A kernel that refuses most of what several tenants ask for is broken, or the agent is.
#[test]
fn if_most_services_of_several_namespaces_fail_the_node_fails() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    let mut wanted = document();
    for service in &mut wanted.services {
        for port in &mut service.ports {
            let all = port.internal.endpoints.iter().map(|e| e.address);
            running.kernel.faults().refused_backends.extend(all);
        }
    }
    let applied = running.program(wanted);
    assert!(applied.failed > 0);
    assert!(
        applied.failures[0].starts_with("program Services: 3 Services"),
        "{applied:?}"
    );
    running.stop();
}

/// An entry of a Service that cannot be read is reported with the Service, and one of the node is the node's.
#[test]
fn an_unreadable_entry_is_the_fault_of_its_service() {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    assert!(running.program(document()).troubles.is_empty());
    let unreadable = |key: EntryKey, number: u128| {
        let mut staged = StagedChanges::delta();
        staged.push(Change::Upsert {
            key,
            hash: EntryHash(number),
            entry: None,
        });
        let before = running.plans.hash().unwrap();
        let expected = before.with(EntryHash(number));
        let generation = running.plans.commit(staged, expected).unwrap();
        running.wait(|applied| applied.generation >= generation)
    };
    let applied = unreadable(EntryKey::Head(web()), 7);
    assert_eq!((applied.failed, applied.hash), (0, PlanHash(7)));
    let found = applied.troubles.of(&web()).expect("the Service is named");
    assert!(!found.is_in_force());
    assert!(is_let_through(&running.kernel, WEB), "as it was before");

    let applied = unreadable(EntryKey::Other("mirror/all".into()), 8);
    assert_eq!(applied.hash, PlanHash(0), "not everything is in force");
    running.stop();
}

/// The namespaces of the law: only the objects of the tenant are at fault.
const TENANT: &str = "tenant";
const SHOP: &str = "shop";

/// A Service of the law.
#[derive(Debug, Clone)]
struct Made {
    scheduler: &'static str,
    endpoints: Vec<u8>,
}

fn made(schedulers: Vec<&'static str>) -> impl Strategy<Value = Made> {
    let endpoints = subsequence(vec![1u8, 2, 3, 4], 1..=4);
    (select(schedulers), endpoints).prop_map(|(scheduler, endpoints)| Made {
        scheduler,
        endpoints,
    })
}

/// The Services of both namespaces.
type Cluster = [Vec<Made>; 2];

fn cluster() -> impl Strategy<Value = Cluster> {
    let tenant = vec(made(vec!["rr", "lblc", "mh", "lc"]), 1..4);
    (tenant, vec(made(vec!["rr", "wrr"]), 1..4)).prop_map(|(tenant, shop)| [tenant, shop])
}

/// The last part of the cluster IPs of a namespace: that of the shop comes second.
fn subnet(namespace: &str) -> u8 {
    if namespace == TENANT { 8 } else { 9 }
}

fn plan(cluster: &Cluster) -> PlanDocument {
    let mut document = document();
    let mut example = service(&mut document, "web").clone();
    example.ports.truncate(1);
    let mut services = Vec::new();
    for (namespace, of) in [TENANT, SHOP].into_iter().zip(cluster) {
        for (number, made) in (1u8..).zip(of) {
            let mut service = example.clone();
            service.namespace = namespace.into();
            service.name = format!("web-{number}").into();
            let port = &mut service.ports[0];
            port.scheduler = made.scheduler.into();
            port.frontends.truncate(1);
            port.frontends[0].address = Some([10, 96, subnet(namespace), number].into());
            let endpoint = |last: &u8| EndpointDocument {
                address: [10, 244, subnet(namespace), *last].into(),
                port: 8080,
                weight: 1,
            };
            port.internal.endpoints = made.endpoints.iter().map(endpoint).collect();
            services.push(service);
        }
    }
    document.services = services;
    document
}

/// What the kernel has for the shop, or for all.
fn served(
    kernel: &SharedModel,
    all: bool,
) -> (
    BTreeMap<VirtualServerKey, VirtualServer>,
    BTreeSet<VirtualServerKey>,
) {
    let of_shop = |key: &VirtualServerKey| {
        all || matches!(key.address, IpAddr::V4(v4) if v4.octets()[2] == subnet(SHOP))
    };
    let servers = kernel.lock().state.virtual_servers.clone();
    let servers = servers.into_iter().filter(|(key, _)| of_shop(key));
    let servers = servers.collect();
    (
        servers,
        frontends(kernel).into_iter().filter(of_shop).collect(),
    )
}

/// An agent that programmed these plans one after the other, on a kernel with faults.
fn programmed(
    plans: &[Cluster],
    refused: &BTreeSet<IpAddr>,
    missing: &[&'static str],
    state: &TempDir,
) -> (Running, Applied) {
    let running = Running::start(SharedModel::default(), state.path());
    {
        let mut faults = running.kernel.faults();
        faults.refused_backends.clone_from(refused);
        faults.missing_schedulers = missing.iter().map(|name| (*name).into()).collect();
    }
    let mut last = Applied::default();
    for cluster in plans {
        last = running.program(plan(cluster));
        assert_eq!((last.failed, last.failures.len()), (0, 0), "{last:?}");
    }
    (running, last)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn faults_of_one_tenant_change_nothing_for_others(
        plans in vec(cluster(), 1..4),
        refused in subsequence(vec![1u8, 2, 3, 4], 0..=4),
        missing in subsequence(vec!["lblc", "mh"], 0..=2),
    ) {
        let address = |last: &u8| IpAddr::from([10, 244, subnet(TENANT), *last]);
        let refused: BTreeSet<_> = refused.iter().map(address).collect();
        let folders = [(); 3].map(|()| TempDir::new().unwrap());
        let (sound, _) = programmed(&plans, &BTreeSet::new(), &[], &folders[0]);
        let (faulty, applied) = programmed(&plans, &refused, &missing, &folders[1]);
        prop_assert_eq!(served(&faulty.kernel, false), served(&sound.kernel, false));
        prop_assert_eq!(faulty.kernel.faults().services, 1, "parts are enough");

        // Whichever way it got there, the agent says the same.
        let (fresh, of_fresh) = programmed(&plans[plans.len() - 1..], &refused, &missing, &folders[2]);
        prop_assert_eq!(&applied.troubles, &of_fresh.troubles);
        for made in [TENANT, SHOP].into_iter().zip(plans.last().unwrap()) {
            let (namespace, of) = made;
            for (number, made) in (1..).zip(of) {
                let id = ServiceId::new(namespace, format!("web-{number}"));
                let is_refused = |last: &u8| refused.contains(&address(last));
                let lacks = missing.contains(&made.scheduler);
                let any = made.endpoints.iter().any(is_refused);
                let expected = namespace == TENANT && (lacks || any);
                let found = applied.troubles.of(&id);
                prop_assert_eq!(found.is_some(), expected, "{}: {:?}", id, found);
                prop_assert_eq!(found.is_some_and(|found| !found.is_in_force()), namespace == TENANT && any);
            }
        }

        // The faults end, and another plan leads to a complete pass.
        *faulty.kernel.faults() = Default::default();
        let mut after = plan(plans.last().unwrap());
        after.settings.sync.period = "5h".parse().unwrap();
        let applied = faulty.program(after);
        prop_assert!(applied.failed == 0 && applied.troubles.is_empty());
        prop_assert_eq!(served(&faulty.kernel, true), served(&sound.kernel, true));
        for running in [sound, faulty, fresh] {
            running.stop();
        }
    }
}
