//! Collects the desired state, Service by Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use portolan_plan::{
    ExternalClients, Family, Frontend, FrontendKind, Head, HeadPort, ListUse, Local,
    LocalDetection, NodeEntry, NodePlan, Policy, ServiceId, Settings,
};

use super::{Desired, HealthPort, virtual_server};
use crate::deadlines::{DrainDeadlines, drains};
use crate::entries::Entries;
use crate::host::HostNetwork;
use crate::route;
use crate::rules::Rules;
use crate::{RealServers, SetEntry, SetRole, Timeouts, VirtualServerKey};
use crate::{node_ports, sysctls};

/// The desired state so far, and what the next Services need.
pub(super) struct Builder<'a> {
    settings: &'a Settings,
    host: &'a HostNetwork,
    node: &'a NodeEntry,
    /// Schedulers that the kernel lacks.
    lacking: &'a BTreeSet<Arc<str>>,
    desired: Desired,
    sets: Entries,
    /// The node addresses that serve node ports.
    node_ports: BTreeSet<IpAddr>,
    /// The addresses of the current Service.
    addresses: BTreeSet<IpAddr>,
    /// Whether a Service was left out in a family that the node does not have.
    left_out: bool,
    /// The frontends of all Services, with or without endpoints.
    places: BTreeSet<VirtualServerKey>,
    /// The node port frontends of all Services.
    node_port_places: BTreeSet<VirtualServerKey>,
}

/// One address and port of a frontend, with its Service.
#[derive(Clone, Copy)]
struct Place<'a> {
    key: VirtualServerKey,
    kind: FrontendKind,
    service: &'a ServiceId,
    head: &'a Head,
    port: &'a HeadPort,
}

impl Place<'_> {
    /// The list that serves the frontend.
    fn list(&self) -> Option<&ListUse> {
        match self.kind {
            FrontendKind::ClusterIp => Some(&self.port.internal),
            _ => self.port.external.as_ref(),
        }
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        node: &'a NodeEntry,
        host: &'a HostNetwork,
        lacking: &'a BTreeSet<Arc<str>>,
    ) -> Self {
        let settings = &node.settings;
        let desired = Desired {
            node: node.name.clone(),
            device: settings.device.clone(),
            virtual_servers: BTreeMap::new(),
            boot_critical: BTreeSet::new(),
            resting: BTreeSet::new(),
            deadlines: DrainDeadlines {
                default: settings.drain.deadline.as_duration(),
                of: BTreeMap::new(),
            },
            sets: BTreeMap::new(),
            routes: BTreeSet::new(),
            policy: route::policy(settings, host),
            rules: Vec::new(),
            sysctls: sysctls(node, host),
            timeouts: Timeouts::of(&settings.timeouts),
            health_ports: Vec::new(),
            service_ranges: node.service_cidrs.clone(),
            common: BTreeMap::new(),
            contested: BTreeSet::new(),
            node_ports: BTreeSet::new(),
            excluded: settings.exclude_cidrs.clone(),
            lacks_ipv6: None,
            idle: BTreeSet::new(),
            fallbacks: BTreeMap::new(),
        };
        Self {
            settings,
            host,
            node,
            lacking,
            desired,
            sets: Entries::new(),
            node_ports: node_ports::addresses(node, host),
            addresses: BTreeSet::new(),
            left_out: false,
            places: BTreeSet::new(),
            node_port_places: BTreeSet::new(),
        }
    }

    /// Node ports take precedence on the node's own addresses (S-31). Only the node knows all of its addresses, so
    /// the planner cannot decide this.
    pub(super) fn claim_node_ports(&mut self, plan: &NodePlan) {
        let ports = plan.heads().flat_map(|(_, head)| &head.ports);
        for port in ports {
            for frontend in &port.frontends {
                if frontend.kind == FrontendKind::NodePort {
                    let keys = self.expanded(port, frontend.port);
                    self.node_port_places.extend(keys);
                }
            }
        }
    }

    /// The frontends of a node port, only in families in which the Service has a cluster IP.
    fn expanded(&self, port: &HeadPort, number: u16) -> Vec<VirtualServerKey> {
        let own = self.node_ports.iter().copied();
        let own = own.filter(|address| port.has_family(Family::of(*address)));
        let key = |address| VirtualServerKey {
            address,
            port: number,
            protocol: port.protocol,
        };
        own.map(key).collect()
    }

    /// Whether a node port of another Service port takes precedence at this address and port.
    fn is_of_node_port(&self, key: VirtualServerKey, port: &HeadPort) -> bool {
        let is_same = |frontend: &Frontend| {
            (frontend.kind, frontend.port) == (FrontendKind::NodePort, key.port)
        };
        self.node_port_places.contains(&key) && !port.frontends.iter().any(is_same)
    }

    pub(super) fn service(&mut self, plan: &NodePlan, service: &ServiceId, head: &Head) {
        for port in &head.ports {
            for frontend in &port.frontends {
                let (kind, number) = (frontend.kind, frontend.port);
                if kind == FrontendKind::NodePort {
                    self.desired.node_ports.insert((port.protocol, number));
                }
                let keys = match frontend.address {
                    Some(address) => vec![VirtualServerKey {
                        address,
                        port: number,
                        protocol: port.protocol,
                    }],
                    None => self.expanded(port, number),
                };
                for key in keys {
                    if kind != FrontendKind::NodePort && self.is_of_node_port(key, port) {
                        self.desired.contested.insert(key);
                        continue;
                    }
                    self.place(
                        plan,
                        Place {
                            key,
                            kind,
                            service,
                            head,
                            port,
                        },
                    );
                }
            }
        }
        for address in std::mem::take(&mut self.addresses) {
            let entry = SetEntry::Net(address.into());
            self.sets.entry(SetRole::Vips, address, entry);
            *self.desired.common.entry(entry).or_default() += 1;
        }
    }

    fn place(&mut self, plan: &NodePlan, place: Place<'_>) {
        let address = place.key.address;
        let mut excluded = self.settings.exclude_cidrs.iter();
        let Some(list) = place.list() else { return };
        let family = Family::of(address);
        if excluded.any(|range| range.contains(&address)) {
            return;
        }
        if !self.host.supports(family) {
            self.left_out = true;
            return;
        }
        if !self.places.insert(place.key) {
            self.desired.contested.insert(place.key);
        }
        if place.kind != FrontendKind::NodePort {
            self.addresses.insert(address);
        }
        // A client that is kept out must not learn whether there are endpoints (S-93).
        if place.kind == FrontendKind::LoadBalancer {
            let inside = self.let_in(address);
            let sources = &place.head.source_ranges;
            self.sets.guard(place.key, sources, self.host, &inside);
        }
        let backends = plan.backends(place.service, place.port, list, family);
        let real_servers = backends.map_or_else(RealServers::new, |list| list.clone().into());
        if drains(place.key.protocol) {
            self.drain(place, real_servers.is_empty());
        }
        // Rules reject connections to frontends without endpoints. An empty virtual server would be worse: for UDP it
        // answers the node itself with "not permitted", and for TCP over IPv6 only after a retransmission (S-21).
        if real_servers.is_empty() {
            self.sets.frontend(SetRole::Refuse, place.key);
            return;
        }
        let scheduler = self.scheduler(place);
        let server = virtual_server(&scheduler, place.port.affinity_seconds, real_servers);
        self.desired.virtual_servers.insert(place.key, server);
        if place.head.boot_critical {
            self.desired.boot_critical.insert(place.key);
        }
        self.sets.frontend(SetRole::Frontend, place.key);
        match (place.kind, list.policy) {
            (FrontendKind::ClusterIp, _) => self.sets.frontend(SetRole::ClusterIp, place.key),
            (_, Policy::Cluster) => self.sets.frontend(SetRole::Masq, place.key),
            (_, Policy::Local) => {}
        }
        if list.choice(family).external_clients == ExternalClients::Drop {
            self.sets.frontend(SetRole::NoLocal, place.key);
        }
    }

    /// The scheduler of a frontend. Only one that the Service asks for itself is replaced: a missing one of the
    /// settings is the operator's to correct.
    fn scheduler(&mut self, place: Place<'_>) -> Arc<str> {
        let of_settings = &self.settings.scheduler;
        match &place.head.scheduler {
            Some(asked) if asked != of_settings && self.lacking.contains(asked) => {
                let service = place.service.clone();
                self.desired.fallbacks.insert(service, asked.clone());
                of_settings.clone()
            }
            Some(asked) => asked.clone(),
            None => of_settings.clone(),
        }
    }

    /// The ranges that may connect to a load balancer's address regardless of its source ranges: the node and its
    /// pods, if the address is also a cluster IP, that is, if it is in a service range.
    fn let_in(&self, address: IpAddr) -> Vec<IpNet> {
        let mut ranges = self.desired.service_ranges.iter();
        if !ranges.any(|range| range.contains(&address)) {
            return Vec::new();
        }
        // The route to the service range selects one of these as the source address of the node's own connections.
        let own = self.node.addresses.iter().copied().map(IpNet::from);
        let pods = match &self.settings.local_detection {
            LocalDetection::ClusterCidr { cluster_cidrs } => cluster_cidrs,
            _ => &self.node.pod_cidrs,
        };
        own.chain(pods.iter().copied()).collect()
    }

    fn drain(&mut self, place: Place<'_>, rests: bool) {
        if let Some(seconds) = place.head.drain_seconds {
            let deadline = Duration::from_secs(seconds.into());
            self.desired.deadlines.of.insert(place.key, deadline);
        }
        if rests {
            self.desired.resting.insert(place.key);
        }
    }

    /// The own endpoints of a Service and its health check port.
    pub(super) fn local(&mut self, service: &ServiceId, local: &Local) {
        for endpoint in &local.endpoints {
            let (address, protocol, port) = (endpoint.address, endpoint.protocol, endpoint.port);
            if !self.host.supports(Family::of(address)) {
                continue;
            }
            let entry = SetEntry::AddressPortSource {
                address,
                protocol,
                port,
                source: address,
            };
            self.sets.entry(SetRole::Hairpin, address, entry);
            *self.desired.common.entry(entry).or_default() += 1;
        }
        if let Some(health) = local.health {
            self.sets.health(health.port);
            let entry = SetEntry::Port(health.port);
            *self.desired.common.entry(entry).or_default() += 1;
            let service = service.clone();
            self.desired.health_ports.push(HealthPort {
                port: health.port,
                service,
            });
        }
    }

    pub(super) fn finish(mut self, node: &NodeEntry) -> Desired {
        let detection = &node.settings.local_detection;
        self.sets.pods(&node.pod_cidrs, detection);
        let host = self.host;
        let excluded = &node.settings.exclude_cidrs;
        let ranges = route::own_ranges(&node.service_cidrs, excluded, host);
        let ranges: BTreeSet<_> = ranges.collect();
        for range in &ranges {
            self.sets.nets(SetRole::Ranges, *range);
        }
        let routes = route::routes(ranges.into_iter(), node, host);
        for key in &self.desired.contested {
            self.sets.settle(*key);
        }
        let rules = |family| {
            let recognises_pods = self
                .sets
                .recognises_pods(family, &self.settings.local_detection);
            Rules::new(family, self.settings, recognises_pods)
        };
        // A kernel without IPv6 may be unable to load rules, and they would have no effect.
        let matters = |family: &Family| {
            host.supports(*family) && (self.sets.answers(*family) || host.has_address_in(*family))
        };
        let families = Family::BOTH.into_iter().filter(matters);
        self.desired.rules = families.map(rules).collect();
        let idle =
            |family: &Family| !self.sets.answers(*family) && !host.is_reachable_over(*family);
        self.desired.idle = Family::BOTH.into_iter().filter(idle).collect();
        let off = host.machine.ipv6_off;
        self.desired.lacks_ipv6 = off.filter(|_| self.left_out && has_ipv6(node));
        self.desired.health_ports.sort();
        Desired {
            routes,
            sets: self.sets.finish(),
            ..self.desired
        }
    }
}

/// Whether the plan gives the node IPv6 addresses or pod ranges.
fn has_ipv6(node: &NodeEntry) -> bool {
    let addresses = node.addresses.iter().copied();
    let mut all = addresses.chain(node.pod_cidrs.iter().map(IpNet::addr));
    all.any(|address| Family::of(address) == Family::Ipv6)
}
