//! Collects the facts, Service by Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    Backend, BackendList, Entry, EntryKey, ExternalClients, Family, Frontend, FrontendKind, Head,
    HeadPort, ListUse, Local, LocalDetection, LocalEndpoint, NodeEntry, NodePlan, Policy, Protocol,
    ServiceId,
};

use super::{Facts, FrontendFacts, HealthPort, Masquerade, sources};
use crate::host::HostNetwork;
use crate::{RealServers, VirtualServerKey, node_ports, route};

/// The facts so far, and what the next Services need.
pub(super) struct Builder<'a> {
    host: &'a HostNetwork,
    facts: Facts,
    /// The node addresses that serve node ports.
    node_ports: BTreeSet<IpAddr>,
    /// Whether a Service was left out in a family that the node does not have.
    left_out: bool,
    /// The frontends of all Services, with or without endpoints.
    places: BTreeSet<VirtualServerKey>,
    /// The node port frontends of all Services.
    node_port_places: BTreeSet<VirtualServerKey>,
    /// The backends of the current Service in the node's pod ranges.
    here: BTreeSet<LocalEndpoint>,
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
    pub(super) fn new(node: &Arc<NodeEntry>, host: &'a HostNetwork) -> Self {
        let excluded = &node.settings.exclude_cidrs;
        let ranges = route::own_ranges(&node.service_cidrs, excluded, host);
        let facts = Facts {
            node: node.clone(),
            frontends: Vec::new(),
            local_endpoints: Vec::new(),
            health_ports: Vec::new(),
            pods: pods(node),
            ranges: ranges.collect(),
            balancers: BTreeSet::new(),
            refusing: BTreeSet::new(),
            contested: BTreeSet::new(),
            node_ports: BTreeSet::new(),
            families: BTreeSet::new(),
            idle: BTreeSet::new(),
            lacks_ipv6: None,
            kernel: host.machine.kernel,
        };
        Self {
            host,
            facts,
            node_ports: node_ports::addresses(node, host),
            left_out: false,
            places: BTreeSet::new(),
            node_port_places: BTreeSet::new(),
            here: BTreeSet::new(),
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
                    self.facts.node_ports.insert((port.protocol, number));
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
                        self.facts.contested.insert(key);
                        continue;
                    }
                    let place = Place {
                        key,
                        kind,
                        service,
                        head,
                        port,
                    };
                    self.place(plan, place);
                }
            }
        }
        self.unnamed(plan, service);
    }

    fn place(&mut self, plan: &NodePlan, place: Place<'_>) {
        let Place {
            key,
            kind,
            service,
            head,
            port,
        } = place;
        let Some(list) = place.list() else { return };
        let family = Family::of(key.address);
        let node = &self.facts.node;
        let mut excluded = node.settings.exclude_cidrs.iter();
        if excluded.any(|range| range.contains(&key.address)) {
            return;
        }
        if !self.host.supports(family) {
            self.left_out = true;
            return;
        }
        let mut ranges = node.service_cidrs.iter();
        if kind == FrontendKind::LoadBalancer && !ranges.any(|range| range.contains(&key.address)) {
            self.facts.balancers.insert(key.address);
        }
        let sources = match kind {
            FrontendKind::LoadBalancer => {
                sources::allowed(key.address, &head.source_ranges, node, self.host)
            }
            _ => None,
        };
        if !self.places.insert(key) {
            self.facts.contested.insert(key);
        }
        let backends = plan.backends(service, port, list, family);
        if let Some(backends) = backends {
            self.note_here(port.protocol, backends);
        }
        self.facts.frontends.push(FrontendFacts {
            key,
            kind,
            service: service.clone(),
            backends: backends.map_or_else(RealServers::new, |list| list.clone().into()),
            scheduler: head.scheduler.clone(),
            affinity_seconds: port.affinity_seconds,
            boot_critical: head.boot_critical,
            masquerade: match (kind, list.policy) {
                (FrontendKind::ClusterIp, _) => Masquerade::ClusterIp,
                (_, Policy::Cluster) => Masquerade::External,
                (_, Policy::Local) => Masquerade::Never,
            },
            drops_external_clients: list.choice(family).external_clients == ExternalClients::Drop,
            sources,
            drain_seconds: head.drain_seconds,
        });
    }

    /// Backends of a Service in the node's pod ranges that its local entry does not contain: their endpoints name no
    /// node, so only their addresses show that the pods are here. They may connect to themselves (S-246); for policy
    /// Local, and for health checks, they stay endpoints of no node (S-44).
    fn unnamed(&mut self, plan: &NodePlan, service: &ServiceId) {
        if self.here.is_empty() {
            return;
        }
        if let Some(Entry::Local(local)) = plan.get(&EntryKey::Local(service.clone())) {
            for named in &local.endpoints {
                self.here.remove(named);
            }
        }
        let unnamed = std::mem::take(&mut self.here);
        self.facts.local_endpoints.extend(unnamed);
    }

    /// Notes the backends in the node's pod ranges.
    fn note_here(&mut self, protocol: Protocol, backends: &BackendList) {
        let ranges = &self.facts.node.pod_cidrs;
        let here = ranges.iter().flat_map(|range| within(backends, range));
        self.here.extend(here.map(|backend| LocalEndpoint {
            address: backend.address,
            protocol,
            port: backend.port,
        }));
    }

    /// The own endpoints of a Service and its health check port.
    pub(super) fn local(&mut self, service: &ServiceId, local: &Local) {
        let endpoints = local.endpoints.iter();
        let usable = endpoints.filter(|own| self.host.supports(Family::of(own.address)));
        self.facts.local_endpoints.extend(usable);
        if let Some(health) = local.health {
            self.facts.health_ports.push(HealthPort {
                port: health.port,
                service: service.clone(),
            });
        }
    }

    pub(super) fn finish(self) -> Facts {
        let (host, mut facts) = (self.host, self.facts);
        let needs_rules = |family: &Family| {
            host.supports(*family) && (facts.answers(*family) || host.has_address_in(*family))
        };
        let families = Family::BOTH.into_iter().filter(needs_rules).collect();
        let idle = |family: &Family| !facts.answers(*family) && !host.is_reachable_over(*family);
        facts.idle = Family::BOTH.into_iter().filter(idle).collect();
        facts.families = families;
        let off = host.machine.ipv6_off;
        facts.lacks_ipv6 = off.filter(|_| self.left_out && has_ipv6(&facts.node));
        facts.health_ports.sort();
        facts.refusing = host.without_route(&facts.balancers);
        facts
    }
}

/// The backends of a list in a range: they follow each other, because the list is sorted by address.
fn within<'a>(list: &'a BackendList, range: &IpNet) -> &'a [Backend] {
    let backends = list.as_slice();
    let start = backends.partition_point(|backend| backend.address < range.network());
    let rest = backends.get(start..).unwrap_or_default();
    let end = rest.partition_point(|backend| range.contains(&backend.address));
    rest.get(..end).unwrap_or_default()
}

/// The ranges whose addresses count as pods.
fn pods(node: &NodeEntry) -> Vec<IpNet> {
    match &node.settings.local_detection {
        LocalDetection::NodeCidr => node.pod_cidrs.clone(),
        LocalDetection::ClusterCidr { cluster_cidrs } => cluster_cidrs.clone(),
        // Pods are recognised by the interface.
        LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => {
            Vec::new()
        }
    }
}

/// Whether the plan gives the node IPv6 addresses or pod ranges.
fn has_ipv6(node: &NodeEntry) -> bool {
    let addresses = node.addresses.iter().copied();
    let mut all = addresses.chain(node.pod_cidrs.iter().map(IpNet::addr));
    all.any(|address| Family::of(address) == Family::Ipv6)
}
