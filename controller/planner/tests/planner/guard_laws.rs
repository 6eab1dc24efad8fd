//! Laws of the guard, for every history of a cluster.

use std::sync::Arc;

use crate::guard_world::config;
use crate::histories::history;
use portolan_planner::Planner;
use portolan_planner::model::{
    Event, GuardMode, GuardPolicy, Moment, ObjectChange, ProxyConfig, SliceId, StoredLoss,
};
use proptest::prelude::*;

/// Guards for small clusters, and guards that never detect a loss.
fn policy(mode: GuardMode, min_endpoints: u32) -> GuardPolicy {
    GuardPolicy {
        mode,
        max_loss_percent: 10,
        min_endpoints,
        window: 5,
        release_after: 20,
    }
}

fn is_held(id: &SliceId) -> bool {
    id.name.starts_with("held:")
}

/// What users and the leader write.
#[derive(Debug, Clone, Copy)]
enum Written {
    Nothing,
    /// The loss, or its end.
    Stored,
    Approved,
    Mode(GuardMode),
    /// The ProxyConfig is deleted.
    Gone,
}

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        6 => Just(Written::Nothing),
        4 => Just(Written::Stored),
        1 => Just(Written::Approved),
        1 => Just(Written::Mode(GuardMode::Report)),
        2 => Just(Written::Mode(GuardMode::Hold)),
        1 => Just(Written::Gone),
    ]
}

/// The result.
fn write(written: Written, config: &mut ProxyConfig, planner: &Planner) -> Option<Event> {
    let guarding = &mut config.guarding;
    match written {
        Written::Nothing => return None,
        Written::Stored => {
            let loss = planner.model().loss();
            let id = |since: Moment| Arc::from(format!("loss-{since}"));
            let ended = guarding
                .stored
                .take_if(|stored| planner.model().loss_has_ended(&stored.id));
            if ended.is_none() && guarding.stored.is_none() {
                guarding.stored = loss.map(|loss| StoredLoss {
                    id: id(loss.since),
                    since: loss.since,
                });
            }
        }
        Written::Approved => {
            guarding.approved = guarding.stored.as_ref().map(|stored| stored.id.clone());
        }
        Written::Mode(mode) => guarding.policy.mode = mode,
        Written::Gone => {
            guarding.stored = None;
            guarding.approved = None;
            return Some(Event::ProxyConfig(ObjectChange::Remove(
                ProxyConfig::DEFAULT.into(),
            )));
        }
    }
    Some(config.clone().into())
}

proptest! {
    #[test]
    fn a_guard_that_holds_nothing_changes_no_plan(history in history(), batch in 1..5usize) {
        for policy in [policy(GuardMode::Report, 1), policy(GuardMode::Hold, 10_000)] {
            let mut plain = Planner::default();
            let mut guarded = Planner::default();
            guarded.watch_endpoints();
            guarded.apply_at([config(policy).into()], 0);
            plain.apply([config(policy).into()]);
            for (now, events) in (0..).zip(history.chunks(batch)) {
                let events = events.iter().filter(|event| !matches!(event, Event::ProxyConfig(_)));
                let events: Vec<_> = events.cloned().collect();
                prop_assert_eq!(guarded.apply_at(events.clone(), now), plain.apply(events));
            }
        }
    }

    /// I-15.
    #[test]
    fn only_lost_endpoints_of_healthy_objects_are_held(history in history(), batch in 1..5usize, written in proptest::collection::vec(written(), 40)) {
        let mut plain = Planner::default();
        let mut guarded = Planner::default();
        guarded.watch_endpoints();
        let mut config = config(policy(GuardMode::Hold, 1));
        guarded.apply_at([config.clone().into()], 0);
        plain.apply([config.clone().into()]);
        for (now, events) in (0..).zip(history.chunks(batch)) {
            let events = events.iter().filter(|event| !matches!(event, Event::ProxyConfig(_)));
            let events: Vec<_> = events.cloned().collect();
            plain.apply(events.clone());
            guarded.apply_at(events, now);
            let events = write(written[usize::try_from(now).unwrap()], &mut config, &guarded);
            guarded.apply_at(events, now);
            let (real, model) = (plain.model(), guarded.model());
            let own = model.slices().filter(|slice| is_held(&slice.id));
            let mut held = 0;
            for slice in own {
                let service = slice.service_id().unwrap();
                prop_assert!(real.service(&service).is_some());
                for endpoint in &slice.endpoints {
                    held += 1;
                    prop_assert!(endpoint.ready && !endpoint.terminating);
                    let node = real.node(endpoint.node.as_ref().unwrap());
                    prop_assert!(node.is_some_and(|node| node.ready));
                    let stands = real.slices_of(&service).flat_map(|slice| &slice.endpoints);
                    let stands = stands.filter(|other| other.address == endpoint.address).count();
                    prop_assert_eq!(stands, 0, "{} is there", endpoint.address);
                }
            }
            prop_assert_eq!(model.loss().map_or(0, |loss| loss.held), held);
            let others = model.slices().filter(|slice| !is_held(&slice.id));
            prop_assert!(others.eq(real.slices()));
        }
        // In the end every loss expires.
        guarded.apply_at([], 10_000);
        prop_assert_eq!(guarded.services(), plain.services());
        prop_assert_eq!(guarded.nodes(), plain.nodes());
        prop_assert_eq!(guarded.model().loss(), None);
    }
}
