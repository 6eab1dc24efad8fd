//! A cluster of any size as manifests: IPv4 cluster IPs with one TCP port, each with the same number of endpoints.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The node whose plan is measured.
pub const NODE: &str = "node-a";
/// Its address.
pub const ADDRESS: &str = "192.168.50.11";
/// The namespace of all Services.
pub const NAMESPACE: &str = "bench";
/// Number of Services with one endpoint on the node, as on a node that is full of pods.
const LOCAL: u32 = 100;
/// How many endpoints Kubernetes' own controller puts into a slice.
const PER_SLICE: u32 = 100;

/// How large the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Services; at most a million, so that their addresses fit into the service range.
    pub services: u32,
    /// Endpoints of each.
    pub endpoints: u32,
}

impl Scale {
    /// The name of a Service, counted from 0.
    #[must_use]
    pub fn service(number: u32) -> String {
        format!("service-{number:06}")
    }

    /// How many virtual and real servers that is.
    #[must_use]
    pub fn servers(&self) -> (u64, u64) {
        let services = u64::from(self.services);
        (services, services * u64::from(self.endpoints))
    }

    /// The manifests, by file name, with these settings: fields of a YAML mapping, like `dataplane: nftables`.
    #[must_use]
    pub fn manifests(&self, settings: &str) -> [(&'static str, String); 3] {
        [
            ("nodes.yaml", nodes(settings)),
            ("services.json", list((0..self.services).map(service))),
            (
                "endpoints.json",
                list((0..self.services).flat_map(|number| slices(number, self.endpoints))),
            ),
        ]
    }
}

/// Pods of other nodes have addresses of 10.128.0.0/9, those of the measured one of 10.244.1.0/24.
fn endpoint(service: u32, number: u32, endpoints: u32) -> Ipv4Addr {
    if number == 0 && service < LOCAL {
        return Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 244, 1, 1)) + service);
    }
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 1)) + service * endpoints + number)
}

fn nodes(settings: &str) -> String {
    format!(
        r#"apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {{name: kubernetes}}
spec: {{cidrs: ["10.96.0.0/12"]}}
---
apiVersion: proxy.portolan.dev/v1alpha1
kind: ProxyConfig
metadata: {{name: default}}
spec: {{settings: {{{settings}}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: {NODE}, labels: {{topology.kubernetes.io/zone: zone-1}}}}
spec: {{podCIDR: 10.244.1.0/24, podCIDRs: ["10.244.1.0/24"]}}
status:
  addresses: [{{type: InternalIP, address: {ADDRESS}}}]
  conditions: [{{type: Ready, status: "True"}}]
---
apiVersion: v1
kind: Node
metadata: {{name: others, labels: {{topology.kubernetes.io/zone: zone-1}}}}
spec: {{podCIDR: 10.128.0.0/10, podCIDRs: ["10.128.0.0/10"]}}
status:
  addresses: [{{type: InternalIP, address: 192.168.50.12}}]
  conditions: [{{type: Ready, status: "True"}}]
"#
    )
}

fn service(number: u32) -> String {
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 0, 1)) + number);
    let name = Scale::service(number);
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"{NAMESPACE}"}},"spec":{{"type":"ClusterIP","clusterIP":"{address}","clusterIPs":["{address}"],"ipFamilies":["IPv4"],"ports":[{{"name":"http","protocol":"TCP","port":80,"targetPort":8080}}]}}}}"#
    )
}

/// As many slices as Kubernetes' own controller would write.
fn slices(number: u32, endpoints: u32) -> impl Iterator<Item = String> {
    (0..endpoints.div_ceil(PER_SLICE)).map(move |part| {
        let first = part * PER_SLICE;
        let name = Scale::service(number);
        let mut text = format!(
            r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"{name}-{part}","namespace":"{NAMESPACE}","labels":{{"kubernetes.io/service-name":"{name}"}}}},"addressType":"IPv4","ports":[{{"name":"http","protocol":"TCP","port":8080}}],"endpoints":["#
        );
        for index in first..endpoints.min(first + PER_SLICE) {
            let address = endpoint(number, index, endpoints);
            let node = if address.octets()[1] == 244 {
                NODE
            } else {
                "others"
            };
            let comma = if index == first { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"{comma}{{"addresses":["{address}"],"nodeName":"{node}","zone":"zone-1","conditions":{{"ready":true}}}}"#
            );
        }
        text.push_str("]}");
        text
    })
}

fn list(objects: impl Iterator<Item = String>) -> String {
    let objects: Vec<_> = objects.collect();
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{}\n]}}\n",
        objects.join(",\n")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_has_an_address_of_its_own() {
        let scale = Scale {
            services: 300,
            endpoints: 7,
        };
        let all: BTreeSet<_> = (0..scale.services)
            .flat_map(|service| (0..7).map(move |number| endpoint(service, number, 7)))
            .collect();
        assert_eq!(all.len(), 2100);
    }

    #[test]
    fn manifests_are_json_with_every_object() {
        let scale = Scale {
            services: 3,
            endpoints: 250,
        };
        let [_, (_, services), (_, slices)] = scale.manifests("dataplane: nftables");
        let items = |text: &str| {
            let list: serde_json::Value = serde_json::from_str(text).unwrap();
            list["items"].as_array().unwrap().clone()
        };
        let endpoints = |slice: &serde_json::Value| slice["endpoints"].as_array().unwrap().len();
        assert_eq!(items(&services).len(), 3);
        let counts: Vec<_> = items(&slices).iter().map(endpoints).collect();
        assert_eq!(counts, [100, 100, 50, 100, 100, 50, 100, 100, 50]);
    }
}
