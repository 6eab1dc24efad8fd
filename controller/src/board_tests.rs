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
fn the_last_word_of_an_agent_stays_when_its_stream_ends() {
    let board = Board::default();
    assert_eq!(board.get("node-a"), None);
    board.connected("node-a", "0.1.0", None, at(1));
    board.acked("node-a", acked(7), at(2));
    board.gone("node-a", at(1), at(3));
    let delivery = board.get("node-a").unwrap();
    assert!(!delivery.connected);
    assert_eq!(delivery.since, at(3));
    assert_eq!(delivery.acked.unwrap(), (at(2), Arc::new(acked(7))));
}

/// The time since which a plan is in force must not make an old batch look like a new one.
#[test]
fn a_plan_that_comes_into_force_late_is_as_old_as_its_batch() {
    let board = Board::default();
    board.connected("node-a", "0.1.0", None, at(1));
    let failing = Acked {
        applied: None,
        failed_operations: 1,
        lag: Duration::from_secs(1),
        ..acked(7)
    };
    board.acked("node-a", failing, at(5));
    board.caught_up("node-a", at(15));
    let (answered, acked) = board.get("node-a").unwrap().acked.unwrap();
    assert_eq!(acked.applied, Some(PlanHash(7)));
    assert_eq!(answered - acked.lag, at(4));
}

#[test]
fn who_has_not_a_version_is_waited_for_unless_it_failed_or_is_gone() {
    let board = Board::default();
    let node = |name: &str| {
        let in_force = board.connected(name, "0.1.0", None, at(1));
        board.acked(name, acked(1), at(1));
        in_force
    };
    board.connected("new", "0.1.0", None, at(1));
    let (behind, there, failing) = (node("behind"), node("there"), node("failing"));
    node("gone").reached(2);
    board.gone("gone", at(1), at(2));
    behind.reached(4);
    there.reached(5);
    failing.reached(4);
    let failed = Acked {
        failed_operations: 1,
        ..acked(7)
    };
    board.acked("failing", failed, at(2));
    let waited = |version| board.waited_for(version, |_| true);
    assert_eq!(waited(5), (1, vec!["behind".into()]));
    assert_eq!(waited(4), (0, Vec::new()));
    assert_eq!(board.waited_for(5, |_| false).0, 0, "its Node is gone");
    board.acked("failing", acked(7), at(3));
    assert_eq!(waited(5).0, 2);
    let unread = Acked {
        undecodable: vec!["head/shop/web".into()],
        ..acked(7)
    };
    board.acked("failing", unread, at(3));
    assert_eq!(waited(5).0, 1);
}

#[test]
fn an_agent_that_comes_back_has_said_nothing_yet() {
    let board = Board::default();
    board.connected("node-a", "0.1.0", None, at(1));
    board.acked("node-a", acked(7), at(2));
    board.drifted("node-a", vec![Drift::default()]);
    board.connected("node-a", "0.2.0", None, at(3));
    let delivery = board.get("node-a").unwrap();
    assert_eq!(&*delivery.agent_version, "0.2.0");
    assert_eq!((delivery.acked, delivery.drifted), (None, None));
}

#[test]
fn an_older_stream_that_ends_late_takes_nothing_from_its_successor() {
    let board = Board::default();
    board.connected("node-a", "0.1.0", None, at(1));
    board.connected("node-a", "0.1.0", None, at(5));
    board.gone("node-a", at(1), at(6));
    assert!(board.get("node-a").unwrap().connected);
    board.gone("node-a", at(5), at(7));
    assert!(!board.get("node-a").unwrap().connected);
}

#[test]
fn an_answer_without_a_stream_is_nothing() {
    let board = Board::default();
    board.acked("node-a", acked(7), at(2));
    assert_eq!(board.get("node-a"), None);
}

#[test]
fn an_agent_is_forgotten_when_it_and_its_node_are_gone() {
    let board = Board::default();
    for node in ["node-a", "node-b", "node-c"] {
        board.connected(node, "0.1.0", None, at(1));
    }
    board.gone("node-a", at(1), at(2));
    board.gone("node-b", at(1), at(2));
    board.forget_except(|node| node == "node-b");
    let known = |node| board.get(node).is_some();
    assert_eq!(
        (known("node-a"), known("node-b"), known("node-c")),
        (false, true, true)
    );
}

#[test]
fn no_more_failures_are_kept_than_are_shown() {
    let board = Board::default();
    board.connected("node-a", "0.1.0", None, at(1));
    let many = Acked {
        failures: vec!["x".into(); 100],
        failed_operations: 100,
        undecodable: vec!["y".into(); 100],
        ..Acked::default()
    };
    board.acked("node-a", many, at(2));
    let (_, kept) = board.get("node-a").unwrap().acked.unwrap();
    assert_eq!(
        (kept.failures.len(), kept.undecodable.len()),
        (REMEMBERED, REMEMBERED)
    );
    assert_eq!(kept.failed_operations, 100);
}

#[tokio::test]
async fn news_are_told_once_however_often_they_came() {
    let board = Arc::new(Board::default());
    let waiting = tokio::spawn({
        let board = board.clone();
        async move { board.changes().await }
    });
    tokio::task::yield_now().await;
    board.connected("node-a", "0.1.0", None, at(1));
    assert_eq!(waiting.await.unwrap(), BTreeSet::from(["node-a".into()]));
    board.acked("node-a", acked(1), at(2));
    board.acked("node-a", acked(2), at(3));
    board.connected("node-b", "0.1.0", None, at(4));
    let both = BTreeSet::from(["node-a".into(), "node-b".into()]);
    assert_eq!(board.changes().await, both);
    board.acked("node-b", acked(1), at(5));
    assert_eq!(
        board.changes().await,
        BTreeSet::from(["node-b".into()]),
        "what was told is not told again"
    );
}
