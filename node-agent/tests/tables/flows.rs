//! Stale flows, and connections that drain.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portolan_agent::drains::{ListedDrain, Reason};
use portolan_agent::tables::{DrainCount, FlowCleanup};
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;

use super::bench::Bench;
use super::plan::{facts, services};
use super::with;

const DNS: &str = "10.96.0.10:53";
const WEB: &str = "10.96.0.20:80";
const QUEUE: &str = "10.96.0.40:7000";

fn flow(client: u16, to: &str, reply_source: &str) -> Flow {
    Flow {
        source: ([10, 244, 1, 9], client).into(),
        destination: to.parse().unwrap(),
        reply_source: reply_source.parse().unwrap(),
        zone: 0,
        id: Some(client.into()),
        by_rules: false,
    }
}

fn add(bench: &Bench, protocol: Protocol, flow: Flow) {
    let mut kernel = bench.kernel.lock();
    kernel.flows.entry(protocol).or_default().insert(flow);
}

/// The client ports of the flows of a protocol.
fn clients(bench: &Bench, protocol: Protocol) -> Vec<u16> {
    let kernel = bench.kernel.lock();
    let flows = kernel.flows.get(&protocol).into_iter().flatten();
    flows.map(|flow| flow.source.port()).collect()
}

fn searched(cleanups: &[FlowCleanup]) -> Vec<(Family, u64)> {
    let cleanups = cleanups.iter();
    cleanups.map(|done| (done.family, done.deleted)).collect()
}

/// S-116, S-123, S-124, S-126, S-127, S-128, S-131, S-238.
#[test]
fn stale_flows_are_deleted_after_the_start_and_after_changes_and_no_others() {
    let mut bench = Bench::new();
    let (udp, sctp) = (Protocol::Udp, Protocol::Sctp);
    add(&bench, udp, flow(1, DNS, "10.244.1.4:53"));
    add(&bench, udp, flow(2, DNS, "10.244.9.9:53"));
    add(&bench, udp, flow(3, DNS, DNS));
    add(&bench, udp, flow(4, "10.96.0.10:54", "10.244.9.9:53"));
    add(&bench, sctp, flow(5, QUEUE, "10.244.9.9:7000"));
    add(&bench, sctp, flow(6, QUEUE, QUEUE));
    add(&bench, Protocol::Tcp, flow(7, WEB, WEB));
    let outcome = bench.succeed(&facts(&services()));
    assert_eq!(searched(&outcome.flows), [(Family::Ipv4, 2)]);
    assert_eq!(clients(&bench, udp), [1, 4]);
    assert_eq!(clients(&bench, sctp), [5, 6], "S-123");
    assert_eq!(clients(&bench, Protocol::Tcp), [7], "S-123");
    // Without a change of backends, nothing is searched.
    let outcome = bench.succeed(&facts(&with("web", &["10.244.2.7:8080"])));
    assert_eq!(outcome.flows, []);
    // A backend that is replaced still answers the requests that it has.
    let replaced = facts(&with("dns", &["10.244.2.4:53"]));
    let outcome = bench.succeed(&replaced);
    assert_eq!(searched(&outcome.flows), [(Family::Ipv4, 0)]);
    bench.pass_time(900);
    assert_eq!(bench.succeed(&replaced).flows, []);
    assert_eq!(bench.keeper.end_flows(bench.now), []);
    assert_eq!(clients(&bench, udp), [1, 4], "S-116");
    let left = bench.keeper.drains_left(&BTreeSet::new(), bench.now);
    assert!(left <= Duration::from_millis(100), "{left:?}");
    bench.pass_time(100);
    let ended = bench.keeper.end_flows(bench.now);
    assert_eq!(searched(&ended), [(Family::Ipv4, 1)]);
    assert_eq!(clients(&bench, udp), [4]);
    // Without any backend, no flow reaches the former one, and those that reach nothing stay.
    add(&bench, udp, flow(8, DNS, "10.244.2.4:53"));
    add(&bench, udp, flow(9, DNS, DNS));
    let outcome = bench.succeed(&facts(&with("dns", &[])));
    assert_eq!(searched(&outcome.flows), [(Family::Ipv4, 1)]);
    assert_eq!(clients(&bench, udp), [4, 9], "S-127, S-238");
}

/// S-130: not a failure of the plan.
#[test]
fn a_search_that_fails_is_repeated() {
    let mut bench = Bench::new();
    add(&bench, Protocol::Udp, flow(1, DNS, "10.244.9.9:53"));
    bench.kernel.lock().flows_unreadable = true;
    let facts = facts(&services());
    let outcome = bench.succeed(&facts);
    assert!(
        outcome
            .flows
            .iter()
            .all(|done| done.error.is_some() && !done.finished)
    );
    assert!(!bench.keeper.is_in_step(), "the next pass has to search");
    bench.kernel.lock().flows_unreadable = false;
    bench.succeed(&facts);
    assert_eq!(clients(&bench, Protocol::Udp), Vec::<u16>::new());
    assert!(bench.keeper.is_in_step());
}

fn search(bench: &mut Bench, gone: &[IpAddr]) -> DrainCount {
    // Longer than the rest after a search that a busy machine delayed.
    bench.pass_time(20_000);
    let gone = gone.iter().copied().collect();
    let now = bench.now;
    bench.keeper.search_drains(&gone, now).unwrap()
}

fn listed(bench: &Bench, count: &DrainCount) -> Vec<(SocketAddr, Reason)> {
    let drains = count.drains.iter();
    drains
        .map(|drain| {
            let listed = ListedDrain::of(drain, bench.now);
            (SocketAddr::new(listed.address, listed.port), listed.reason)
        })
        .collect()
}

/// S-113, S-115, S-117, S-118.
#[test]
fn connections_go_on_until_the_deadline_after_their_endpoint_left_the_cluster() {
    let mut bench = Bench::new();
    let (old, other): (SocketAddr, SocketAddr) = (
        "10.244.1.5:8080".parse().unwrap(),
        "10.244.2.5:8080".parse().unwrap(),
    );
    let tcp = Protocol::Tcp;
    bench.succeed(&facts(&services()));
    add(&bench, tcp, flow(1, WEB, "10.244.1.5:8080"));
    add(&bench, tcp, flow(2, WEB, "10.244.2.5:8080"));
    add(&bench, tcp, flow(3, "10.99.0.1:80", "10.244.1.5:8080"));
    assert_eq!(search(&mut bench, &[]), DrainCount::default());
    let quiet = bench.keeper.drains_left(&BTreeSet::new(), bench.now);
    assert_eq!(quiet.as_secs(), u64::MAX, "nothing drains");
    assert_eq!(
        bench.keeper.search_drains(&BTreeSet::new(), bench.now),
        None
    );
    let after = facts(&with("web", &["10.244.2.5:8080"]));
    bench.succeed(&after);
    let count = search(&mut bench, &[]);
    assert_eq!(listed(&bench, &count), [(old, Reason::NotInList)]);
    assert_eq!(count.addresses, [old.ip()].into());
    // As long as the endpoint exists, there is no deadline.
    bench.pass_time(1_000_000);
    assert_eq!(search(&mut bench, &[]).ended, 0);
    let count = search(&mut bench, &[old.ip(), other.ip()]);
    assert_eq!(listed(&bench, &count), [(old, Reason::EndpointGone)]);
    assert_eq!(search(&mut bench, &[old.ip(), other.ip()]).ended, 0);
    assert_eq!(search(&mut bench, &[old.ip(), other.ip()]).ended, 0);
    let count = search(&mut bench, &[old.ip(), other.ip()]);
    assert_eq!((count.ended, count.drains.len()), (1, 0));
    assert_eq!(clients(&bench, tcp), [2, 3]);
    // A backend that comes back does not drain, and a restarted agent finds those that do.
    let mut bench = Bench::on(bench.kernel);
    bench.succeed(&facts(&with("web", &[])));
    let count = search(&mut bench, &[]);
    assert_eq!(listed(&bench, &count), [(other, Reason::NoneReady)]);
    bench.succeed(&facts(&services()));
    assert_eq!(search(&mut bench, &[]), DrainCount::default());
}

#[test]
fn the_deadline_of_a_service_takes_precedence() {
    let mut bench = Bench::new();
    let mut all = with("queue", &["10.244.2.8:7000"]);
    let queue = all.iter_mut().find(|one| one["name"] == "queue").unwrap();
    queue["drainSeconds"] = 40.into();
    bench.succeed(&facts(&all));
    add(&bench, Protocol::Sctp, flow(1, QUEUE, "10.244.2.9:7000"));
    let gone: [IpAddr; 1] = ["10.244.2.9".parse().unwrap()];
    assert_eq!(search(&mut bench, &gone).drains.len(), 1);
    assert_eq!(search(&mut bench, &gone).ended, 0);
    assert_eq!(search(&mut bench, &gone).ended, 0);
    assert_eq!(search(&mut bench, &gone).ended, 1);
    assert_eq!(clients(&bench, Protocol::Sctp), Vec::<u16>::new());
}

/// S-115.
#[test]
fn a_deadline_begins_when_the_agent_hears_that_the_endpoint_is_gone() {
    let mut bench = Bench::new();
    let mut all = with("queue", &["10.244.2.8:7000"]);
    let queue = all.iter_mut().find(|one| one["name"] == "queue").unwrap();
    queue["drainSeconds"] = 40.into();
    bench.succeed(&facts(&all));
    add(&bench, Protocol::Sctp, flow(1, QUEUE, "10.244.2.9:7000"));
    assert_eq!(search(&mut bench, &[]).drains.len(), 1);
    let gone = BTreeSet::from(["10.244.2.9".parse().unwrap()]);
    bench.keeper.drains_left(&gone, bench.now);
    bench.pass_time(40_000);
    let left = bench.keeper.drains_left(&gone, bench.now);
    assert!(left.is_zero(), "{left:?} until the search");
    let count = bench.keeper.search_drains(&gone, bench.now).unwrap();
    assert_eq!((count.ended, count.drains.len()), (1, 0));
}

#[test]
fn a_search_for_drains_that_fails_is_repeated_and_forgets_nothing() {
    let mut bench = Bench::new();
    bench.succeed(&facts(&with("web", &["10.244.2.5:8080"])));
    add(&bench, Protocol::Tcp, flow(1, WEB, "10.244.1.5:8080"));
    assert_eq!(search(&mut bench, &[]).drains.len(), 1);
    bench.kernel.lock().flows_unreadable = true;
    let count = search(&mut bench, &[]);
    assert!(!count.errors.is_empty());
    assert_eq!(count.drains.len(), 1);
    bench.kernel.lock().flows_unreadable = false;
    assert_eq!(search(&mut bench, &[]).drains.len(), 1);
}
