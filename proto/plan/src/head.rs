//! Heads: the frontends of a Service, and the lists that serve them.
//!
//! A head contains nothing that depends on one node's name or settings, so that nodes share it. It refers to lists by
//! scope kind.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{ExternalClients, Family, Policy, Protocol, ScopeKind, WhenEmpty};

/// A Service, the same for every node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Whether the Service is programmed in a first phase at start, before everything else.
    pub boot_critical: bool,
    /// How long a backend that left the cluster may keep its connections, in seconds; `None` uses the node's setting.
    pub drain_seconds: Option<u32>,
    /// The scheduler requested by annotation; `None` uses the node's setting.
    pub scheduler: Option<Arc<str>>,
    /// The Service's ports.
    pub ports: SmallVec<[HeadPort; 1]>,
    /// The source ranges that may connect to load-balancer addresses (`loadBalancerSourceRanges`); empty allows all
    /// (S-86). If the list is not empty, addresses of a family without a range are closed to all clients (S-88). The
    /// unspecified address as a range, `0.0.0.0/32` or `::/128`, matches no client either.
    ///
    /// They are here once, because ports times ranges can be more than a message holds.
    pub source_ranges: Vec<IpNet>,
}

impl Head {
    /// The source ranges that restrict load-balancer addresses of this port. Empty if all clients may connect, or if
    /// the port has no such address.
    pub fn source_ranges_of(&self, port: &HeadPort) -> &[IpNet] {
        let balancer = |frontend: &Frontend| frontend.kind == FrontendKind::LoadBalancer;
        match port.frontends.iter().any(balancer) {
            true => &self.source_ranges,
            false => &[],
        }
    }
}

/// One port of a Service (S-5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadPort {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The addresses and ports at which clients reach it.
    pub frontends: SmallVec<[Frontend; 2]>,
    /// The list that serves the cluster IPs.
    pub internal: ListUse,
    /// The list that serves all other frontends; `None` if there are none.
    pub external: Option<ListUse>,
    /// Client affinity in seconds, 1 to 86400; `None` for no affinity (S-94).
    pub affinity_seconds: Option<u32>,
}

impl HeadPort {
    /// Whether the Service has a cluster IP of this family. Only then do node ports, other addresses and lists of
    /// this family exist. A cluster IP that is also the load balancer's address may appear here as a load-balancer
    /// address only.
    pub fn has_family(&self, family: Family) -> bool {
        let mut addresses = self
            .frontends
            .iter()
            .filter_map(|frontend| frontend.address);
        addresses.any(|address| Family::of(address) == family)
    }

    /// The families of its cluster IPs, see [`Self::has_family`].
    pub fn families(&self) -> impl Iterator<Item = Family> + Clone {
        Family::BOTH
            .into_iter()
            .filter(|family| self.has_family(*family))
    }

    /// Whether it has frontends other than cluster IPs.
    pub fn has_external(&self) -> bool {
        let external = |frontend: &Frontend| frontend.kind != FrontendKind::ClusterIp;
        self.frontends.iter().any(external)
    }
}

/// The kind of a frontend's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FrontendKind {
    /// A cluster IP.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// An entry of `spec.externalIPs`.
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    /// An address of `status.loadBalancer.ingress`.
    LoadBalancer,
    /// A port on the node's own addresses.
    NodePort,
}

impl FrontendKind {
    /// The kind, spelled as in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::ExternalIp => "ExternalIP",
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
        }
    }
}

/// An address and port at which clients reach a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The kind of the address.
    pub kind: FrontendKind,
    /// The address; `None` for a node port, which the agent expands to its node's own addresses.
    pub address: Option<IpAddr>,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// The lists that serve a group of frontends, one per family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListUse {
    /// The Service's traffic policy for this group.
    pub policy: Policy,
    /// The list for IPv4.
    pub ipv4: ListChoice,
    /// The list for IPv6.
    pub ipv6: ListChoice,
    /// What happens to connections if the list is empty.
    pub when_empty: WhenEmpty,
}

impl ListUse {
    /// The list for this family.
    pub fn choice(&self, family: Family) -> ListChoice {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

/// The list of one family, and the clients that may use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListChoice {
    /// The scope of the list, relative to the receiver.
    pub scope: ScopeKind,
    /// What happens to connections of external clients.
    pub external_clients: ExternalClients,
}
