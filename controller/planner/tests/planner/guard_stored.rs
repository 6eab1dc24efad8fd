//! Losses that several controllers see: the stored loss, its end, and later losses.

use std::sync::Arc;

use crate::guard_world::{ALL, ENDPOINTS, SERVICES, World, address, endpoint, gone, slice, whole};
use portolan_planner::model::{Event, GuardMode, Guarding, ObjectChange, ProxyConfig, StoredLoss};

#[test]
fn controllers_begin_and_end_with_the_one_that_leads() {
    // This controller saw only the beginning.
    let mut world = World::new(GuardMode::Hold);
    world.comes((0..4).map(|service| gone(&whole(service))).collect());
    assert_eq!(world.planned(), ALL * 6 / 10);
    world.now += 5;
    world.stored(Some(("loss-1", 1003)), None);
    assert_eq!((world.planned(), world.held()), (ALL, ALL * 4 / 10));
    assert_eq!(world.planner.model().loss().unwrap().since, 1003);
    world.now += 5;
    world.stored(None, None);
    assert_eq!(
        (world.planned(), world.planner.model().loss()),
        (ALL * 6 / 10, None)
    );
}

#[test]
fn a_controller_that_did_not_see_a_loss_does_not_know_its_end() {
    let id = Arc::from("loss-1");
    let mut world = World::new(GuardMode::Hold);
    world.stored(Some(("loss-1", 990)), None);
    assert_eq!(world.planner.model().loss(), None);
    assert!(!world.planner.model().loss_has_ended(&id));
    // A controller that saw it does, whether it was stored before or after its end.
    for stored_first in [true, false] {
        let mut world = World::new(GuardMode::Hold);
        world.emptied(10);
        let back: Vec<_> = (0..SERVICES).map(|service| whole(service).into()).collect();
        if !stored_first {
            world.comes(back.clone());
        }
        world.stored(Some(("loss-1", 1001)), None);
        world.comes(back);
        assert!(world.planner.model().loss_has_ended(&id), "{stored_first}");
    }
}

#[test]
fn endpoints_that_vanish_after_a_loss_are_another_loss() {
    for approved in [None, Some("loss-1")] {
        let mut world = World::new(GuardMode::Hold);
        world.emptied(10);
        world.stored(Some(("loss-1", 1000)), None);
        if approved.is_some() {
            world.stored(Some(("loss-1", 1000)), approved);
            assert_eq!(world.planned(), 0);
        }
        world.comes((0..SERVICES).map(|service| whole(service).into()).collect());
        world.now += 1;
        world.emptied(10);
        assert_eq!((world.planned(), world.held()), (ALL, ALL), "{approved:?}");
        // The end of the first one arrives late.
        world.stored(None, approved);
        assert_eq!((world.planned(), world.held()), (ALL, ALL), "{approved:?}");
        world.stored(Some(("loss-2", 1001)), Some("loss-2"));
        assert_eq!(world.planned(), 0, "{approved:?}");
    }
}

#[test]
fn a_controller_that_saw_a_part_of_a_loss_does_not_end_it() {
    let mut world = World::new(GuardMode::Hold);
    world.stored(Some(("loss-1", 990)), None);
    let one = slice(9, 'b', vec![endpoint(address(9, 200), 1)]);
    world.comes(vec![one.clone().into()]);
    world.comes(vec![gone(&one)]);
    let loss = world.planner.model().loss().unwrap();
    assert_eq!((loss.lost, loss.held, loss.own), (1, 1, false));
    world.comes(vec![one.into()]);
    assert_eq!(world.planner.model().loss(), None);
    assert!(!world.planner.model().loss_has_ended(&"loss-1".into()));
}

#[test]
fn a_loss_that_was_over_before_it_had_a_name_does_not_take_the_next_ones() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.comes((0..SERVICES).map(|service| whole(service).into()).collect());
    world.now += 20;
    world.emptied(10);
    world.stored(Some(("loss-2", 1020)), None);
    assert!(!world.planner.model().loss_has_ended(&"loss-2".into()));
    world.stored(Some(("loss-2", 1020)), Some("loss-2"));
    assert_eq!(world.planned(), 0);
}

#[test]
fn endpoints_that_vanished_long_before_are_no_part_of_a_loss() {
    let mut world = World::new(GuardMode::Hold);
    world.comes(vec![gone(&whole(0))]);
    world.now += 61;
    world.stored(Some(("loss-1", 1060)), None);
    assert_eq!(
        (world.held(), world.planned()),
        (0, ALL - usize::from(ENDPOINTS))
    );
}

#[test]
fn without_the_proxyconfig_it_goes_on_as_it_was() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.stored(Some(("loss-1", 1000)), None);
    let gone = Event::ProxyConfig(ObjectChange::Remove(ProxyConfig::DEFAULT.into()));
    world.comes(vec![gone]);
    assert_eq!(world.planned(), ALL);
    // The ProxyConfig is recreated, and the leader stores the loss again.
    world.stored(None, None);
    assert_eq!(world.planned(), ALL);
    // The same if no controller saw the ProxyConfig missing.
    world.stored(Some(("loss-2", 1000)), None);
    world.config.guarding.object = Some("another".into());
    world.stored(None, None);
    assert_eq!(world.planned(), ALL);
    world.passes(1800);
    assert_eq!(world.planned(), 0);
}

#[test]
fn a_controller_that_starts_during_a_loss_does_not_end_it() {
    let mut guarding = Guarding::default();
    assert!(!guarding.holds_at(0));
    guarding.stored = Some(StoredLoss {
        id: "loss-1".into(),
        since: 1000,
    });
    assert!(!guarding.holds_at(1001), "a report holds nothing");
    guarding.policy.mode = GuardMode::Hold;
    assert!(guarding.holds_at(1001) && guarding.holds_at(2799) && !guarding.holds_at(2800));
    guarding.approved = Some("loss-1".into());
    assert!(!guarding.holds_at(1001));
}
