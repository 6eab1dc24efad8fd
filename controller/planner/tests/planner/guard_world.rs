//! A cluster with the guard enabled.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::build::{GivenEndpoint, GivenNode, GivenService, GivenSlice};
use portolan_plan::{ServiceId, Settings};
use portolan_planner::Planner;
use portolan_planner::model::{
    EndpointSlice, Event, GuardMode, GuardPolicy, Guarding, Moment, Node, ObjectChange,
    ProxyConfig, StoredLoss,
};

pub(crate) const NODES: u8 = 4;
pub(crate) const SERVICES: u8 = 10;
pub(crate) const ENDPOINTS: u8 = 30;
pub(crate) const ALL: usize = SERVICES as usize * ENDPOINTS as usize;

pub(crate) fn config(policy: GuardPolicy) -> ProxyConfig {
    ProxyConfig {
        guarding: Guarding {
            policy,
            ..Guarding::default()
        },
        ..ProxyConfig::of(Settings::default())
    }
}

pub(crate) fn node(number: u8, ready: bool) -> Node {
    let node = GivenNode {
        name: format!("n{number}"),
        not_ready: !ready,
        ..GivenNode::default()
    };
    node.build()
}

pub(crate) fn address(service: u8, number: u8) -> IpAddr {
    Ipv4Addr::new(10, 244, service, number).into()
}

pub(crate) fn endpoint(address: IpAddr, node: u8) -> GivenEndpoint {
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
pub(crate) fn slice(service: u8, letter: char, endpoints: Vec<GivenEndpoint>) -> EndpointSlice {
    let slice = GivenSlice {
        id: format!("shop/s{service}-{letter}"),
        service: Some(format!("s{service}")),
        ports: vec!["http 8080/TCP".into()],
        endpoints,
        ..GivenSlice::default()
    };
    slice.build()
}

pub(crate) fn whole(service: u8) -> EndpointSlice {
    let numbers = 1..=ENDPOINTS;
    let endpoints = numbers.map(|number| endpoint(address(service, number), number % NODES));
    slice(service, 'a', endpoints.collect())
}

pub(crate) fn gone(slice: &EndpointSlice) -> Event {
    Event::EndpointSlice(ObjectChange::Remove(slice.id.clone()))
}

/// A cluster that was guarded from the beginning.
pub(crate) struct World {
    pub(crate) planner: Planner,
    pub(crate) config: ProxyConfig,
    pub(crate) now: Moment,
}

impl World {
    pub(crate) fn new(mode: GuardMode) -> Self {
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

    pub(crate) fn comes(&mut self, events: Vec<Event>) {
        self.planner.apply_at(events, self.now);
    }

    pub(crate) fn passes(&mut self, seconds: Moment) {
        self.now += seconds;
        self.comes(Vec::new());
    }

    /// Applies what the leader stored, and the approval.
    pub(crate) fn stored(&mut self, stored: Option<(&str, Moment)>, approved: Option<&str>) {
        self.config.guarding.stored = stored.map(|(id, since)| StoredLoss {
            id: id.into(),
            since,
        });
        self.config.guarding.approved = approved.map(Arc::from);
        self.comes(vec![self.config.clone().into()]);
    }

    /// Deletes all slices, this many at a time.
    pub(crate) fn emptied(&mut self, at_once: usize) {
        let all: Vec<_> = (0..SERVICES).map(|service| gone(&whole(service))).collect();
        for some in all.chunks(at_once) {
            self.comes(some.to_vec());
        }
    }

    /// Addresses that are planned for new connections to a Service.
    pub(crate) fn planned_of(&self, service: u8) -> BTreeSet<IpAddr> {
        let id = ServiceId::new("shop", format!("s{service}"));
        let node = &self.planner.nodes()["n0"];
        let planned = &self.planner.services()[&id];
        let lists = planned.lists_for(node);
        lists
            .flat_map(|(_, list)| list.as_slice().iter().map(|backend| backend.address))
            .collect()
    }

    pub(crate) fn planned(&self) -> usize {
        (0..SERVICES)
            .map(|service| self.planned_of(service).len())
            .sum()
    }

    pub(crate) fn held(&self) -> usize {
        self.planner.model().loss().map_or(0, |loss| loss.held)
    }
}
