//! Endpoints that vanish in mass: what is held, what passes, and when it ends.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::build::{GivenEndpoint, GivenNode, GivenService, GivenSlice};
use crate::histories::history;
use portolan_plan::{ServiceId, Settings};
use portolan_planner::Planner;
use portolan_planner::model::{
    EndpointSlice, Event, GuardMode, GuardPolicy, Guarding, Moment, Node, ObjectChange,
    ProxyConfig, SliceId, StoredLoss,
};
use proptest::prelude::*;

const NODES: u8 = 4;
const SERVICES: u8 = 10;
const ENDPOINTS: u8 = 30;
const ALL: usize = SERVICES as usize * ENDPOINTS as usize;

fn config(policy: GuardPolicy) -> ProxyConfig {
    ProxyConfig {
        guarding: Guarding {
            policy,
            ..Guarding::default()
        },
        ..ProxyConfig::of(Settings::default())
    }
}

fn node(number: u8, ready: bool) -> Node {
    let node = GivenNode {
        name: format!("n{number}"),
        not_ready: !ready,
        ..GivenNode::default()
    };
    node.build()
}

fn address(service: u8, number: u8) -> IpAddr {
    Ipv4Addr::new(10, 244, service, number).into()
}

fn endpoint(address: IpAddr, node: u8) -> GivenEndpoint {
    GivenEndpoint {
        address,
        node: Some(format!("n{node}")),
        ready: true,
        serving: true,
        terminating: false,
        for_nodes: Vec::new(),
        for_zones: Vec::new(),
    }
}

/// A slice of a Service, named by a letter.
fn slice(service: u8, letter: char, endpoints: Vec<GivenEndpoint>) -> EndpointSlice {
    let slice = GivenSlice {
        id: format!("shop/s{service}-{letter}"),
        service: Some(format!("s{service}")),
        ports: vec!["http 8080/TCP".into()],
        endpoints,
        ..GivenSlice::default()
    };
    slice.build()
}

fn whole(service: u8) -> EndpointSlice {
    let numbers = 1..=ENDPOINTS;
    let endpoints = numbers.map(|number| endpoint(address(service, number), number % NODES));
    slice(service, 'a', endpoints.collect())
}

fn gone(slice: &EndpointSlice) -> Event {
    Event::EndpointSlice(ObjectChange::Remove(slice.id.clone()))
}

/// A cluster that was watched over since its beginning.
struct World {
    planner: Planner,
    config: ProxyConfig,
    now: Moment,
}

impl World {
    fn new(mode: GuardMode) -> Self {
        let mut planner = Planner::default();
        planner.watch_endpoints();
        let policy = GuardPolicy {
            mode,
            ..GuardPolicy::default()
        };
        let mut world = Self {
            planner,
            config: config(policy),
            now: 1000,
        };
        let services = (0..SERVICES).map(|number| {
            let service = GivenService {
                id: format!("shop/s{number}"),
                ips: vec![Ipv4Addr::new(10, 96, 0, number).into()],
                ports: vec!["http 80/TCP".into()],
                ..GivenService::default()
            };
            Event::from(service.build())
        });
        let nodes = (0..NODES).map(|number| node(number, true).into());
        let slices = (0..SERVICES).map(|service| whole(service).into());
        let config = Event::from(world.config.clone());
        let all = services.chain(nodes).chain(slices).chain([config]);
        world.comes(all.collect());
        assert_eq!(world.planned(), ALL);
        world
    }

    fn comes(&mut self, events: Vec<Event>) {
        self.planner.apply_at(events, self.now);
    }

    fn passes(&mut self, seconds: Moment) {
        self.now += seconds;
        self.comes(Vec::new());
    }

    /// What the leader stored, and what somebody approved, are seen.
    fn stored(&mut self, stored: Option<(&str, Moment)>, approved: Option<&str>) {
        self.config.guarding.stored = stored.map(|(id, since)| StoredLoss {
            id: id.into(),
            since,
        });
        self.config.guarding.approved = approved.map(Arc::from);
        self.comes(vec![self.config.clone().into()]);
    }

    /// All slices are deleted, as many at once as this.
    fn emptied(&mut self, at_once: usize) {
        let all: Vec<_> = (0..SERVICES).map(|service| gone(&whole(service))).collect();
        for some in all.chunks(at_once) {
            self.comes(some.to_vec());
        }
    }

    /// Addresses that are planned for new connections, of a Service.
    fn planned_of(&self, service: u8) -> BTreeSet<IpAddr> {
        let id = ServiceId::new("shop", format!("s{service}"));
        let node = &self.planner.nodes()["n0"];
        let planned = &self.planner.services()[&id];
        let lists = planned.lists_for(node);
        lists
            .flat_map(|(_, list)| list.as_slice().iter().map(|backend| backend.address))
            .collect()
    }

    fn planned(&self) -> usize {
        (0..SERVICES)
            .map(|service| self.planned_of(service).len())
            .sum()
    }

    fn held(&self) -> usize {
        self.planner.model().loss().map_or(0, |loss| loss.held)
    }
}

#[test]
fn an_emptied_cluster_is_served_until_somebody_approves() {
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
fn a_report_counts_what_vanished_together() {
    let mut world = World::new(GuardMode::Report);
    let most: Vec<_> = (0..8).map(|service| gone(&whole(service))).collect();
    world.comes(most);
    world.now += 61;
    world.comes(vec![gone(&whole(9))]);
    assert_eq!(world.planner.model().loss().unwrap().lost, 240);
}

#[test]
fn what_was_held_long_enough_is_believed() {
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
    // Six in ten, but within more than a minute.
    world.now += 61;
    world.comes(vec![gone(&whole(5))]);
    assert_eq!(
        (world.planned(), world.planner.model().loss()),
        (ALL * 4 / 10, None)
    );
    // The rest are 120, and then less than 200 vanish together.
    world.now += 61;
    world.comes((6..10).map(|service| gone(&whole(service))).collect());
    assert_eq!((world.planned(), world.planner.model().loss()), (0, None));
}

#[test]
fn what_vanished_just_before_is_held_as_well() {
    let mut world = World::new(GuardMode::Hold);
    world.comes((0..5).map(|service| gone(&whole(service))).collect());
    world.now += 60;
    world.comes(vec![gone(&whole(5))]);
    assert_eq!((world.planned(), world.held()), (ALL, ALL * 6 / 10));
}

#[test]
fn additions_and_what_is_not_ready_pass_while_others_are_held() {
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
    // That it then ends is no news.
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
    // Nothing of it counts against what happens next.
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
fn an_address_that_another_pod_has_is_not_held() {
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
fn controllers_begin_and_end_with_the_one_that_leads() {
    // This one saw the beginning of it only.
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
fn who_has_not_seen_a_loss_does_not_know_that_it_is_over() {
    let id = Arc::from("loss-1");
    let mut world = World::new(GuardMode::Hold);
    world.stored(Some(("loss-1", 990)), None);
    assert_eq!(world.planner.model().loss(), None);
    assert!(!world.planner.model().loss_has_ended(&id));
    // Who has seen it does, whether it was stored before or after its end.
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
fn what_vanishes_after_a_loss_is_another_loss() {
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
        // That the first one is over comes late.
        world.stored(None, approved);
        assert_eq!((world.planned(), world.held()), (ALL, ALL), "{approved:?}");
        world.stored(Some(("loss-2", 1001)), Some("loss-2"));
        assert_eq!(world.planned(), 0, "{approved:?}");
    }
}

#[test]
fn who_has_seen_a_part_of_a_loss_does_not_say_that_it_is_over() {
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
fn what_vanished_long_before_is_no_part_of_it() {
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
fn without_the_proxyconfig_it_goes_on_as_it_was() {
    let mut world = World::new(GuardMode::Hold);
    world.emptied(10);
    world.stored(Some(("loss-1", 1000)), None);
    let gone = Event::ProxyConfig(ObjectChange::Remove(ProxyConfig::DEFAULT.into()));
    world.comes(vec![gone]);
    assert_eq!(world.planned(), ALL);
    // It is made anew, and whoever leads stores the loss again.
    world.stored(None, None);
    assert_eq!(world.planned(), ALL);
    // So it is where nobody saw that there was none in between.
    world.stored(Some(("loss-2", 1000)), None);
    world.config.guarding.object = Some("another".into());
    world.stored(None, None);
    assert_eq!(world.planned(), ALL);
    world.passes(1800);
    assert_eq!(world.planned(), 0);
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

#[test]
fn who_begins_in_the_middle_knows_that_it_does_not_know() {
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

/// Guards that judge small clusters, and those that see no loss in anything.
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

/// What people and the controller that leads write.
#[derive(Debug, Clone, Copy)]
enum Written {
    Nothing,
    /// The loss that is seen, or that it is over.
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

/// What comes of it.
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
    fn what_is_held_is_lost_and_well_and_everything_else_is_as_it_is(history in history(), batch in 1..5usize, written in proptest::collection::vec(written(), 40)) {
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
            let told = write(written[usize::try_from(now).unwrap()], &mut config, &guarded);
            guarded.apply_at(told, now);
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
        // In the end time settles everything.
        guarded.apply_at([], 10_000);
        prop_assert_eq!(guarded.services(), plain.services());
        prop_assert_eq!(guarded.nodes(), plain.nodes());
        prop_assert_eq!(guarded.model().loss(), None);
    }
}
