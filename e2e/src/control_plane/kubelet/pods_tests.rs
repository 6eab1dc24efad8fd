//! Tests of the kubelet's decisions.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(name: &str) -> Seen {
    Seen {
        uid: format!("uid-{name}"),
        namespace: "default".into(),
        name: name.into(),
        containers: vec![("main".into(), "image".into())],
        node: None,
        addresses: Vec::new(),
        running: false,
        terminating: false,
        over: false,
    }
}

fn free_node() -> Option<SeenNode> {
    Some(SeenNode {
        schedulable: true,
        address: Some("192.168.50.11".parse().unwrap()),
    })
}

/// Two nodes, each with room for two pods.
fn pods() -> Pods {
    let mut pods = Pods {
        grace: SECOND,
        ..Pods::default()
    };
    for (node, first) in [("a", "10.0.1.1"), ("b", "10.0.2.1")] {
        pods.own_node(node, Instant::now());
        pods.node(node, free_node());
        pods.pool
            .add_range(node, &[first.parse().unwrap()], 2)
            .unwrap();
    }
    pods
}

/// Does what is due and succeeds; returns what it was.
fn carry_out(pods: &mut Pods, now: Instant) -> Vec<(String, Action)> {
    let mut done = Vec::new();
    while let Some(work) = pods.next(now) {
        done.push((work.pod.name.clone(), work.action.clone()));
        pods.done(work, Ok(()), now);
    }
    done
}

fn binds(done: &[(String, Action)]) -> Vec<String> {
    let nodes = done.iter().filter_map(|(_, action)| match action {
        Action::Bind(node) => Some(node.clone()),
        Action::Run { .. } | Action::Delete => None,
    });
    nodes.collect()
}

#[test]
fn a_pod_is_bound_and_then_runs_with_an_address_of_its_node() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.pod(seen("x"), now);
    let done = carry_out(&mut pods, now);
    let run = Action::Run {
        addresses: vec!["10.0.1.1".parse().unwrap()],
        host: Some("192.168.50.11".parse().unwrap()),
    };
    assert_eq!(
        done,
        [("x".into(), Action::Bind("a".into())), ("x".into(), run)]
    );
    assert_eq!(pods.summary().running, 1);
    assert!(pods.next_due().is_none());
}

#[test]
fn pods_go_to_nodes_in_turn_and_never_to_one_that_takes_none() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.pool.add("a", vec!["10.0.1.9".parse().unwrap()]);
    for name in ["1", "2", "3"] {
        pods.pod(seen(name), now);
    }
    assert_eq!(binds(&carry_out(&mut pods, now)), ["a", "b", "a"]);
    pods.node("b", Some(SeenNode::default()));
    pods.pod(seen("4"), now);
    assert_eq!(binds(&carry_out(&mut pods, now)), ["a"]);
    pods.node("a", None);
    pods.pod(seen("5"), now);
    assert_eq!(carry_out(&mut pods, now), []);
    assert_eq!(
        pods.summary().trouble.as_deref(),
        Some("no node takes pods")
    );
    pods.node("b", free_node());
    assert_eq!(binds(&carry_out(&mut pods, now + SECOND)), ["b"]);
}

#[test]
fn a_pod_of_a_node_that_is_not_ours_is_left_alone_until_it_is() {
    let (mut pods, now) = (pods(), Instant::now());
    let node = Some("c".into());
    pods.pod(Seen { node, ..seen("x") }, now);
    assert_eq!(carry_out(&mut pods, now), []);
    assert_eq!(pods.summary(), Summary::default());
    pods.pool.add("c", vec!["10.0.3.1".parse().unwrap()]);
    pods.own_node("c", now);
    assert_eq!(carry_out(&mut pods, now).len(), 1);
}

#[test]
fn a_deleted_pod_stays_for_its_grace_and_its_address_is_free_only_when_it_is_gone() {
    let (mut pods, now) = (pods(), Instant::now());
    let mut pod = Seen {
        node: Some("a".into()),
        ..seen("x")
    };
    pods.pod(pod.clone(), now);
    assert_eq!(carry_out(&mut pods, now).len(), 1);
    pod.terminating = true;
    pods.pod(pod.clone(), now);
    assert_eq!(carry_out(&mut pods, now), []);
    // A second event in between does not restart the grace period.
    pods.pod(pod, now + SECOND / 2);
    assert_eq!(carry_out(&mut pods, now + SECOND / 2), []);
    assert_eq!(
        carry_out(&mut pods, now + SECOND),
        [("x".into(), Action::Delete)]
    );
    assert_eq!(pods.pool.left("a"), 1);
    pods.gone("uid-x");
    assert_eq!(pods.pool.left("a"), 2);
}

#[test]
fn what_failed_is_tried_again_and_what_is_in_flight_is_not() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.pod(seen("x"), now);
    let work = pods.next(now).unwrap();
    pods.pod(seen("x"), now);
    assert_eq!(pods.next(now), None);
    pods.done(work, Err("refused".into()), now);
    assert_eq!(pods.next(now), None);
    assert_eq!(pods.summary().trouble.as_deref(), Some("refused"));
    assert_eq!(carry_out(&mut pods, now + SECOND).len(), 2);
    assert_eq!(pods.summary().trouble, None);
}

#[test]
fn news_that_are_older_than_our_own_requests_cause_no_second_one() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.pod(seen("x"), now);
    assert_eq!(carry_out(&mut pods, now).len(), 2);
    pods.pod(seen("x"), now);
    assert_eq!(carry_out(&mut pods, now), []);
}

#[test]
fn a_pod_that_runs_already_keeps_its_address_and_a_new_list_forgets_who_is_missing() {
    let (mut pods, now) = (pods(), Instant::now());
    let running = Seen {
        node: Some("a".into()),
        addresses: vec!["10.0.1.1".parse().unwrap()],
        running: true,
        ..seen("x")
    };
    pods.pod(running, now);
    assert_eq!(carry_out(&mut pods, now), []);
    assert_eq!(pods.pool.left("a"), 1);
    pods.only(&BTreeSet::new());
    assert_eq!(pods.pool.left("a"), 2);
    pods.only_nodes(&BTreeSet::from(["b".into()]));
    pods.pod(seen("y"), now);
    assert_eq!(binds(&carry_out(&mut pods, now)), ["b"]);
}

#[test]
fn without_an_address_left_a_pod_waits_for_one() {
    let (mut pods, now) = (pods(), Instant::now());
    let node = Some("a".to_owned());
    for name in ["1", "2", "3"] {
        let node = node.clone();
        pods.pod(Seen { node, ..seen(name) }, now);
    }
    assert_eq!(carry_out(&mut pods, now).len(), 2);
    let trouble = pods.summary().trouble;
    assert_eq!(trouble.as_deref(), Some("no address is left on a"));
    pods.gone("uid-1");
    assert_eq!(carry_out(&mut pods, now + SECOND).len(), 1);
}

#[test]
fn a_pod_is_not_bound_to_a_full_node_but_waits_for_one_with_room() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.node("b", Some(SeenNode::default()));
    for name in ["1", "2", "3"] {
        pods.pod(seen(name), now);
    }
    assert_eq!(binds(&carry_out(&mut pods, now)), ["a", "a"]);
    assert_eq!((pods.summary().running, pods.summary().waiting), (2, 1));
    pods.node("b", free_node());
    assert_eq!(binds(&carry_out(&mut pods, now + SECOND)), ["b"]);
    assert_eq!(pods.summary().running, 3);
}

#[test]
fn a_pod_that_could_not_be_bound_leaves_its_address_to_others() {
    let (mut pods, now) = (pods(), Instant::now());
    pods.pod(seen("1"), now);
    let work = pods.next(now).unwrap();
    assert_eq!(pods.pool.left("a"), 1);
    pods.done(work, Err("refused".into()), now);
    assert_eq!(pods.pool.left("a"), 2);
}
