//! Which state of agents is kept, and for how long.

use portolan_plan::Failing;
use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn acked(hash: u128) -> Acked {
    Acked {
        applied: Some(PlanHash(hash)),
        received: PlanHash(hash),
        ..Acked::default()
    }
}

#[test]
fn the_last_report_of_an_agent_stays_when_its_stream_ends() {
    let registry = AgentRegistry::default();
    assert_eq!(registry.get("node-a"), None);
    let stream = registry.connected("node-a", "0.1.0", None, at(1));
    registry.acked("node-a", acked(7), at(2));
    registry.gone("node-a", stream.id, at(3));
    let delivery = registry.get("node-a").unwrap();
    assert!(!delivery.connected);
    assert_eq!(delivery.since, at(3));
    assert_eq!(delivery.acked.unwrap(), (at(2), Arc::new(acked(7))));
}

/// The time since which a plan is in force must not make an old batch look like a new one.
#[test]
fn a_plan_applied_late_is_as_old_as_its_batch() {
    let registry = AgentRegistry::default();
    registry.connected("node-a", "0.1.0", None, at(1));
    let failing = Acked {
        applied: None,
        failed_operations: 1,
        lag: Duration::from_secs(1),
        ..acked(7)
    };
    registry.acked("node-a", failing, at(5));
    registry.caught_up("node-a", at(15));
    let (answered, acked) = registry.get("node-a").unwrap().acked.unwrap();
    assert_eq!(acked.applied, Some(PlanHash(7)));
    assert_eq!(answered - acked.lag, at(4));
}

#[test]
fn nodes_behind_a_version_are_pending_unless_they_failed_or_are_gone() {
    let registry = AgentRegistry::default();
    let node = |name: &str| {
        let stream = registry.connected(name, "0.1.0", None, at(1));
        registry.acked(name, acked(1), at(1));
        stream
    };
    registry.connected("new", "0.1.0", None, at(1));
    let (behind, there, failing) = (node("behind"), node("there"), node("failing"));
    let gone = node("gone");
    gone.in_force.reached(2);
    registry.gone("gone", gone.id, at(2));
    behind.in_force.reached(4);
    there.in_force.reached(5);
    failing.in_force.reached(4);
    let failed = Acked {
        failed_operations: 1,
        ..acked(7)
    };
    registry.acked("failing", failed, at(2));
    let waited = |version| {
        let waited = registry.waited_for(version, |_| true);
        let lowest = registry.lowest_in_force(|_| true);
        let all_have_it = lowest.is_none_or(|lowest| lowest >= version);
        assert_eq!(waited.0 == 0, all_have_it, "{lowest:?}");
        waited
    };
    assert_eq!(waited(5), (1, vec!["behind".into()]));
    assert_eq!(waited(4), (0, Vec::new()));
    assert_eq!(registry.waited_for(5, |_| false).0, 0, "its Node is gone");
    assert_eq!(registry.lowest_in_force(|_| false), None);
    registry.acked("failing", acked(7), at(3));
    assert_eq!(waited(5).0, 2);
    let unread = |key: &str| Acked {
        undecodable: vec![key.into()],
        ..acked(7)
    };
    registry.acked("failing", unread("node"), at(3));
    assert_eq!(waited(5).0, 1);
    registry.acked("failing", unread("head/shop/web"), at(3));
    assert_eq!(waited(5).0, 2, "S-229: it is the fault of that Service");
}

fn troubled(failing: &[&str]) -> Troubled {
    let service = |name: &&str| ServiceId::new("shop", *name);
    let services: Vec<_> = failing.iter().map(service).collect();
    Troubled {
        failing: Failing::of(&services),
        failing_services: u32::try_from(services.len()).unwrap(),
        ..Troubled::default()
    }
}

/// S-229: what is read has the exceptions of its version, even if a newer version is reached meanwhile.
#[test]
fn a_version_in_force_is_read_together_with_its_exceptions() {
    let registry = AgentRegistry::default();
    let in_force = registry.connected("node-a", "0.1.0", None, at(1)).in_force;
    let before = registry.get("node-a").unwrap();
    let all = registry.all();
    registry.troubled("node-a", troubled(&["web"]));
    in_force.reached(7);
    for before in [&before, &all["node-a"]] {
        assert_eq!(before.in_force.version(), 0);
    }
    let after = registry.get("node-a").unwrap();
    assert_eq!(after.in_force.version(), 7);
    assert!(after.fails(&ServiceId::new("shop", "web")));
    assert!(!after.fails(&ServiceId::new("shop", "cart")));
}

#[test]
fn nodes_with_failing_services_are_counted() {
    let registry = AgentRegistry::default();
    let failing = [("a", &["web"][..]), ("b", &["web", "cart"]), ("c", &[])];
    let streams = failing.map(|(node, failing)| {
        let stream = registry.connected(node, "0.1.0", None, at(1));
        registry.troubled(node, troubled(failing));
        stream
    });
    let count = |is_node: fn(&str) -> bool| registry.failing_services(is_node);
    assert_eq!(count(|_| true), (2, 2));
    assert_eq!(count(|node| node != "b"), (1, 1));
    registry.gone("b", streams[1].id, at(2));
    assert_eq!(count(|_| true), (1, 1));
}

#[test]
fn a_reconnected_agent_has_no_report() {
    let registry = AgentRegistry::default();
    registry.connected("node-a", "0.1.0", None, at(1));
    registry.acked("node-a", acked(7), at(2));
    registry.drifted("node-a", vec![Drift::default()]);
    registry.connected("node-a", "0.2.0", None, at(3));
    let delivery = registry.get("node-a").unwrap();
    assert_eq!(&*delivery.agent_version, "0.2.0");
    assert_eq!((delivery.acked, delivery.drifted), (None, None));
}

/// Also if both were opened at the same time of a clock that was set back.
#[test]
fn an_older_stream_that_ends_late_takes_nothing_from_its_successor() {
    let registry = AgentRegistry::default();
    let older = registry.connected("node-a", "0.1.0", None, at(1));
    let newer = registry.connected("node-a", "0.1.0", None, at(1));
    registry.gone("node-a", older.id, at(6));
    assert!(registry.get("node-a").unwrap().connected);
    registry.gone("node-a", newer.id, at(7));
    assert!(!registry.get("node-a").unwrap().connected);
}

/// Whether a stream has to end.
fn is_replaced(stream: &mut Registered) -> bool {
    stream.replaced.try_recv() == Err(oneshot::error::TryRecvError::Closed)
}

#[tokio::test]
async fn a_newer_stream_of_a_node_ends_the_older_one() {
    let registry = AgentRegistry::default();
    let mut older = registry.connected("node-a", "0.1.0", None, at(1));
    let mut other = registry.connected("node-b", "0.1.0", None, at(1));
    assert!(!is_replaced(&mut older));
    let mut newer = registry.connected("node-a", "0.1.0", None, at(2));
    assert!(older.replaced.await.is_err());
    assert!(!is_replaced(&mut newer) && !is_replaced(&mut other));
}

/// What happens to streams.
#[derive(Debug, Clone, Copy)]
enum Step {
    Connect(usize),
    Ack(usize, u128),
    /// The end of any stream that was opened so far, perhaps for the second time.
    Gone(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES.len();
    prop_oneof![
        3 => node().prop_map(Step::Connect),
        2 => (node(), any::<u128>()).prop_map(|(node, hash)| Step::Ack(node, hash)),
        2 => any::<prop::sample::Index>().prop_map(Step::Gone),
    ]
}

const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

proptest! {
    /// Law `registry`: a node has at most one open stream, the newest one. All others were asked to end, and their ends
    /// change nothing.
    #[test]
    fn the_newest_stream_of_a_node_is_the_only_one(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let registry = AgentRegistry::default();
        // All streams with their nodes, and the number of the open one of each node.
        let (mut streams, mut open) = (Vec::new(), [None; NODES.len()]);
        for (second, step) in (0..).zip(steps) {
            match step {
                Step::Connect(node) => {
                    open[node] = Some(streams.len());
                    streams.push((node, registry.connected(NODES[node], "0.1.0", None, at(second))));
                }
                Step::Ack(node, hash) => registry.acked(NODES[node], acked(hash), at(second)),
                Step::Gone(_) if streams.is_empty() => {}
                Step::Gone(index) => {
                    let number = index.index(streams.len());
                    let (node, stream) = &streams[number];
                    let before = registry.get(NODES[*node]);
                    registry.gone(NODES[*node], stream.id, at(second));
                    if open[*node] == Some(number) {
                        open[*node] = None;
                    } else {
                        prop_assert_eq!(registry.get(NODES[*node]), before);
                    }
                }
            }
            for (number, (node, stream)) in streams.iter_mut().enumerate() {
                let newest = open[*node].is_none_or(|open| open == number);
                prop_assert!(newest || is_replaced(stream), "stream {number} of {node}");
                if open[*node] == Some(number) {
                    prop_assert!(!is_replaced(stream));
                }
            }
            let is_connected = |node: &str| registry.get(node).is_some_and(|of| of.connected);
            let connected = NODES.map(is_connected);
            prop_assert_eq!(connected, open.map(|open| open.is_some()));
            prop_assert_eq!(registry.connected_agents(), open.iter().flatten().count());
        }
    }
}

#[test]
fn an_answer_without_a_stream_is_ignored() {
    let registry = AgentRegistry::default();
    registry.acked("node-a", acked(7), at(2));
    assert_eq!(registry.get("node-a"), None);
}

#[test]
fn an_agent_is_forgotten_when_it_and_its_node_are_gone() {
    let registry = AgentRegistry::default();
    let ids = NODES.map(|node| registry.connected(node, "0.1.0", None, at(1)).id);
    registry.gone("node-a", ids[0], at(2));
    registry.gone("node-b", ids[1], at(2));
    registry.forget_except(|node| node == "node-b");
    let known = |node| registry.get(node).is_some();
    assert_eq!(
        (known("node-a"), known("node-b"), known("node-c")),
        (false, true, true)
    );
}

#[test]
fn no_more_failures_are_kept_than_are_shown() {
    let registry = AgentRegistry::default();
    registry.connected("node-a", "0.1.0", None, at(1));
    let many = Acked {
        failures: vec!["x".into(); 100],
        failed_operations: 100,
        undecodable: vec!["y".into(); 100],
        ..Acked::default()
    };
    registry.acked("node-a", many, at(2));
    let (_, kept) = registry.get("node-a").unwrap().acked.unwrap();
    assert_eq!(
        (kept.failures.len(), kept.undecodable.len()),
        (MAX_LISTED_ITEMS, MAX_LISTED_ITEMS)
    );
    assert_eq!(kept.failed_operations, 100);
}

#[tokio::test]
async fn changes_of_a_node_are_reported_once() {
    let registry = Arc::new(AgentRegistry::default());
    let waiting = tokio::spawn({
        let registry = registry.clone();
        async move { registry.changes().await }
    });
    tokio::task::yield_now().await;
    registry.connected("node-a", "0.1.0", None, at(1));
    assert_eq!(waiting.await.unwrap(), BTreeSet::from(["node-a".into()]));
    registry.acked("node-a", acked(1), at(2));
    registry.acked("node-a", acked(2), at(3));
    registry.connected("node-b", "0.1.0", None, at(4));
    let both = BTreeSet::from(["node-a".into(), "node-b".into()]);
    assert_eq!(registry.changes().await, both);
    registry.acked("node-b", acked(1), at(5));
    assert_eq!(
        registry.changes().await,
        BTreeSet::from(["node-b".into()]),
        "reported changes are not reported again"
    );
}
