//! Batches of agents that are further behind than the history of the store.

use super::*;

/// A stream that is behind the history is sent the Services that changed, not the whole plan.
#[test]
fn an_agent_behind_the_history_is_sent_only_what_changed() {
    let shape = |seed| Shape {
        scope: ScopeKind::Cluster,
        own: vec![0],
        own_of_zone: None,
        homes: vec![0],
        checked: false,
        seed,
        large: false,
        critical: false,
    };
    let store = Store::with_limits(HistoryLimits {
        bytes: 0,
        ..HistoryLimits::default()
    });
    publish(&store, &Step::Node(0, Some((None, 1))));
    for number in 0..100 {
        publish(&store, &Step::Service(number, Some(shape(1))));
    }
    let mut agent = Agent::new(NODES[0]);
    let mut whole = 0;
    let mut walk = store.begin(NODES[0], Held::Nothing).unwrap();
    while !walk.is_done() {
        let items = store.more(&mut walk, 1000).unwrap();
        whole += items.iter().map(|item| item.len()).sum::<usize>();
    }
    while agent.take(&store, 1000) {}
    // One is changed twice, one is removed.
    for seed in [2, 3] {
        publish(&store, &Step::Service(7, Some(shape(seed))));
    }
    publish(&store, &Step::Service(9, None));
    let mut walk = store.begin(NODES[0], agent.held.clone()).unwrap();
    assert!(matches!(walk.begin(), Begin::Position(_)) && walk.is_repeated());
    let items = store.more(&mut walk, 100_000).unwrap();
    let changed = items.iter().map(|item| item.len()).sum::<usize>();
    assert!(
        walk.is_done() && changed * 10 < whole,
        "{changed} of {whole}"
    );
    while agent.take(&store, 1000) {}
    assert_eq!(agent.plan, store.plan(NODES[0]).unwrap());
}

/// Agents that join while Services change share a snapshot, and the next batch brings them up to date.
#[test]
fn a_first_plan_goes_on_from_its_snapshot_and_is_followed_by_the_rest() {
    let shape = |seed| Shape {
        scope: ScopeKind::Cluster,
        own: Vec::new(),
        own_of_zone: None,
        homes: Vec::new(),
        checked: false,
        seed,
        large: false,
        critical: false,
    };
    let store = Store::with_limits(HistoryLimits { bytes: 0, names: 0 });
    for node in 0..2 {
        publish(&store, &Step::Node(node, Some((None, 1))));
    }
    for number in 0..20 {
        publish(&store, &Step::Service(number, Some(shape(1))));
    }
    let mut agents = [Agent::new(NODES[0]), Agent::new(NODES[1])];
    // Each piece is followed by a change; the history keeps none of them.
    let mut seed = 1;
    while agents[0].take(&store, 100) {
        seed += 1;
        publish(&store, &Step::Service(0, Some(shape(seed))));
        if seed == 3 {
            assert!(agents[1].take(&store, 100));
            let (walk, _) = agents[1].open.as_ref().unwrap();
            assert!(walk.is_late(), "it shares the snapshot of the first");
        }
    }
    assert!(seed > 5, "{seed}");
    for agent in &mut agents {
        while agent.take(&store, 1000) {}
        while agent.take(&store, 1000) {}
        assert_eq!(agent.plan, store.plan(agent.node).unwrap());
    }
}
