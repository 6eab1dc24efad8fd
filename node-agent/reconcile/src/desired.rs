//! From a plan to what the kernel should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use portolan_plan::{
    Family, Frontend, FrontendKind, Head, HeadPort, ListUse, LocalDetection, NodeEntry, NodePlan,
    Outsiders, Policy, Protocol, ServiceId, Settings,
};

use crate::drain::{self, DrainDeadlines};
use crate::entries::Entries;
use crate::host::{HostNetwork, Ipv6Off};
use crate::route::{self, PolicyRule, Route};
use crate::rules::Rules;
use crate::{
    RealServers, SetEntry, SetId, SetRole, Timeouts, VirtualServer, VirtualServerKey, flags,
};
use crate::{node_ports, sysctls};

/// What the kernel should hold for one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The node's name; it decides where each backend stands in its virtual server.
    pub node: Arc<str>,
    /// Our device.
    pub device: Arc<str>,
    /// Virtual servers with their real servers.
    pub virtual_servers: BTreeMap<VirtualServerKey, VirtualServer>,
    /// Virtual servers that are written first.
    pub boot_critical: BTreeSet<VirtualServerKey>,
    /// Virtual servers of Services that have no endpoint now. They take no new connections; one that
    /// is in the kernel stays until the connections ended that it has.
    pub resting: BTreeSet<VirtualServerKey>,
    /// How long real servers may keep connections after their endpoints left the cluster.
    pub deadlines: DrainDeadlines,
    /// Every one of our sets.
    pub sets: BTreeMap<SetId, DesiredSet>,
    /// Routes.
    pub routes: BTreeSet<Route>,
    /// Policy routing rules.
    pub policy: BTreeSet<PolicyRule>,
    /// Rules of both families.
    pub rules: Vec<Rules>,
    /// Kernel settings.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// Timeouts of connections; 0 leaves what the kernel has.
    pub timeouts: Timeouts,
    /// Health check ports.
    pub health_ports: Vec<HealthPort>,
    /// The ranges of cluster IPs.
    pub service_ranges: Vec<IpNet>,
    /// Entries of sets for which several Services may ask, and how many do: this node's endpoints as
    /// they reach themselves, health check ports, and addresses of frontends.
    pub common: BTreeMap<SetEntry, u32>,
    /// Places that more than one Service has, which no planner gives away: an external address may
    /// be one of this node's that the cluster does not know of, and meet a node port there.
    pub contested: BTreeSet<VirtualServerKey>,
    /// The node ports.
    pub node_ports: BTreeSet<(Protocol, u16)>,
    /// Ranges in which nothing is ours.
    pub excluded: Vec<IpNet>,
    /// Why Services are not served at their IPv6 addresses though the plan gives the node IPv6 addresses or
    /// pods: one of the two is wrong. On a node that has none by its plan either, nothing is.
    pub lacks_ipv6: Option<Ipv6Off>,
    /// Families in which the plan has nothing and nobody reaches the node. Rules of ours that are there are
    /// kept right, and where there are none, none are loaded.
    pub idle: BTreeSet<Family>,
}

/// A set as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredSet {
    /// How many entries it has to hold at least.
    pub max_elements: u32,
    /// Its entries.
    pub entries: BTreeSet<SetEntry>,
}

/// A health check port and the Service it speaks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthPort {
    /// The port.
    pub port: u16,
    /// The Service.
    pub service: ServiceId,
}

impl Desired {
    /// What the kernel should hold for this plan on a node with this network; `None` while the
    /// plan does not say what the node is.
    pub fn new(plan: &NodePlan, host: &HostNetwork) -> Option<Self> {
        let node = plan.node()?;
        let mut builder = Builder::new(node, host);
        builder.claim_node_ports(plan);
        for (service, head) in plan.heads() {
            builder.service(plan, service, head);
        }
        for (service, local) in plan.locals() {
            for endpoint in &local.endpoints {
                let (address, protocol, port) =
                    (endpoint.address, endpoint.protocol, endpoint.port);
                if !host.knows(Family::of(address)) {
                    continue;
                }
                let entry = SetEntry::AddressPortSource {
                    address,
                    protocol,
                    port,
                    source: address,
                };
                builder.sets.entry(SetRole::Hairpin, address, entry);
                *builder.desired.common.entry(entry).or_default() += 1;
            }
            if let Some(health) = local.health {
                builder.sets.health(health.port);
                let entry = SetEntry::Port(health.port);
                *builder.desired.common.entry(entry).or_default() += 1;
                let service = service.clone();
                builder.desired.health_ports.push(HealthPort {
                    port: health.port,
                    service,
                });
            }
        }
        let detection = &node.settings.local_detection;
        builder.sets.pods(&node.pod_cidrs, detection);
        Some(builder.finish(node))
    }
}

struct Builder<'a> {
    settings: &'a Settings,
    host: &'a HostNetwork,
    node: &'a NodeEntry,
    desired: Desired,
    sets: Entries,
    /// Where node ports answer.
    node_ports: BTreeSet<IpAddr>,
    /// Addresses of the Service at hand.
    addresses: BTreeSet<IpAddr>,
    /// Whether some Service would answer in a family that the node does not have.
    left_out: bool,
    /// Where some Service answers, or would if it had endpoints.
    places: BTreeSet<VirtualServerKey>,
    /// Where some Service has a node port.
    node_port_places: BTreeSet<VirtualServerKey>,
}

/// One address of a frontend, with what serves it.
#[derive(Clone, Copy)]
struct Place<'a> {
    key: VirtualServerKey,
    kind: FrontendKind,
    service: &'a ServiceId,
    head: &'a Head,
    port: &'a HeadPort,
}

impl Place<'_> {
    /// What serves it.
    fn list(&self) -> Option<&ListUse> {
        match self.kind {
            FrontendKind::ClusterIp => Some(&self.port.internal),
            _ => self.port.external.as_ref(),
        }
    }
}

impl<'a> Builder<'a> {
    fn new(node: &'a NodeEntry, host: &'a HostNetwork) -> Self {
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
        };
        Self {
            settings,
            host,
            node,
            desired,
            sets: Entries::new(),
            node_ports: node_ports::addresses(node, host),
            addresses: BTreeSet::new(),
            left_out: false,
            places: BTreeSet::new(),
            node_port_places: BTreeSet::new(),
        }
    }

    /// Node ports come first on the node's own addresses (S-31). Only the node knows all of those, so the planner does
    /// not decide it.
    fn claim_node_ports(&mut self, plan: &NodePlan) {
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

    /// A node port answers only in families in which the Service has a cluster IP.
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

    /// Whether a node port has the place of another kind of frontend, unless it is that of the same port.
    fn is_of_node_port(&self, key: VirtualServerKey, port: &HeadPort) -> bool {
        let is_same = |frontend: &Frontend| {
            (frontend.kind, frontend.port) == (FrontendKind::NodePort, key.port)
        };
        self.node_port_places.contains(&key) && !port.frontends.iter().any(is_same)
    }

    fn service(&mut self, plan: &NodePlan, service: &ServiceId, head: &Head) {
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
        if !self.host.knows(family) {
            self.left_out = true;
            return;
        }
        if !self.places.insert(place.key) {
            self.desired.contested.insert(place.key);
        }
        if place.kind != FrontendKind::NodePort {
            self.addresses.insert(address);
        }
        // Whoever is kept out must not learn whether there are endpoints (S-93).
        if place.kind == FrontendKind::LoadBalancer {
            let inside = self.let_in(address);
            let sources = &place.port.source_ranges;
            self.sets.guard(place.key, sources, self.host, &inside);
        }
        let backends = plan.backends(place.service, place.port, list, family);
        let real_servers = backends.map_or_else(RealServers::new, |list| list.clone().into());
        if drain::drains(place.key.protocol) {
            self.drain(place, real_servers.is_empty());
        }
        // Rules refuse what has no endpoint. An empty virtual server would do it worse: to the node itself it
        // answers UDP with "not permitted", and TCP over IPv6 only after a retransmission (S-21).
        if real_servers.is_empty() {
            self.sets.frontend(SetRole::Refuse, place.key);
            return;
        }
        let scheduler = place.head.scheduler.as_ref();
        let scheduler = scheduler.unwrap_or(&self.settings.scheduler);
        let server = virtual_server(scheduler, place.port.affinity_seconds, real_servers);
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
        if list.choice(family).outsiders == Outsiders::Drop {
            self.sets.frontend(SetRole::NoLocal, place.key);
        }
    }

    /// Who may connect to a balancer's address whatever its source ranges are: if it is a cluster IP too, which its
    /// range tells, the node and its pods.
    fn let_in(&self, address: IpAddr) -> Vec<IpNet> {
        let mut ranges = self.desired.service_ranges.iter();
        if !ranges.any(|range| range.contains(&address)) {
            return Vec::new();
        }
        // The route of the range gives the node's own connections one of these as their source.
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

    fn finish(mut self, node: &NodeEntry) -> Desired {
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
            let tells_pods = self.sets.tells_pods(family, &self.settings.local_detection);
            Rules::new(family, self.settings, tells_pods)
        };
        // A kernel without IPv6 may be unable to load rules that would have nothing to do.
        let matters = |family: &Family| {
            host.knows(*family) && (self.sets.answers(*family) || host.speaks(*family))
        };
        let families = Family::BOTH.into_iter().filter(matters);
        self.desired.rules = families.map(rules).collect();
        let idle = |family: &Family| !self.sets.answers(*family) && !host.is_reached_over(*family);
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

/// Whether a plan says that its node, or pods there, have IPv6.
fn has_ipv6(node: &NodeEntry) -> bool {
    let addresses = node.addresses.iter().copied();
    let mut all = addresses.chain(node.pod_cidrs.iter().map(IpNet::addr));
    all.any(|address| Family::of(address) == Family::Ipv6)
}

fn virtual_server(
    scheduler: &Arc<str>,
    affinity: Option<u32>,
    real_servers: RealServers,
) -> VirtualServer {
    let mut bits = 0;
    if affinity.is_some() {
        bits |= flags::PERSISTENT;
    }
    if &**scheduler == "mh" {
        bits |= flags::MH_PORT;
    }
    VirtualServer {
        scheduler: scheduler.clone(),
        flags: bits,
        timeout: affinity.unwrap_or(0),
        real_servers,
    }
}
