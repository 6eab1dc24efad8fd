//! From a plan to what the kernel should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    Family, FrontendKind, Head, HeadPort, ListUse, LocalDetection, NodeEntry, NodePlan, Outsiders,
    Policy, ServiceId, Settings,
};

use crate::node_ports;
use crate::route::{self, HostNetwork, LocalRoute};
use crate::rules::Rules;
use crate::{RealServerKey, SetEntry, SetId, SetRole, VirtualServer, VirtualServerKey, flags};

/// Kernel settings without which virtual servers do not work as the rules expect (S-83, S-174).
const SYSCTLS: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.vs.conntrack", "1"),
    ("net.ipv4.vs.expire_nodest_conn", "1"),
    ("net.ipv4.vs.expire_quiescent_template", "1"),
];

/// The kernel settings that every node needs, by name.
pub fn sysctls() -> BTreeMap<Arc<str>, Arc<str>> {
    SYSCTLS
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

/// Sets are made for at least this many entries, so that they seldom have to grow.
const LEAST_ELEMENTS: u32 = 65_536;

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
    /// Every one of our sets.
    pub sets: BTreeMap<SetId, DesiredSet>,
    /// Local routes.
    pub routes: BTreeSet<LocalRoute>,
    /// Rules of both families.
    pub rules: Vec<Rules>,
    /// Kernel settings.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// Health check ports.
    pub health_ports: Vec<HealthPort>,
    /// The ranges of cluster IPs.
    pub service_ranges: Vec<IpNet>,
    /// Ranges in which nothing is ours.
    pub excluded: Vec<IpNet>,
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
        for (service, head) in plan.heads() {
            builder.service(plan, service, head);
        }
        for (service, local) in plan.locals() {
            for endpoint in &local.endpoints {
                let (address, protocol, port) =
                    (endpoint.address, endpoint.protocol, endpoint.port);
                let entry = SetEntry::AddressPortSource {
                    address,
                    protocol,
                    port,
                    source: address,
                };
                builder.entry(SetRole::Hairpin, address, entry);
            }
            if let Some(health) = local.health {
                let service = service.clone();
                builder.desired.health_ports.push(HealthPort {
                    port: health.port,
                    service,
                });
            }
        }
        builder.pods(&node.pod_cidrs, &node.settings);
        Some(builder.finish(node, host))
    }
}

struct Builder<'a> {
    settings: &'a Settings,
    desired: Desired,
    /// Where node ports answer.
    node_ports: BTreeSet<IpAddr>,
    /// Addresses of Services that have to reach this node.
    addresses: BTreeSet<IpAddr>,
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

    fn entry(&self) -> SetEntry {
        let VirtualServerKey {
            address,
            port,
            protocol,
        } = self.key;
        SetEntry::AddressPort {
            address,
            protocol,
            port,
        }
    }
}

impl<'a> Builder<'a> {
    fn new(node: &'a NodeEntry, host: &HostNetwork) -> Self {
        let settings = &node.settings;
        let desired = Desired {
            node: node.name.clone(),
            device: settings.device.clone(),
            virtual_servers: BTreeMap::new(),
            boot_critical: BTreeSet::new(),
            sets: SetId::all().map(|id| (id, DesiredSet::default())).collect(),
            routes: BTreeSet::new(),
            rules: Vec::new(),
            sysctls: sysctls(),
            health_ports: Vec::new(),
            service_ranges: node.service_cidrs.clone(),
            excluded: settings.exclude_cidrs.clone(),
        };
        Self {
            settings,
            desired,
            node_ports: node_ports::addresses(node, host),
            addresses: BTreeSet::new(),
        }
    }

    fn service(&mut self, plan: &NodePlan, service: &ServiceId, head: &Head) {
        for port in &head.ports {
            for frontend in &port.frontends {
                let (kind, number) = (frontend.kind, frontend.port);
                // A node port answers only in families in which the Service has a cluster IP.
                let expanded = self.node_ports.iter().copied();
                let expanded = expanded.filter(|address| port.has_family(Family::of(*address)));
                let addresses: Vec<IpAddr> = match frontend.address {
                    Some(address) => vec![address],
                    None => expanded.collect(),
                };
                for address in addresses {
                    let key = VirtualServerKey {
                        address,
                        port: number,
                        protocol: port.protocol,
                    };
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
    }

    fn place(&mut self, plan: &NodePlan, place: Place<'_>) {
        let address = place.key.address;
        let mut excluded = self.settings.exclude_cidrs.iter();
        let Some(list) = place.list() else { return };
        if excluded.any(|range| range.contains(&address)) {
            return;
        }
        let family = Family::of(address);
        // Routed in any case, so that a Service without endpoints refuses like any other unused
        // port. An empty virtual server would do it worse: to the node itself it answers UDP with
        // "not permitted", and TCP over IPv6 only after a retransmission (S-21).
        if place.kind != FrontendKind::NodePort {
            self.addresses.insert(address);
        }
        // Whoever is kept out must not learn whether there are endpoints (S-93).
        if place.kind == FrontendKind::LoadBalancer {
            self.guard(&place);
        }
        let backends = plan.backends(place.service, place.port, list, family);
        let real_servers: BTreeMap<_, _> = backends
            .iter()
            .flat_map(|list| list.as_slice())
            .map(|b| {
                (
                    RealServerKey {
                        address: b.address,
                        port: b.port,
                    },
                    b.weight.into(),
                )
            })
            .collect();
        if real_servers.is_empty() {
            return;
        }
        let scheduler = place.head.scheduler.as_ref();
        let scheduler = scheduler.unwrap_or(&self.settings.scheduler);
        let server = virtual_server(scheduler, place.port.affinity_seconds, real_servers);
        self.desired.virtual_servers.insert(place.key, server);
        if place.head.boot_critical {
            self.desired.boot_critical.insert(place.key);
        }
        self.entry(SetRole::Frontend, address, place.entry());
        match (place.kind, list.policy) {
            (FrontendKind::ClusterIp, _) => {
                self.entry(SetRole::ClusterIp, address, place.entry());
            }
            (_, Policy::Cluster) => self.entry(SetRole::Masq, address, place.entry()),
            (_, Policy::Local) => {}
        }
        if list.choice(family).outsiders == Outsiders::Drop {
            self.entry(SetRole::NoLocal, address, place.entry());
        }
    }

    /// Lets only these sources in (S-86). A range of everything is no guard, and sets cannot hold
    /// it (S-87); a family without a range is closed by the other's (S-88).
    fn guard(&mut self, place: &Place<'_>) {
        let VirtualServerKey {
            address,
            port,
            protocol,
        } = place.key;
        let all = &place.port.source_ranges;
        let own = all
            .iter()
            .filter(|range| Family::of(range.addr()) == Family::of(address));
        if all.is_empty() || own.clone().any(|range| range.prefix_len() == 0) {
            return;
        }
        for net in own {
            let entry = SetEntry::AddressPortNet {
                address,
                protocol,
                port,
                net: net.trunc(),
            };
            self.entry(SetRole::Allow, address, entry);
        }
        self.entry(SetRole::Guarded, address, place.entry());
    }

    fn entry(&mut self, role: SetRole, address: IpAddr, entry: SetEntry) {
        let id = SetId {
            role,
            family: Family::of(address),
        };
        self.desired
            .sets
            .entry(id)
            .or_default()
            .entries
            .insert(entry);
    }

    fn pods(&mut self, node_ranges: &[IpNet], settings: &Settings) {
        let ranges = match &settings.local_detection {
            LocalDetection::NodeCidr => node_ranges,
            LocalDetection::ClusterCidr { cluster_cidrs } => cluster_cidrs,
            // Told by the interface, in the rules themselves.
            LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => {
                return;
            }
        };
        for range in ranges {
            self.nets(SetRole::Pods, *range);
        }
    }

    /// Whether pods of this family can be told from others at all.
    fn tells_pods(&self, family: Family) -> bool {
        match &self.settings.local_detection {
            LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
                let pods = SetId {
                    role: SetRole::Pods,
                    family,
                };
                let set = self.desired.sets.get(&pods);
                set.is_some_and(|set| !set.entries.is_empty())
            }
            LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => {
                true
            }
        }
    }

    /// A range as entries: the kernel's sets cannot hold a /0, two halves say the same.
    fn nets(&mut self, role: SetRole, range: IpNet) {
        let range = range.trunc();
        let parts = if range.prefix_len() == 0 {
            range.subnets(1).map(Iterator::collect).unwrap_or_default()
        } else {
            vec![range]
        };
        for part in parts {
            self.entry(role, part.addr(), SetEntry::Net(part));
        }
    }

    fn finish(mut self, node: &NodeEntry, host: &HostNetwork) -> Desired {
        let routes = route::routes(
            &self.addresses,
            &node.service_cidrs,
            &node.addresses,
            &node.settings.exclude_cidrs,
            host,
        );
        for route in &routes {
            self.nets(SetRole::VipNet, route.destination);
        }
        self.desired.rules = Family::BOTH
            .map(|family| Rules::new(family, self.settings, self.tells_pods(family)))
            .into();
        for set in self.desired.sets.values_mut() {
            let entries = u32::try_from(set.entries.len()).unwrap_or(u32::MAX);
            set.max_elements = entries.checked_next_power_of_two().unwrap_or(u32::MAX);
            set.max_elements = set.max_elements.saturating_mul(2).max(LEAST_ELEMENTS);
        }
        self.desired.health_ports.sort();
        Desired {
            routes,
            ..self.desired
        }
    }
}

fn virtual_server(
    scheduler: &Arc<str>,
    affinity: Option<u32>,
    real_servers: BTreeMap<RealServerKey, u32>,
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
