//! Which state of agents is kept, and for how long.

use portolan_plan::Failing;

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
    registry.connected("node-a", "0.1.0", None, at(1));
    registry.acked("node-a", acked(7), at(2));
    registry.gone("node-a", at(1), at(3));
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
        let in_force = registry.connected(name, "0.1.0", None, at(1));
        registry.acked(name, acked(1), at(1));
        in_force
    };
    registry.connected("new", "0.1.0", None, at(1));
    let (behind, there, failing) = (node("behind"), node("there"), node("failing"));
    node("gone").reached(2);
    registry.gone("gone", at(1), at(2));
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
    let in_force = registry.connected("node-a", "0.1.0", None, at(1));
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
    for (node, failing) in [("a", &["web"][..]), ("b", &["web", "cart"]), ("c", &[])] {
        registry.connected(node, "0.1.0", None, at(1));
        registry.troubled(node, troubled(failing));
    }
    let count = |is_node: fn(&str) -> bool| registry.failing_services(is_node);
    assert_eq!(count(|_| true), (2, 2));
    assert_eq!(count(|node| node != "b"), (1, 1));
    registry.gone("b", at(1), at(2));
    assert_eq!(count(|_| true), (1, 1));
}

#[test]
fn the_schedulers_of_a_node_are_bounded() {
    let registry = AgentRegistry::default();
    registry.connected("node-a", "0.1.0", None, at(1));
    registry.schedulers("node-a", &vec![format!("r\nr{}", "x".repeat(1000)); 1000]);
    let kept = registry.get("node-a").unwrap().schedulers;
    assert_eq!(kept.len(), MAX_SCHEDULERS);
    assert_eq!(kept[0], format!("rr{}", "x".repeat(13)));
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
    registry.connected("node-a", "0.1.0", None, at(1));
    registry.connected("node-a", "0.1.0", None, at(5));
    registry.gone("node-a", at(1), at(6));
    assert!(registry.get("node-a").unwrap().connected);
    registry.gone("node-a", at(5), at(7));
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
    for node in ["node-a", "node-b", "node-c"] {
        registry.connected(node, "0.1.0", None, at(1));
    }
    registry.gone("node-a", at(1), at(2));
    registry.gone("node-b", at(1), at(2));
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
