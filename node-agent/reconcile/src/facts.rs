//! Computes what a plan demands of one node, before a dataplane turns it into kernel state: frontends with backends,
//! clients that are kept out (`loadBalancerSourceRanges`, `externalTrafficPolicy`), pod and service ranges.
//!
//! [`Desired`](crate::Desired) turns facts into IPVS, ipset and iptables, and
//! [`nftables::Tables`](crate::nftables::Tables) into two nftables tables. Nothing here depends on either.

mod builder;
mod sources;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    Family, FrontendKind, LocalDetection, LocalEndpoint, NodeEntry, NodePlan, Protocol, ServiceId,
    Settings,
};

use self::builder::Builder;
use crate::host::{HostNetwork, Ipv6Off};
use crate::{RealServers, VirtualServerKey};

/// What a plan demands of a node with a certain network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The plan's entry for the node: its name, addresses and settings.
    pub node: Arc<NodeEntry>,
    /// The frontends in the order of the plan, those of one Service in succession. A key occurs more than once if it
    /// is [contested](Self::contested).
    pub frontends: Vec<FrontendFacts>,
    /// This node's endpoints: those that name it, and backends in its pod ranges (S-246). One that several Services
    /// select is listed once for each of them.
    pub local_endpoints: Vec<LocalEndpoint>,
    /// Health check ports, in order.
    pub health_ports: Vec<HealthPort>,
    /// The ranges whose addresses count as pods; empty if pods are recognised by their interface.
    pub pods: Vec<IpNet>,
    /// The service ranges whose unused addresses and ports reject connections.
    pub ranges: BTreeSet<IpNet>,
    /// The addresses of load balancers outside of these ranges.
    pub balancers: BTreeSet<IpAddr>,
    /// Those of them to which no route but the default leads: a packet from outside to an unused port would go back to
    /// where it came from, so it is rejected (S-247).
    pub refusing: BTreeSet<IpAddr>,
    /// Frontends that more than one Service claims. The planner cannot resolve these: an external address may be one
    /// of this node's that the cluster does not know, and collide there with a node port.
    pub contested: BTreeSet<VirtualServerKey>,
    /// The node ports of all Services.
    pub node_ports: BTreeSet<(Protocol, u16)>,
    /// The families that need rules. A kernel without IPv6 may be unable to load rules, and they would have no
    /// effect.
    pub families: BTreeSet<Family>,
    /// Families in which the plan has no frontends and the node is not reachable. Existing rules are kept correct,
    /// but no rules are loaded if there are none.
    pub idle: BTreeSet<Family>,
    /// Why Services are not served at their IPv6 addresses although the plan gives the node IPv6 addresses or pod
    /// ranges. Plan and node contradict each other, so one of them is wrong. `None` if the plan gives the node no
    /// IPv6 either.
    pub lacks_ipv6: Option<Ipv6Off>,
    /// The major and minor version of the kernel.
    pub kernel: (u32, u32),
}

/// A frontend: an address and port at which a Service answers on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontendFacts {
    /// Its address, port and protocol. A node port has one for each of the node's addresses.
    pub key: VirtualServerKey,
    /// The kind of its address.
    pub kind: FrontendKind,
    /// Its Service.
    pub service: ServiceId,
    /// Its backends; without any, new connections are rejected.
    pub backends: RealServers,
    /// The scheduler that the Service asks for; `None` for that of the settings.
    pub scheduler: Option<Arc<str>>,
    /// How long a client stays with its backend, in seconds (`sessionAffinity: ClientIP`).
    pub affinity_seconds: Option<u32>,
    /// Whether it is programmed before others.
    pub boot_critical: bool,
    /// Which clients are masqueraded.
    pub masquerade: Masquerade,
    /// Whether new connections of external clients are dropped, because other nodes serve them (S-22).
    pub drops_external_clients: bool,
    /// The only ranges that may connect; `None` for all clients.
    pub sources: Option<Vec<IpNet>>,
    /// How long a backend that left the cluster may keep its connections, in seconds; `None` uses the setting.
    pub drain_seconds: Option<u32>,
}

/// Which clients of a frontend are masqueraded, in addition to the node itself and to a pod that connects to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Masquerade {
    /// Those that are not pods (S-75), or all if the settings say so: cluster IPs.
    ClusterIp,
    /// Those that are not pods of this node (S-77): other frontends of policy Cluster.
    External,
    /// None, so that backends see the client's address (S-78): policy Local.
    Never,
}

/// A health check port and its Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthPort {
    /// The port.
    pub port: u16,
    /// The Service.
    pub service: ServiceId,
}

impl Facts {
    /// The facts of a plan on a node with this network; `None` if the plan has no node entry.
    pub fn new(plan: &NodePlan, host: &HostNetwork) -> Option<Self> {
        let mut builder = Builder::new(plan.node()?, host);
        builder.claim_node_ports(plan);
        for (service, head) in plan.heads() {
            builder.service(plan, service, head);
        }
        for (service, local) in plan.locals() {
            builder.local(service, local);
        }
        Some(builder.finish())
    }

    /// The settings of the node.
    pub fn settings(&self) -> &Settings {
        &self.node.settings
    }

    /// Whether pods of this family can be recognised.
    pub fn recognises_pods(&self, family: Family) -> bool {
        match &self.settings().local_detection {
            LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
                let mut pods = self.pods.iter();
                pods.any(|range| Family::of(range.addr()) == family)
            }
            LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => {
                true
            }
        }
    }

    /// Whether any frontend is served or rejected in this family.
    fn answers(&self, family: Family) -> bool {
        let mut ranges = self.ranges.iter().map(IpNet::addr);
        let mut frontends = self.frontends.iter().map(|frontend| frontend.key.address);
        ranges.any(|address| Family::of(address) == family)
            || frontends.any(|address| Family::of(address) == family)
    }
}
