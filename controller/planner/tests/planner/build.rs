//! Compact objects for tests: `{id: shop/web, ips: [10.96.0.1], ports: [http 80/TCP]}`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{LocalDetection, Policy, Protocol, ServiceId, Settings};
use portolan_planner::model::{
    AddressType, Endpoint, EndpointSlice, Event, External, Node, ProxyConfig, Service, ServiceCidr,
    ServicePort, SliceId, SlicePort,
};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cluster {
    pub(crate) services: Vec<GivenService>,
    pub(crate) slices: Vec<GivenSlice>,
    pub(crate) nodes: Vec<GivenNode>,
    pub(crate) service_cidrs: Vec<String>,
    pub(crate) settings: GivenSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GivenService {
    pub(crate) id: String,
    pub(crate) created: Option<i64>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) ports: Vec<String>,
    pub(crate) proxy_name: Option<String>,
    pub(crate) app: Option<String>,
    pub(crate) boot_critical: bool,
    pub(crate) scheduler: Option<String>,
    pub(crate) drain: Option<u32>,
    pub(crate) affinity: Option<u32>,
    pub(crate) internal: GivenPolicy,
    pub(crate) external: Option<GivenExternal>,
    /// Port names with their node ports; an unnamed port is "".
    pub(crate) node_ports: BTreeMap<String, u16>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GivenExternal {
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) balancer: Vec<IpAddr>,
    pub(crate) proxied: Vec<IpAddr>,
    pub(crate) policy: GivenPolicy,
    pub(crate) ranges: Option<Vec<IpNet>>,
    pub(crate) health_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) enum GivenPolicy {
    #[default]
    Cluster,
    Local,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GivenSlice {
    pub(crate) id: String,
    pub(crate) service: Option<String>,
    pub(crate) generation: i64,
    pub(crate) fqdn: bool,
    pub(crate) ports: Vec<String>,
    pub(crate) endpoints: Vec<GivenEndpoint>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenEndpoint {
    pub(crate) address: IpAddr,
    pub(crate) node: Option<String>,
    #[serde(default = "yes")]
    pub(crate) ready: bool,
    #[serde(default = "yes")]
    pub(crate) serving: bool,
    #[serde(default)]
    pub(crate) terminating: bool,
    #[serde(default)]
    pub(crate) for_nodes: Vec<String>,
    #[serde(default)]
    pub(crate) for_zones: Vec<String>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GivenNode {
    pub(crate) name: String,
    pub(crate) zone: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pods: Vec<IpNet>,
    pub(crate) not_ready: bool,
    pub(crate) deleted: bool,
    pub(crate) scaled_away: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GivenSettings {
    pub(crate) service_proxy_name: String,
    pub(crate) allowed: Option<Vec<IpNet>>,
    pub(crate) excluded: Vec<IpNet>,
    pub(crate) cluster_cidrs: Option<Vec<IpNet>>,
    pub(crate) node_port_addresses: Option<Vec<String>>,
}

fn names(given: &[String]) -> Vec<Arc<str>> {
    given.iter().map(|name| name.as_str().into()).collect()
}

fn halves(id: &str) -> (Arc<str>, Arc<str>) {
    let (namespace, name) = id.split_once('/').expect("namespace/name");
    (namespace.into(), name.into())
}

/// `http 80/TCP`, or `80/TCP` without a name.
fn port(text: &str) -> (Arc<str>, u16, Protocol) {
    let (name, rest) = text.split_once(' ').unwrap_or(("", text));
    let (number, protocol) = rest.split_once('/').expect("number/protocol");
    let protocol = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => panic!("protocol {other}"),
    };
    (name.into(), number.parse().expect("a port"), protocol)
}

impl GivenPolicy {
    fn build(self) -> Policy {
        match self {
            Self::Cluster => Policy::Cluster,
            Self::Local => Policy::Local,
        }
    }
}

impl GivenService {
    fn external(&self) -> Option<Box<External>> {
        let given = self.external.clone().unwrap_or_default();
        (self.external.is_some() || !self.node_ports.is_empty()).then(|| {
            Box::new(External {
                ips: given.ips,
                balancer_ips: given.balancer,
                left_to_balancer: given.proxied,
                policy: given.policy.build(),
                source_ranges: given.ranges,
                health_port: given.health_port,
            })
        })
    }

    pub(crate) fn build(&self) -> Service {
        let (namespace, name) = halves(&self.id);
        let ports = self.ports.iter().map(|text| {
            let (name, port, protocol) = port(text);
            ServicePort {
                node_port: self.node_ports.get(&*name).copied(),
                name,
                protocol,
                port,
            }
        });
        Service {
            id: ServiceId::new(namespace, name),
            created: self.created,
            cluster_ips: self.ips.clone(),
            no_cluster_ip: None,
            proxy_name: self.proxy_name.as_deref().map(Arc::from),
            app: self.app.as_deref().map(Arc::from),
            ports: ports.collect(),
            internal_policy: self.internal.build(),
            affinity_seconds: self.affinity,
            boot_critical: self.boot_critical,
            scheduler: self.scheduler.as_deref().map(Arc::from),
            drain_seconds: self.drain,
            external: self.external(),
            ignored: Vec::new(),
        }
    }
}

impl GivenSlice {
    pub(crate) fn build(&self) -> EndpointSlice {
        let (namespace, name) = halves(&self.id);
        let ports = self.ports.iter().map(|text| {
            let (name, port, protocol) = port(text);
            SlicePort {
                name,
                protocol,
                port,
            }
        });
        let endpoints = self.endpoints.iter().map(|given| Endpoint {
            address: given.address,
            ready: given.ready,
            serving: given.serving,
            terminating: given.terminating,
            node: given.node.as_deref().map(Arc::from),
            zone: None,
            for_nodes: names(&given.for_nodes),
            for_zones: names(&given.for_zones),
        });
        let six = self
            .endpoints
            .first()
            .is_some_and(|endpoint| endpoint.address.is_ipv6());
        EndpointSlice {
            id: SliceId { namespace, name },
            service: self.service.as_deref().map(Arc::from),
            generation: self.generation,
            address_type: match (self.fqdn, six) {
                (true, _) => AddressType::Fqdn,
                (false, true) => AddressType::Ipv6,
                (false, false) => AddressType::Ipv4,
            },
            ports: ports.collect(),
            endpoints: endpoints.collect(),
            ignored: Vec::new(),
        }
    }
}

impl GivenNode {
    pub(crate) fn build(&self) -> Node {
        Node {
            name: self.name.as_str().into(),
            zone: self.zone.as_deref().map(Arc::from),
            labels: self
                .labels
                .iter()
                .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
                .collect(),
            addresses: self.addresses.clone(),
            pod_cidrs: self.pods.clone(),
            ready: !self.not_ready,
            deleted: self.deleted,
            scaled_away: self.scaled_away,
            ignored: Vec::new(),
        }
    }
}

impl Cluster {
    /// The events that create all objects.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut settings = Settings {
            service_proxy_name: self.settings.service_proxy_name.clone(),
            exclude_cidrs: self.settings.excluded.clone(),
            ..Settings::default()
        };
        if let Some(allowed) = &self.settings.allowed {
            settings.external_ips.allowed_cidrs.clone_from(allowed);
        }
        if let Some(ranges) = &self.settings.cluster_cidrs {
            settings.local_detection = LocalDetection::ClusterCidr {
                cluster_cidrs: ranges.clone(),
            };
        }
        if let Some(selected) = &self.settings.node_port_addresses {
            settings.node_port_addresses.clone_from(selected);
        }
        let config = ProxyConfig::of(settings);
        let cidrs = self.service_cidrs.iter().map(|text| ServiceCidr {
            name: text.replace('/', "-").into(),
            cidrs: vec![text.parse().expect("a range")],
        });
        let services = self.services.iter().map(|service| service.build().into());
        let slices = self.slices.iter().map(|slice| slice.build().into());
        let nodes = self.nodes.iter().map(|node| node.build().into());
        let first = std::iter::once(config.into()).chain(cidrs.map(Event::from));
        first.chain(services).chain(slices).chain(nodes).collect()
    }
}
