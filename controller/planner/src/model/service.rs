//! Services.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, FrontendKind, Policy, Protocol, ServiceId};

use super::ClusterObject;
use super::Reason;

/// A Service, as far as a service proxy depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace and name.
    pub id: ServiceId,
    /// Its creation time, seconds since 1970. The older of two Services that claim the same address has precedence
    /// (S-14). `None`, as in handwritten manifests, counts as the newest.
    pub created: Option<i64>,
    /// Its cluster IPs, at most one of each family; empty if it has none for any reason (S-1, S-6).
    pub cluster_ips: Vec<IpAddr>,
    /// Why it has none, if known.
    pub no_cluster_ip: Option<NoClusterIp>,
    /// The value of the label `service.kubernetes.io/service-proxy-name` (S-2).
    pub proxy_name: Option<Arc<str>>,
    /// The value of the label `k8s-app`, which identifies the cluster DNS.
    pub app: Option<Arc<str>>,
    /// Its ports, in the order of the object, without duplicate names or duplicate protocols and numbers.
    pub ports: Vec<ServicePort>,
    /// `internalTrafficPolicy`: endpoints on any node, or only those of the node (S-64).
    pub internal_policy: Policy,
    /// Session affinity timeout, in seconds, 1 to 86400; `None` without affinity (S-94).
    pub affinity_seconds: Option<u32>,
    /// The annotation `proxy.portolan.dev/boot-critical`.
    pub boot_critical: bool,
    /// The annotation `proxy.portolan.dev/scheduler`.
    pub scheduler: Option<Arc<str>>,
    /// The annotation `proxy.portolan.dev/drain`, in seconds.
    pub drain_seconds: Option<u32>,
    /// Its external addresses and node ports; most Services have none.
    pub external: Option<Box<External>>,
    /// Fields that were ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl Service {
    /// Its cluster IP of a family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.cluster_ips.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }

    /// Its addresses other than cluster IPs, load balancer addresses first: if an address is both, clients of the
    /// load balancer may use it.
    pub fn external_addresses(&self) -> impl Iterator<Item = (FrontendKind, IpAddr)> {
        let external = self.external.iter();
        external.flat_map(|external| {
            let of = |kind| move |address: &IpAddr| (kind, *address);
            let balancer = external.balancer_ips.iter();
            let balancer = balancer.map(of(FrontendKind::LoadBalancer));
            balancer.chain(external.ips.iter().map(of(FrontendKind::ExternalIp)))
        })
    }

    /// The health check port.
    pub fn health_port(&self) -> Option<u16> {
        self.external.as_ref()?.health_port
    }
}

impl ClusterObject for Service {
    type Id = ServiceId;

    fn id(&self) -> ServiceId {
        self.id.clone()
    }

    fn id_of(namespace: &str, name: &str) -> ServiceId {
        ServiceId::new(namespace, name)
    }

    fn ignored(&self) -> &[Reason] {
        &self.ignored
    }

    fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
        Some(&mut self.ignored)
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

/// A port of a Service (S-5). `targetPort` is not used, because slices contain the numbers (S-10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty for a single unnamed port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number, 1 to 65535.
    pub port: u16,
    /// The node port, 1 to 65535 (S-19).
    pub node_port: Option<u16>,
}

/// The external addresses of a Service, and their policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct External {
    /// `spec.externalIPs`, without duplicates (S-16).
    pub ips: Vec<IpAddr>,
    /// Addresses in `status.loadBalancer.ingress` that nodes serve, without duplicates (S-17).
    pub balancer_ips: Vec<IpAddr>,
    /// Addresses that nodes leave to the load balancer: `ipMode: Proxy` (S-17).
    pub left_to_balancer: Vec<IpAddr>,
    /// `externalTrafficPolicy`: endpoints on any node, or only those of the node (S-47, S-66).
    pub policy: Policy,
    /// `loadBalancerSourceRanges`; `None` if not set. An empty list allows no client (S-86, S-88).
    pub source_ranges: Option<Vec<IpNet>>,
    /// `healthCheckNodePort` (S-134).
    pub health_port: Option<u16>,
}
