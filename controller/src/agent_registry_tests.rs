//! Which state of agents is kept, and for how long.

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
    let (stream, _) = registry.connected("node-a", "0.1.0", None, at(1));
    registry.acked("node-a", acked(7), at(2));
    registry.gone("node-a", stream, at(3));
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
        let (stream, in_force) = registry.connected(name, "0.1.0", None, at(1));
        registry.acked(name, acked(1), at(1));
        (stream, in_force)
    };
    registry.connected("new", "0.1.0", None, at(1));
    let [(_, behind), (_, there), (_, failing)] = ["behind", "there", "failing"].map(node);
    let (stream, gone) = node("gone");
    gone.reached(2);
    registry.gone("gone", stream, at(2));
    behind.reached(4);
    there.reached(5);
    failing.reached(4);
    let failed = Acked {
        failed_operations: 1,
        ..acked(7)
    };
    registry.acked("failing", failed, at(2));
    let waited = |version| registry.waited_for(version, |_| true);
    assert_eq!(waited(5), (1, vec!["behind".into()]));
    assert_eq!(waited(4), (0, Vec::new()));
    assert_eq!(registry.waited_for(5, |_| false).0, 0, "its Node is gone");
    registry.acked("failing", acked(7), at(3));
    assert_eq!(waited(5).0, 2);
    let unread = Acked {
        undecodable: vec!["head/shop/web".into()],
        ..acked(7)
    };
    registry.acked("failing", unread, at(3));
    assert_eq!(waited(5).0, 1);
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

#[test]
fn an_older_stream_that_ends_late_takes_nothing_from_its_successor() {
    let registry = AgentRegistry::default();
    // Both are opened at the same time, as far as the clock tells.
    let open = || registry.connected("node-a", "0.1.0", None, at(1)).0;
    let (older, newer) = (open(), open());
    registry.gone("node-a", older, at(6));
    assert!(registry.get("node-a").unwrap().connected);
    registry.gone("node-a", newer, at(7));
    assert!(!registry.get("node-a").unwrap().connected);
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
    let connected = |node| registry.connected(node, "0.1.0", None, at(1)).0;
    let [a, b, _] = ["node-a", "node-b", "node-c"].map(connected);
    registry.gone("node-a", a, at(2));
    registry.gone("node-b", b, at(2));
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
