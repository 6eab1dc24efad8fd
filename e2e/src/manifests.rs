//! The expectations that follow from manifests, read independently of the controller: every cluster
//! IP with its ready endpoints. Covers Services with policy Cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::topology::world::Family;
use crate::traffic::Protocol;
use crate::witness::{VirtualServer, VirtualServers};

/// Services and EndpointSlices as far as clients feel them.
#[derive(Debug, Default)]
pub struct Manifests {
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

/// A port of a Service on one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontend {
    /// The Service's name; the lab's are all in one namespace.
    pub service: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Every ready endpoint behind it.
    pub endpoints: BTreeSet<SocketAddr>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Service {
    metadata: Metadata,
    spec: ServiceSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<IpAddr>,
    ports: Vec<Port>,
}

#[derive(Debug, Deserialize)]
struct Port {
    name: String,
    protocol: Protocol,
    port: u16,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    metadata: Metadata,
    address_type: Family,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    addresses: Vec<IpAddr>,
    conditions: Conditions,
}

#[derive(Debug, Deserialize)]
struct Conditions {
    ready: bool,
}

impl Manifests {
    /// Reads every `.yaml` file of a folder.
    ///
    /// # Errors
    /// Names the file that cannot be read or is no manifest.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut manifests = Self::default();
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("read {}", path.display()))?;
                manifests
                    .add(&text)
                    .with_context(|| format!("read {}", path.display()))?;
            }
        }
        Ok(manifests)
    }

    /// Adds the objects of one file.
    ///
    /// # Errors
    /// When it is no YAML, or an object lacks what the lab needs.
    pub fn add(&mut self, text: &str) -> Result<()> {
        for object in serde_saphyr::from_multiple::<Value>(text)? {
            match object.get("kind").and_then(Value::as_str) {
                Some("Service") => self.services.push(serde_json::from_value(object)?),
                Some("EndpointSlice") => self.slices.push(serde_json::from_value(object)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Every cluster IP and port.
    #[must_use]
    pub fn frontends(&self) -> Vec<Frontend> {
        let mut frontends = Vec::new();
        for service in &self.services {
            for port in &service.spec.ports {
                for ip in &service.spec.cluster_ips {
                    frontends.push(Frontend {
                        service: service.metadata.name.clone(),
                        protocol: port.protocol,
                        address: SocketAddr::new(*ip, port.port),
                        endpoints: self.endpoints(&service.metadata.name, port, Family::of(*ip)),
                    });
                }
            }
        }
        frontends
    }

    /// The virtual servers that every node has to have: a frontend without endpoints has none,
    /// since the rules reject it (S-21).
    #[must_use]
    pub fn virtual_servers(&self) -> VirtualServers {
        let server = |frontend: Frontend| {
            let weights = frontend
                .endpoints
                .into_iter()
                .map(|endpoint| (endpoint, 1))
                .collect();
            (
                VirtualServer {
                    protocol: frontend.protocol.to_string(),
                    address: frontend.address,
                },
                weights,
            )
        };
        let served = |frontend: &Frontend| !frontend.endpoints.is_empty();
        self.frontends()
            .into_iter()
            .filter(served)
            .map(server)
            .collect()
    }

    fn endpoints(&self, service: &str, port: &Port, family: Family) -> BTreeSet<SocketAddr> {
        let of_service = |slice: &&EndpointSlice| {
            let label = slice.metadata.labels.get("kubernetes.io/service-name");
            slice.address_type == family && label.is_some_and(|name| name == service)
        };
        let mut found = BTreeSet::new();
        for slice in self.slices.iter().filter(of_service) {
            let same = |other: &&Port| other.name == port.name && other.protocol == port.protocol;
            for number in slice.ports.iter().filter(same).map(|port| port.port) {
                let ready = slice
                    .endpoints
                    .iter()
                    .filter(|endpoint| endpoint.conditions.ready);
                let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
                found.extend(addresses.map(|address| SocketAddr::new(*address, number)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_endpoints_of_the_same_port_and_family_back_a_frontend() {
        let mut manifests = Manifests::default();
        manifests
            .add(
                r#"
kind: Service
metadata: {name: web}
spec: {clusterIPs: [10.96.0.10, "fd00::10"], ports: [{name: http, protocol: TCP, port: 80}]}
---
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, protocol: TCP, port: 8080}, {name: dns, protocol: UDP, port: 53}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
- {addresses: [10.0.0.2], conditions: {ready: false}}
"#,
            )
            .unwrap();
        let frontends = manifests.frontends();
        assert_eq!(frontends.len(), 2);
        let expected: BTreeSet<SocketAddr> = ["10.0.0.1:8080".parse().unwrap()].into();
        assert_eq!(frontends[0].endpoints, expected);
        assert!(
            frontends[1].endpoints.is_empty(),
            "S-7: families are independent"
        );
    }
}
