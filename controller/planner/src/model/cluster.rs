//! The model of the cluster, and what a change in it affects.

mod watched;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Protocol, ServiceId, Settings};

use super::claims::{Claim, claims_of};
use super::guard::Guard;
use super::kept::{Changed, Kept};
use super::names::Names;
use super::owners::Owners;
use super::residents::Residents;
use super::{
    EndpointSlice, Event, Node, Object, ObjectChange, ObjectId, ProxyConfig, Service, ServiceCidr,
    SliceId,
};
use crate::reverse::Reverse;

/// The model of the cluster.
#[derive(Debug, Default)]
pub struct ClusterModel {
    nodes: Kept<Node>,
    services: Kept<Service>,
    slices: Kept<EndpointSlice>,
    service_cidrs: Kept<ServiceCidr>,
    proxy_configs: Kept<ProxyConfig>,
    /// The slices of each Service, including Services that do not exist yet (S-54).
    slices_of: Reverse<ServiceId, SliceId>,
    /// The Services with each claim; nearly always one.
    claims: Reverse<Claim, ServiceId>,
    /// The owners of addresses that no Service may take.
    owners: Owners,
    /// Interned node and zone names of endpoints.
    names: Names,
    /// The slices of each endpoint address.
    residents: Residents,
    /// The guard against mass loss of endpoints, if enabled.
    guard: Option<Guard>,
}

/// What must be planned again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// These Services.
    pub services: BTreeSet<ServiceId>,
    /// All Services.
    pub all_services: bool,
    /// These nodes.
    pub nodes: BTreeSet<Arc<str>>,
    /// All nodes.
    pub all_nodes: bool,
    /// Nodes whose zone changed, or that appeared or disappeared with one. Their use of Services with hints may
    /// depend on it (S-62).
    pub rezoned: BTreeSet<Arc<str>>,
    /// Addresses that may have received their first endpoint or lost their last one.
    pub addresses: BTreeSet<IpAddr>,
}

impl Touched {
    /// Whether nothing must be planned.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && !self.all_services && self.nodes.is_empty() && !self.all_nodes
    }

    /// Merges the effects of another change.
    pub fn merge(&mut self, other: Self) {
        self.services.extend(other.services);
        self.nodes.extend(other.nodes);
        self.rezoned.extend(other.rezoned);
        self.addresses.extend(other.addresses);
        self.all_services |= other.all_services;
        self.all_nodes |= other.all_nodes;
    }
}

impl ClusterModel {
    /// Applies an event. An object equal to the stored one has no effect.
    pub fn apply(&mut self, event: Event) -> Touched {
        let mut touched = Touched::default();
        match event {
            Event::Node(change) => {
                for changed in self.nodes.apply(change) {
                    self.node_changed(&changed, &mut touched);
                }
            }
            Event::Service(change) => {
                for changed in self.services.apply(change) {
                    self.service_changed(&changed, &mut touched);
                }
            }
            Event::EndpointSlice(mut change) => {
                self.names.share(&mut change);
                if let ObjectChange::Replace(all) = &mut change {
                    all.extend(self.own_slices().map(|slice| (**slice).clone()));
                }
                self.change_slices(change, &mut touched);
            }
            Event::ServiceCidr(change) => {
                touched.all_nodes |= !self.service_cidrs.apply(change).is_empty();
            }
            Event::ProxyConfig(change) => {
                let (before, config) = (self.settings(), self.config_in_force().cloned());
                if !self.proxy_configs.apply(change).is_empty() {
                    let after = self.settings();
                    let whole = |config: Option<&Arc<ProxyConfig>>| {
                        let none = || Arc::new(ProxyConfig::of(Settings::default()));
                        config.cloned().unwrap_or_else(none)
                    };
                    let same = whole(config.as_ref()).serves_like(&whole(self.config_in_force()));
                    touched.all_nodes |= !same;
                    touched.all_services |= before.service_proxy_name != after.service_proxy_name;
                    touched.all_services |= before.external_ips != after.external_ips;
                    touched.all_services |= before.exclude_cidrs != after.exclude_cidrs;
                    touched.all_services |= before.healthz != after.healthz;
                    touched.all_services |= before.metrics != after.metrics;
                }
            }
        }
        touched
    }

    fn service_changed(&mut self, changed: &Changed<Service>, touched: &mut Touched) {
        if changed.after.is_none()
            && let Some(guard) = &mut self.guard
        {
            guard.look_at_all();
        }
        for service in changed.before.iter() {
            for claim in claims_of(service) {
                self.claims.remove(&claim, &service.id);
            }
        }
        for service in changed.after.iter() {
            for claim in claims_of(service) {
                self.claims.insert(claim, service.id.clone());
            }
        }
        for service in changed.both() {
            touched.services.insert(service.id.clone());
            for claim in claims_of(service) {
                let rivals = match claim {
                    Claim::Place(..) | Claim::NodePort(_) => Some(claim),
                    Claim::ExternalPort(_) => None,
                };
                let others = match claim {
                    Claim::NodePort(port) => Some(Claim::ExternalPort(port)),
                    Claim::Place(..) | Claim::ExternalPort(_) => None,
                };
                // Another Service may gain or lose precedence (S-14).
                for claim in rivals.into_iter().chain(others) {
                    touched.services.extend(self.claims.get(&claim).cloned());
                }
            }
        }
    }

    fn node_changed(&mut self, changed: &Changed<Node>, touched: &mut Touched) {
        self.owners.follow(changed);
        if let Some(guard) = &mut self.guard
            && !changed.after.as_ref().is_some_and(|node| node.ready)
        {
            guard.look_at_all();
        }
        let names = changed.both().map(|node| node.name.clone());
        touched.nodes.extend(names);
        let zone = |node: &Option<Arc<Node>>| node.as_ref()?.zone.clone();
        if zone(&changed.before) != zone(&changed.after) {
            let names = changed.both().map(|node| node.name.clone());
            touched.rezoned.extend(names);
        }
        if changed.before.is_none() || changed.after.is_none() {
            self.touch_residents(changed, touched);
        }
        for address in changed.differing(|node| &node.addresses) {
            self.touch_claims(address..=address, touched);
        }
    }

    /// A node was added or removed, which affects the endpoints on it. This is rare, so a full scan is acceptable.
    fn touch_residents(&self, changed: &Changed<Node>, touched: &mut Touched) {
        let names: BTreeSet<_> = changed.both().map(|node| &node.name).collect();
        let endpoints = self.slices.values().flat_map(|slice| &slice.endpoints);
        let there = endpoints.filter(|e| e.node.as_ref().is_some_and(|node| names.contains(node)));
        touched.addresses.extend(there.map(|e| e.address));
    }

    /// An address got an owner, or lost it.
    fn touch_claims(&self, addresses: RangeInclusive<IpAddr>, touched: &mut Touched) {
        let (first, last) = addresses.into_inner();
        let claims = Claim::places(first, last);
        touched.services.extend(self.claims.range(claims).cloned());
    }

    fn change_slices(&mut self, change: ObjectChange<EndpointSlice>, touched: &mut Touched) {
        for changed in self.slices.apply(change) {
            self.watch_over(&changed);
            self.slice_changed(&changed, touched);
        }
    }

    fn slice_changed(&mut self, changed: &Changed<EndpointSlice>, touched: &mut Touched) {
        let before = changed
            .before
            .iter()
            .filter_map(|slice| Some((slice.service_id()?, &slice.id)));
        for (service, slice) in before {
            self.slices_of.remove(&service, slice);
            touched.services.insert(service);
        }
        let after = changed
            .after
            .iter()
            .filter_map(|slice| Some((slice.service_id()?, &slice.id)));
        for (service, slice) in after {
            self.slices_of.insert(service.clone(), slice.clone());
            touched.services.insert(service);
        }
        let addresses = self.residents.follow(changed);
        for address in &addresses {
            self.touch_claims(*address..=*address, touched);
        }
        touched.addresses.extend(addresses);
        let api_server = ServiceId::api_server();
        for slice in changed.both() {
            if slice.service_id().as_ref() == Some(&api_server) {
                for endpoint in &slice.endpoints {
                    self.touch_claims(endpoint.address..=endpoint.address, touched);
                }
            }
        }
    }

    /// An object of any kind.
    pub fn object(&self, id: &ObjectId) -> Option<Object> {
        Some(match id {
            ObjectId::Node(name) => Object::Node((**self.node(name)?).clone()),
            ObjectId::Service(id) => Object::Service((**self.service(id)?).clone()),
            ObjectId::EndpointSlice(id) => Object::EndpointSlice((**self.slice(id)?).clone()),
            ObjectId::ServiceCidr(name) => {
                Object::ServiceCidr((**self.service_cidr(name)?).clone())
            }
            ObjectId::ProxyConfig(name) => {
                Object::ProxyConfig((**self.proxy_config(name)?).clone())
            }
        })
    }

    /// A Service.
    pub fn service(&self, id: &ServiceId) -> Option<&Arc<Service>> {
        self.services.get(id)
    }

    /// All Services in order.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.values()
    }

    /// The slices of a Service, by name.
    pub fn slices_of(&self, service: &ServiceId) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        let names = self.slices_of.get(service);
        names.filter_map(|id| self.slices.get(id))
    }

    /// An EndpointSlice.
    pub fn slice(&self, id: &SliceId) -> Option<&Arc<EndpointSlice>> {
        self.slices.get(id)
    }

    /// A ServiceCIDR.
    pub fn service_cidr(&self, name: &Arc<str>) -> Option<&Arc<ServiceCidr>> {
        self.service_cidrs.get(name)
    }

    /// A ProxyConfig.
    pub fn proxy_config(&self, name: &Arc<str>) -> Option<&Arc<ProxyConfig>> {
        self.proxy_configs.get(name)
    }

    /// All slices in order.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        self.slices.values()
    }

    /// The Services with a claim.
    pub(crate) fn claims(&self, claim: Claim) -> impl Iterator<Item = &Arc<Service>> {
        let claims = self.claims.get(&claim);
        claims.filter_map(|id| self.services.get(id))
    }

    /// The nodes with this address, in order.
    pub fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        self.owners.nodes_at(address)
    }

    /// The first slice by name with an endpoint that has this address. Addresses of nodes do not count, because pods
    /// in the host network have them.
    pub fn slice_at(&self, address: IpAddr) -> Option<&SliceId> {
        let of_node = self.nodes_at(address).next().is_some();
        let mut slices = self.residents.slices_at(address);
        slices.next().filter(|_| !of_node)
    }

    /// The pod range that contains the address, and its node.
    pub fn pod_range(&self, address: IpAddr) -> Option<(IpNet, &Arc<str>)> {
        self.owners.pod_range(address)
    }

    /// Whether an endpoint has this address, ready or not, and its node exists. An endpoint whose node does not exist
    /// will not answer any more.
    pub fn is_resident(&self, address: IpAddr) -> bool {
        let slices = self.residents.slices_at(address);
        let slices = slices.filter_map(|id| self.slices.get(id));
        let mut endpoints = slices.flat_map(|slice| &slice.endpoints);
        let is_there = |node: &Arc<str>| self.nodes.get(node).is_some();
        endpoints.any(|e| e.address == address && e.node.as_ref().is_none_or(is_there))
    }

    /// Whether an API server listens there, according to the slices of its Service.
    pub fn is_api_server(&self, address: IpAddr, protocol: Protocol, port: u16) -> bool {
        let id = ServiceId::api_server();
        let mut slices = self.slices_of(&id);
        slices.any(|slice| {
            let mut ports = slice.ports.iter();
            ports.any(|own| (own.protocol, own.port) == (protocol, port))
                && slice.endpoints.iter().any(|e| e.address == address)
        })
    }

    /// A Node.
    pub fn node(&self, name: &Arc<str>) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All Nodes in order.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// All ServiceCIDRs in order.
    pub fn service_cidr_objects(&self) -> impl Iterator<Item = &Arc<ServiceCidr>> {
        self.service_cidrs.values()
    }

    /// The cluster IP ranges, without duplicates, in order.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        let cidrs: BTreeSet<_> = self.service_cidrs.values().flat_map(|o| &o.cidrs).collect();
        cidrs.into_iter().copied().collect()
    }

    /// The settings that all nodes share, such as which Services are served. A change in progress does not count
    /// until all nodes have it.
    pub fn settings(&self) -> Settings {
        let config = self.config_in_force();
        config.map_or_else(Settings::default, |config| config.current.settings.clone())
    }

    /// The settings of a node.
    pub fn settings_of(&self, node: &Node) -> Settings {
        let config = self.config_in_force();
        config.map_or_else(Settings::default, |config| {
            config.revision_of(node).settings_of(node)
        })
    }

    /// The revision of the settings of a node; `None` if they have none, or the node does not exist.
    pub fn revision_of(&self, node: &Arc<str>) -> Option<u64> {
        let node = self.nodes.get(node)?;
        self.config_in_force()?.revision_of(node).number
    }

    /// The ProxyConfig that is in force.
    pub fn config_in_force(&self) -> Option<&Arc<ProxyConfig>> {
        self.proxy_configs.get(&ProxyConfig::DEFAULT.into())
    }
}
