//! Services.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, FrontendKind, Policy, Protocol, ServiceId};

use super::Object;
use crate::Reason;

/// A Service, as far as a proxy is interested in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace and name.
    pub id: ServiceId,
    /// When it was created, in seconds since 1970; the older of two Services that claim the same
    /// address wins (S-14). `None`, as in manifests written by hand, is the youngest.
    pub created: Option<i64>,
    /// Its cluster IPs, at most one of each family; empty when it has none, for whatever reason
    /// (S-1, S-6).
    pub cluster_ips: Vec<IpAddr>,
    /// Why it has none, where it says so.
    pub no_cluster_ip: Option<NoClusterIp>,
    /// The value of the label `service.kubernetes.io/service-proxy-name` (S-2).
    pub proxy_name: Option<Arc<str>>,
    /// The value of the label `k8s-app`, which tells the cluster's DNS.
    pub app: Option<Arc<str>>,
    /// Its ports, in its own order, no name twice, no protocol and number twice.
    pub ports: Vec<ServicePort>,
    /// Who serves its cluster IPs: endpoints anywhere, or only those of the node (S-64).
    pub internal_policy: Policy,
    /// Client affinity in seconds, 1 to 86400; `None` for none (S-94).
    pub affinity_seconds: Option<u32>,
    /// The annotation `proxy.portolan.dev/boot-critical`.
    pub boot_critical: bool,
    /// The annotation `proxy.portolan.dev/scheduler`.
    pub scheduler: Option<Arc<str>>,
    /// The annotation `proxy.portolan.dev/drain`, in seconds.
    pub drain_seconds: Option<u32>,
    /// Where it answers besides its cluster IPs; most Services do not.
    pub external: Option<Box<External>>,
    /// What was ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl Service {
    /// Its cluster IP of a family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.cluster_ips.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }

    /// Its addresses besides its cluster IPs, those of balancers first: where one is both, whoever
    /// may use the balancer's may use it.
    pub fn external_addresses(&self) -> impl Iterator<Item = (FrontendKind, IpAddr)> {
        let external = self.external.iter();
        external.flat_map(|external| {
            let of = |kind| move |address: &IpAddr| (kind, *address);
            let balancer = external.balancer_ips.iter();
            let balancer = balancer.map(of(FrontendKind::LoadBalancer));
            balancer.chain(external.ips.iter().map(of(FrontendKind::ExternalIp)))
        })
    }

    /// The port on which nodes tell balancers whether they have endpoints.
    pub fn health_port(&self) -> Option<u16> {
        self.external.as_ref()?.health_port
    }
}

impl Object for Service {
    type Id = ServiceId;

    fn id(&self) -> ServiceId {
        self.id.clone()
    }
}

/// Why a Service has no cluster IP, and so is not proxied (S-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoClusterIp {
    /// `clusterIP: None`.
    Headless,
    /// `type: ExternalName`.
    ExternalName,
}

/// A port of a Service (S-5). Its target port does not count: slices carry the numbers (S-10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number, 1 to 65535.
    pub port: u16,
    /// The number on the nodes' own addresses, 1 to 65535 (S-19).
    pub node_port: Option<u16>,
}

/// Where a Service answers besides its cluster IPs, and for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct External {
    /// `spec.externalIPs`, each once (S-16).
    pub ips: Vec<IpAddr>,
    /// Addresses of `status.loadBalancer.ingress` that nodes answer for, each once (S-17).
    pub balancer_ips: Vec<IpAddr>,
    /// Those that nodes leave to the balancer: `ipMode: Proxy` (S-17).
    pub left_to_balancer: Vec<IpAddr>,
    /// Who serves all of these and the node ports: endpoints anywhere, or only those of the node
    /// (S-47, S-66).
    pub policy: Policy,
    /// Who may connect to addresses of balancers; `None` without such a wish. Without any range in it,
    /// nobody may (S-86, S-88).
    pub source_ranges: Option<Vec<IpNet>>,
    /// The port on which each node tells balancers whether it has endpoints (S-134).
    pub health_port: Option<u16>,
}
