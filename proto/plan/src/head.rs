//! Heads: what a Service answers on, and which lists serve it.
//!
//! A head holds nothing that depends on one node's name or settings, so that nodes share it; it
//! names lists by kind of scope.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{Family, Outsiders, Policy, Protocol, ScopeKind, WhenEmpty};

/// A Service as every node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Programmed in a first phase, before everything else, at start.
    pub boot_critical: bool,
    /// How long a backend that left the cluster may keep its connections, in seconds; `None`
    /// leaves it to the settings.
    pub drain_seconds: Option<u32>,
    /// The scheduler asked for by annotation; `None` leaves it to the settings.
    pub scheduler: Option<Arc<str>>,
    /// The Service's ports.
    pub ports: SmallVec<[HeadPort; 1]>,
}

/// One port of a Service (S-5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadPort {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it answers.
    pub frontends: SmallVec<[Frontend; 2]>,
    /// What serves the cluster IPs.
    pub internal: ListUse,
    /// What serves all other frontends; `None` when there are none.
    pub external: Option<ListUse>,
    /// Client affinity in seconds, 1 to 86400; `None` for none (S-94).
    pub affinity_seconds: Option<u32>,
    /// Who may connect to load-balancer addresses; empty means everybody (S-86). Where it is not
    /// empty, an address of a family without a range is for nobody (S-88); the unspecified address
    /// as a range, `0.0.0.0/32` or `::/128`, is nobody too.
    pub source_ranges: Vec<IpNet>,
}

impl HeadPort {
    /// Whether the Service has a cluster IP of this family: only then node ports, other addresses and lists of this
    /// family exist. A cluster IP that is the balancer's address too may be here as the balancer's alone.
    pub fn has_family(&self, family: Family) -> bool {
        let mut addresses = self
            .frontends
            .iter()
            .filter_map(|frontend| frontend.address);
        addresses.any(|address| Family::of(address) == family)
    }

    /// Whether it answers elsewhere than on cluster IPs.
    pub fn has_external(&self) -> bool {
        let external = |frontend: &Frontend| frontend.kind != FrontendKind::ClusterIp;
        self.frontends.iter().any(external)
    }
}

/// What kind of address a frontend is.
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
    /// The kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::ExternalIp => "ExternalIP",
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
        }
    }
}

/// An address and port on which a Service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// What kind of address it is.
    pub kind: FrontendKind,
    /// The address; `None` for a node port, which the agent expands over its own addresses.
    pub address: Option<IpAddr>,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// Which lists serve a group of frontends, by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListUse {
    /// The Service's policy for this group.
    pub policy: Policy,
    /// What serves IPv4.
    pub ipv4: ListChoice,
    /// What serves IPv6.
    pub ipv6: ListChoice,
    /// What clients meet when the list is empty.
    pub when_empty: WhenEmpty,
}

impl ListUse {
    /// What serves this family.
    pub fn choice(&self, family: Family) -> ListChoice {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

/// One family's list, and who may use it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListChoice {
    /// Whose list it is, seen from the receiver.
    pub scope: ScopeKind,
    /// What happens to outsiders.
    pub outsiders: Outsiders,
}
