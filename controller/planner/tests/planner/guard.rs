//! Mass loss of endpoints: what is held, what passes, and when it ends.

use crate::build::GivenNode;
use crate::guard_world::{
    ALL, ENDPOINTS, NODES, SERVICES, World, address, endpoint, gone, node, slice, whole,
};
use portolan_plan::ServiceId;
use portolan_planner::model::{EndpointSlice, Event, GuardMode, ObjectChange};

#[test]
fn an_emptied_cluster_is_served_until_the_loss_is_approved() {
    for at_once in [1, 3, SERVICES.into()] {
        let mut world = World::new(GuardMode::Hold);
        world.emptied(at_once);
        assert_eq!(world.planned(), ALL, "{at_once} at once");
        let loss = world.planner.model().loss().unwrap();
        assert_eq!(
            (loss.since, loss.lost, loss.of, loss.held),
            (1000, ALL, ALL, ALL)
        );
        world.stored(Some(("loss-1", 1000)), Some("loss-0"));
        assert_eq!(world.planned(), ALL, "another one was approved");
        world.stored(Some(("loss-1", 1000)), Some("loss-1"));
        assert_eq!((world.planned(), world.held()), (0, 0));
        world.stored(None, Some("loss-1"));
        assert_eq!((world.planned(), world.planner.model().loss()), (0, None));
    }
}

#[test]
fn a_report_lets_everything_pass() {
    let mut world = World::new(GuardMode::Report);
    world.emptied(3);
    assert_eq!(world.planned(), 0);
    let loss = world.planner.model().loss().unwrap();
    assert_eq!((loss.lost, loss.of, loss.held), (ALL, ALL, 0));
    world.passes(1799);
    assert!(world.planner.model().loss().is_some());
    world.passes(1);
    assert!(world.planner.model().loss().is_none());
}

#[test]
fn a_report_counts_endpoints_that_vanished_together() {
    let mut world = World::new(GuardMode::Report);
    let most: Vec<_> = (0..8).map(|service| gone(&whole(service))).collect();
    world.comes(most);
    world.now += 61;
    world.comes(vec![gone(&whole(9))]);
    assert_eq!(world.planner.model().loss().unwrap().lost, 240);
}

#[test]
fn a_loss_is_accepted_after_its_maximum_duration() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(2);
    world.passes(1799);
    assert_eq!(world.planned(), ALL);
    world.passes(1);
    assert_eq!((world.planned(), world.planner.model().loss()), (0, None));
}

#[test]
fn half_of_the_endpoints_and_small_clusters_are_no_loss() {
    let mut world = World::new(GuardMode::Hold);
    world.comes((0..5).map(|service| gone(&whole(service))).collect());
    assert_eq!(
        (world.planned(), world.planner.model().loss()),
        (ALL / 2, None)
    );
    // Six of ten, but over more than a minute.
    world.now += 61;
    world.comes(vec![gone(&whole(5))]);
    assert_eq!(
        (world.planned(), world.planner.model().loss()),
        (ALL * 4 / 10, None)
    );
    // The remaining ones are 120, and then less than 200 vanish together.
    world.now += 61;
    world.comes((6..10).map(|service| gone(&whole(service))).collect());
    assert_eq!((world.planned(), world.planner.model().loss()), (0, None));
}

#[test]
fn endpoints_that_vanished_just_before_are_held_too() {
    let mut world = World::new(GuardMode::Hold);
    world.comes((0..5).map(|service| gone(&whole(service))).collect());
    world.now += 60;
    world.comes(vec![gone(&whole(5))]);
    assert_eq!((world.planned(), world.held()), (ALL, ALL * 6 / 10));
}

#[test]
fn added_and_unready_endpoints_pass_while_others_are_held() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    let mut sick = endpoint(address(0, 1), 1);
    sick.ready = false;
    sick.serving = false;
    let new = endpoint(address(0, 200), 1);
    world.comes(vec![slice(0, 'b', vec![sick, new]).into()]);
    let planned = world.planned_of(0);
    assert!(!planned.contains(&address(0, 1)) && planned.contains(&address(0, 200)));
    assert_eq!(
        (planned.len(), world.held()),
        (usize::from(ENDPOINTS), ALL - 1)
    );
    // Its end afterwards has no effect.
    world.comes(vec![
        slice(0, 'b', vec![endpoint(address(0, 200), 1)]).into(),
    ]);
    assert_eq!(world.held(), ALL - 1);
}

#[test]
fn everything_comes_back() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.comes((0..SERVICES).map(|service| whole(service).into()).collect());
    assert_eq!((world.planned(), world.planner.model().loss()), (ALL, None));
    // It does not count for later losses.
    world.comes((0..5).map(|service| gone(&whole(service))).collect());
    assert_eq!(world.planned(), ALL / 2);
}

#[test]
fn endpoints_of_nodes_that_are_not_ready_and_of_services_that_are_gone_go() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.comes(vec![node(1, false).into()]);
    let on_node = (1..=ENDPOINTS).filter(|number| number % NODES == 1).count();
    let left = ALL - on_node * usize::from(SERVICES);
    assert_eq!((world.planned(), world.held()), (left, left));
    let service = Event::Service(ObjectChange::Remove(ServiceId::new("shop", "s0")));
    world.comes(vec![service]);
    assert_eq!(world.held(), left - (usize::from(ENDPOINTS) - on_node));
}

#[test]
fn nodes_that_failed_before_are_no_loss() {
    let mut world = World::new(GuardMode::Hold);
    world.comes((0..3).map(|number| node(number, false).into()).collect());
    world.emptied(10);
    assert_eq!((world.planned(), world.planner.model().loss()), (0, None));
}

#[test]
fn an_address_of_another_pod_is_not_held() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.comes(vec![slice(3, 'b', vec![endpoint(address(0, 1), 2)]).into()]);
    assert!(!world.planned_of(0).contains(&address(0, 1)));
    assert!(world.planned_of(3).contains(&address(0, 1)));
    assert_eq!(world.held(), ALL - 1);
}

#[test]
fn a_pod_of_two_services_is_held_for_the_one_that_lost_it() {
    let mut world = World::new(GuardMode::Hold);
    world.comes(vec![slice(9, 'b', vec![endpoint(address(0, 1), 1)]).into()]);
    world.emptied(10);
    let planned = world.planned_of(0);
    assert!(planned.contains(&address(0, 1)));
    world.comes(vec![
        slice(
            9,
            'b',
            vec![endpoint(address(0, 1), 1), endpoint(address(9, 1), 1)],
        )
        .into(),
    ]);
    assert!(world.planned_of(0).contains(&address(0, 1)));
    assert_eq!(world.held(), ALL - 1);
}

#[test]
fn endpoints_that_move_to_another_slice_are_no_loss() {
    for add_first in [true, false] {
        let mut world = World::new(GuardMode::Hold);
        let moves = (0..SERVICES).flat_map(|service| {
            let mut moved = whole(service);
            moved.id.name = format!("s{service}-b").into();
            let mut both = [moved.into(), gone(&whole(service))];
            if !add_first {
                both.reverse();
            }
            both
        });
        world.comes(moves.collect());
        assert_eq!((world.planned(), world.planner.model().loss()), (ALL, None));
        // Nor do they count for endpoints that vanish afterwards.
        let mut one = whole(0);
        one.id.name = "s0-b".into();
        world.comes(vec![gone(&one)]);
        let left = ALL - usize::from(ENDPOINTS);
        assert_eq!(
            (world.planned(), world.planner.model().loss()),
            (left, None)
        );
    }
}

#[test]
fn a_list_of_everything_does_not_end_it() {
    let mut world = World::new(GuardMode::Hold);
    let all = |slices: Vec<EndpointSlice>| Event::EndpointSlice(ObjectChange::Replace(slices));
    world.comes(vec![all(vec![whole(0)])]);
    assert_eq!(world.planned(), ALL);
    world.comes(vec![all(vec![whole(0), whole(1)])]);
    assert_eq!(
        (world.planned(), world.held()),
        (ALL, ALL - 2 * usize::from(ENDPOINTS))
    );
}

#[test]
fn the_few_that_are_left_of_many_are_gone() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.comes((1..SERVICES).map(|service| whole(service).into()).collect());
    let left = ALL - usize::from(ENDPOINTS);
    assert_eq!(
        (world.planned(), world.planner.model().loss()),
        (left, None)
    );
}

#[test]
fn the_address_of_a_node_is_not_another_pods() {
    let mut world = World::new(GuardMode::Hold);
    let node = GivenNode {
        name: "n1".into(),
        addresses: vec![address(0, 1)],
        ..GivenNode::default()
    };
    world.comes(vec![node.build().into()]);
    world.emptied(10);
    world.comes(vec![slice(3, 'b', vec![endpoint(address(0, 1), 1)]).into()]);
    assert_eq!(world.held(), ALL);
}

#[test]
fn a_clock_that_was_ahead_makes_no_loss() {
    let mut world = World::new(GuardMode::Hold);
    world.now += 3600;
    world.comes(vec![gone(&whole(0))]);
    world.now -= 3600;
    for service in 1..7 {
        world.comes(vec![gone(&whole(service))]);
        world.now += 61;
    }
    assert_eq!(world.planner.model().loss(), None);
}

#[test]
fn a_change_of_the_mode_is_in_force_at_once() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.config.guarding.policy.mode = GuardMode::Report;
    world.comes(vec![world.config.clone().into()]);
    assert_eq!((world.planned(), world.held()), (0, 0));
    world.config.guarding.policy.mode = GuardMode::Hold;
    world.comes(vec![world.config.clone().into()]);
    assert_eq!((world.planned(), world.held()), (ALL, ALL));
}
