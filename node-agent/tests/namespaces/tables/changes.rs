//! Changes while clients connect: of backends, of the rules, of the agent, and by other programs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_blocking::testing::runner::output_of;
use portolan_agent::kernel::linux::Events;
use portolan_agent::tables::FlowCleanup;
use portolan_plan::Family;
use portolan_reconcile::UDP_GRACE;
use portolan_reconcile::nftables::TableDriftKind;

use super::services::{CLUSTER_IP, EXTERNAL_IP, at, dns, everywhere, texts, web};
use super::traffic::{TCP_PORT, connect, tcp, udp, works};
use super::world::World;

/// Interval between two connections of a load: more than 100 in a second.
const INTERVAL: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(10);

/// New connections from outside, one after another, until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    fn start(world: &World, to: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = world.client.start(move || {
            let (mut made, mut failures) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                if let Err(error) = tcp(&to) {
                    failures.push(format!(
                        "connection {made} after {:?}: {error}",
                        began.elapsed()
                    ));
                }
                made += 1;
                std::thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
            }
            (made, failures)
        });
        Self { stop, thread }
    }

    /// Stops it, and expects at least this number of connections and no failed one.
    fn end(self, least: usize) {
        self.stop.store(true, Ordering::Relaxed);
        let (made, failures) = self.thread.join().unwrap();
        assert_eq!(failures, Vec::<String>::new(), "of {made}");
        assert!(made >= least, "{made} connections");
    }
}

pub(crate) fn replaced_under_load() {
    let mut world = World::new(4);
    let services = [web(&world)];
    world.apply(&services);
    let loads = CLUSTER_IP.map(|address| Load::start(&world, at(address, 80)));
    let begun = Instant::now();
    let mut changes = 0;
    // A busy machine makes fewer changes in that time.
    while changes <= 50 || begun.elapsed() < Duration::from_secs(4) {
        // One to three of the pods, never the same ones twice in succession.
        let chosen = (0..=changes % 3).map(|more| &world.pods[(changes + more) % 4]);
        let backends: Vec<_> = chosen.flat_map(|pod| pod.backends(TCP_PORT)).collect();
        let services = [everywhere("TCP", 80, &texts(&backends))];
        assert!(world.apply(&services).operations > 0);
        changes += 1;
        std::thread::sleep(Duration::from_millis(15));
    }
    loads.into_iter().for_each(|load| load.end(200));
}

/// S-106, S-199.
pub(crate) fn restart() {
    let mut world = World::new(2);
    let services = [web(&world), dns(&world)];
    world.apply(&services);
    let to = at(CLUSTER_IP[0], 80);
    let (_, mut open) = world.client.inside(|| connect(&to, LIMIT)).unwrap();
    let load = Load::start(&world, to);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        world.restart();
        let outcome = world.apply(&services);
        assert_eq!((outcome.operations, outcome.built), (0, BTreeSet::new()));
    }
    assert!(works(&mut open));
    load.end(50);
}

pub(crate) fn rebuild() {
    let mut world = World::new(3);
    let mut service = web(&world);
    service["ports"][0]["affinitySeconds"] = 600.into();
    let services = [service];
    world.apply(&services);
    let to = at(CLUSTER_IP[0], 80);
    let (first, mut open) = world.client.inside(|| connect(&to, LIMIT)).unwrap();
    let load = Load::start(&world, to.clone());
    // On older kernels, tables have other chains.
    let kernel = world.host.machine.kernel;
    for version in [(5, 8), kernel, (5, 8)] {
        std::thread::sleep(Duration::from_millis(200));
        world.host.machine.kernel = version;
        let outcome = world.apply(&services);
        assert_eq!(outcome.built, Family::BOTH.into());
    }
    load.end(50);
    assert!(works(&mut open), "established connections are kept");
    let after = world.client.inside(|| tcp(&to)).unwrap();
    assert_eq!(after.pod, first.pod, "the affinity map is kept");
}

pub(crate) fn others() {
    let mut world = World::new(1);
    let (ring, bell) = sync_channel(1);
    let ring = move || ring.try_send(()).unwrap_or_default();
    let changes = world.changes.clone();
    let _events = Events::of_tables(changes, ring).unwrap();
    // On a busy machine, events of own changes may be lost. Then it rings, but the generation shows that all are own.
    let silence = |wait| while bell.recv_timeout(wait).is_ok() {};
    let services = [web(&world)];
    world.apply(&services);
    silence(Duration::from_millis(600));
    assert!(!world.keeper.check_disturbed(), "own changes");
    output_of("nft", &["add", "table", "ip", "other"]);
    output_of("nft", &["add", "chain", "ip", "other", "portolan"]);
    silence(Duration::from_millis(600));
    assert!(!world.keeper.check_disturbed(), "tables of others");
    let to = at(CLUSTER_IP[0], 80);
    for (change, kind) in [
        ("delete table ip portolan", TableDriftKind::Table),
        ("flush chain ip portolan drops-pre", TableDriftKind::Part),
        ("flush set ip portolan frontend", TableDriftKind::Missing),
        (
            "add element ip portolan frontend { 10.96.0.99 . tcp . 80 }",
            TableDriftKind::Unexpected,
        ),
        ("flush ruleset", TableDriftKind::Table),
    ] {
        output_of("nft", &[change]);
        assert_eq!(bell.recv_timeout(LIMIT), Ok(()), "{change}");
        assert!(world.keeper.check_disturbed(), "{change}");
        let before = world.keeper.drift().get(&kind).copied().unwrap_or_default();
        assert!(world.apply(&services).operations > 0, "{change}");
        let after = world.keeper.drift()[&kind];
        assert!(after.repaired > before.repaired, "{change}: {after:?}");
        assert_eq!(after.unrepaired, 0, "{change}");
        world
            .client
            .inside(|| assert!(tcp(&to).is_ok(), "{change}"));
        assert_eq!(world.apply(&services).operations, 0, "{change}");
        silence(Duration::from_millis(600));
        assert!(!world.keeper.check_disturbed(), "{change}");
    }
}

/// S-124, S-126.
pub(crate) fn stale_flows() {
    let mut world = World::new(2);
    let with = |world: &World, pod: usize| {
        let backends = world.pods[pod].backends(super::traffic::UDP_PORT);
        [everywhere("UDP", 53, &texts(&backends))]
    };
    // The client sends before the Service exists. Without any rules, nothing would be tracked.
    world.apply(&[]);
    let to = EXTERNAL_IP.map(|address| at(address, 53));
    world.client.inside(|| {
        for to in &to {
            assert!(udp(40_000, to).is_err());
        }
    });
    let answered_by = |world: &World, pod: usize| {
        world.client.inside(|| {
            for to in &to {
                assert_eq!(udp(40_000, to).unwrap().pod, format!("pod{pod}"));
            }
        });
    };
    let deleted = |flows: &[FlowCleanup]| -> u64 { flows.iter().map(|done| done.deleted).sum() };
    let services = with(&world, 0);
    let outcome = world.apply(&services);
    assert!(deleted(&outcome.flows) >= 1, "{:?}", outcome.flows);
    answered_by(&world, 0);
    // The flows of a backend that is replaced go on for a second (S-116).
    for (former, pod) in [(0, 1), (1, 0)] {
        let services = with(&world, pod);
        let begin = Instant::now();
        let outcome = world.apply(&services);
        assert_eq!(deleted(&outcome.flows), 0, "{:?}", outcome.flows);
        answered_by(&world, former);
        assert!(world.keeper.end_flows(begin).is_empty());
        std::thread::sleep(UDP_GRACE);
        let ended = world.keeper.end_flows(Instant::now());
        assert!(deleted(&ended) >= 1, "{ended:?}");
        answered_by(&world, pod);
    }
}

/// S-113, S-115.
pub(crate) fn drains() {
    let mut world = World::new(2);
    let with = |world: &World, pods: &[usize]| {
        let backends = pods
            .iter()
            .flat_map(|pod| world.pods[*pod].backends(TCP_PORT));
        let mut service = everywhere("TCP", 80, &texts(&backends.collect::<Vec<_>>()));
        service["drainSeconds"] = 2.into();
        [service]
    };
    let (first, both) = (with(&world, &[0]), with(&world, &[1]));
    let to = at(CLUSTER_IP[0], 80);
    world.apply(&first);
    let (_, mut leaving) = world.client.inside(|| connect(&to, LIMIT)).unwrap();
    world.apply(&both);
    let (_, mut staying) = world.client.inside(|| connect(&to, LIMIT)).unwrap();
    let address = world.pods[0].addresses[0];
    let gone = BTreeSet::from([address]);
    let nothing = BTreeSet::new();
    let mut search = |gone: &BTreeSet<_>| {
        let wait = world.keeper.drains_left(gone, Instant::now());
        std::thread::sleep(wait.min(LIMIT));
        world.keeper.search_drains(gone, Instant::now()).unwrap()
    };
    let count = search(&nothing);
    assert_eq!(count.addresses, gone);
    assert_eq!(
        (count.drains.len(), count.ended, count.errors),
        (1, 0, vec![])
    );
    assert!(works(&mut leaving), "S-113");
    let begun = Instant::now();
    while search(&gone).ended == 0 {
        assert!(begun.elapsed() < LIMIT);
    }
    assert!(
        begun.elapsed() >= Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(!works(&mut leaving), "S-115");
    assert!(works(&mut staying));
    let tracked = output_of(
        "conntrack",
        &["-L", "-p", "tcp", "--reply-src", &address.to_string()],
    );
    assert_eq!(tracked, "");
}
