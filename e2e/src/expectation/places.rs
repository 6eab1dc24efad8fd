//! Where the Services of the manifests answer, read by a few lines of our own and not by the
//! controller.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::topology::world::{Family, Node};
use crate::traffic::Protocol;

/// One of the addresses of a Service, as tables name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Its cluster IP.
    ClusterIp,
    /// Its external IP.
    ExternalIp,
    /// The address of its balancer.
    Balancer,
    /// Its node port at the address of node-a.
    NodePortA,
    /// Its node port at the address of node-b.
    NodePortB,
}

impl Place {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster-ip",
            Self::ExternalIp => "external-ip",
            Self::Balancer => "balancer",
            Self::NodePortA => "node-port-a",
            Self::NodePortB => "node-port-b",
        }
    }

    /// The node whose address it is.
    #[must_use]
    pub fn node(self) -> Option<Node> {
        match self {
            Self::NodePortA => Some(Node::A),
            Self::NodePortB => Some(Node::B),
            Self::ClusterIp | Self::ExternalIp | Self::Balancer => None,
        }
    }
}

/// The addresses and ports of Services by name.
#[derive(Debug)]
pub struct Places {
    services: BTreeMap<String, Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<IpAddr>,
    #[serde(rename = "externalIPs", default)]
    external_ips: Vec<IpAddr>,
    ports: Vec<Port>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    protocol: Protocol,
    port: u16,
    node_port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: LoadBalancer,
}

#[derive(Debug, Default, Deserialize)]
struct LoadBalancer {
    #[serde(default)]
    ingress: Vec<Ingress>,
}

#[derive(Debug, Deserialize)]
struct Ingress {
    ip: IpAddr,
}

impl Places {
    /// Reads the Services of a file of manifests.
    ///
    /// # Errors
    /// When it is no YAML, or a Service lacks what the lab needs.
    pub fn read(text: &str) -> Result<Self> {
        let mut services = BTreeMap::new();
        for object in serde_saphyr::from_multiple::<Value>(text)? {
            if object.get("kind").and_then(Value::as_str) == Some("Service") {
                let service: Service = serde_json::from_value(object)?;
                services.insert(service.metadata.name.clone(), service);
            }
        }
        Ok(Self { services })
    }

    /// The address and port of a Service at one place; it has at most one port of a protocol.
    ///
    /// # Errors
    /// When there is no such Service, or it has nothing there.
    pub fn find(
        &self,
        service: &str,
        place: Place,
        protocol: Protocol,
        family: Family,
    ) -> Result<SocketAddr> {
        let nothing = || format!("{service} has no {} of {protocol} {family}", place.name());
        let found = self.services.get(service).with_context(nothing)?;
        let mut ports = found.spec.ports.iter();
        let port = ports
            .find(|port| port.protocol == protocol)
            .with_context(nothing)?;
        let of_family = |addresses: &[IpAddr]| {
            let mut addresses = addresses.iter().copied();
            addresses.find(|address| Family::of(*address) == family)
        };
        let ingress = &found.status.load_balancer.ingress;
        let balancers: Vec<IpAddr> = ingress.iter().map(|ingress| ingress.ip).collect();
        let (address, number) = match place {
            Place::ClusterIp => (of_family(&found.spec.cluster_ips), Some(port.port)),
            Place::ExternalIp => (of_family(&found.spec.external_ips), Some(port.port)),
            Place::Balancer => (of_family(&balancers), Some(port.port)),
            Place::NodePortA | Place::NodePortB => (
                place.node().map(|node| node.address(family)),
                port.node_port,
            ),
        };
        let target = address.zip(number).map(SocketAddr::from);
        target.with_context(nothing)
    }
}
