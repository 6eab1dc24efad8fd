//! Services.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, Policy, Protocol, ServiceId};

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
    /// What it asks for beyond what is planned.
    pub not_planned: BTreeSet<NotPlanned>,
    /// What was ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl Service {
    /// Its cluster IP of a family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.cluster_ips.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }
}

impl Object for Service {
    type Id = ServiceId;

    fn id(&self) -> ServiceId {
        self.id.clone()
    }
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
}

/// A field of a Service that this version reads and does not act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotPlanned {
    /// External IPs.
    ExternalIps,
    /// Addresses of load balancers.
    LoadBalancer,
    /// Node ports.
    NodePorts,
    /// External traffic policy Local.
    ExternalPolicyLocal,
}

impl fmt::Display for NotPlanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExternalIps => "spec.externalIPs",
            Self::LoadBalancer => "status.loadBalancer.ingress",
            Self::NodePorts => "spec.ports[].nodePort",
            Self::ExternalPolicyLocal => "spec.externalTrafficPolicy: Local",
        })
    }
}
