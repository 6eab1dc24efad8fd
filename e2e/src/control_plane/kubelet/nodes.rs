//! Nodes of a lab, in a compact form.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A node that [`super::Kubelet::register`] can create.
#[derive(Debug, Clone)]
pub struct LabNode {
    /// Its name and host name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its own addresses, one a family.
    pub addresses: Vec<IpAddr>,
    /// Ranges of its pods, one a family.
    pub pod_ranges: Vec<String>,
}

impl LabNode {
    /// Number `number` (from 1 to 250) of a row of nodes: `node-N` in one of two zones, pods in
    /// 10.244.N.0/24 and fd00:10:244:N::/64.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        let v6 = u16::from(number);
        Self {
            name: format!("node-{number}"),
            zone: format!("zone-{}", 2 - number % 2),
            addresses: vec![
                IpAddr::from([192, 168, 50, number]),
                IpAddr::from([0xfd00, 0x50, 0, 0, 0, 0, 0, v6]),
            ],
            pod_ranges: vec![
                format!("10.244.{number}.0/24"),
                format!("fd00:10:244:{v6:x}::/64"),
            ],
        }
    }

    /// The first pod's addresses of a [`Self::numbered`] node.
    #[must_use]
    pub fn first_pod(number: u8) -> [IpAddr; 2] {
        let v6 = u16::from(number);
        [
            IpAddr::from([10, 244, number, 2]),
            IpAddr::from([0xfd00, 0x10, 0x244, v6, 0, 0, 0, 2]),
        ]
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> Node {
        let labels = [
            ("kubernetes.io/hostname", &*self.name),
            ("kubernetes.io/os", "linux"),
            ("topology.kubernetes.io/zone", &*self.zone),
        ];
        let labels: BTreeMap<String, String> = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let internal = self.addresses.iter().map(|address| NodeAddress {
            type_: "InternalIP".into(),
            address: address.to_string(),
        });
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                pod_cidr: self.pod_ranges.first().cloned(),
                pod_cidrs: Some(self.pod_ranges.clone()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                addresses: Some(internal.collect()),
                ..NodeStatus::default()
            }),
        }
    }
}
