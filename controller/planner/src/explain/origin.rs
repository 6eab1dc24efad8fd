//! Who has an address.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::client::{Client, Detection};
use crate::Planner;
use crate::model::SliceId;

/// Who has an address, as seen from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The address.
    pub address: IpAddr,
    /// How it was found.
    pub origin: Origin,
    /// What kind of client it is by that.
    pub client: Client,
    /// What kind of client the node takes it for: it may take its own pod for an outsider where the
    /// settings do not fit the network.
    pub taken_for: Client,
}

/// How an address was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A Node has it.
    Node(Arc<str>),
    /// An endpoint has it that runs on this node.
    Endpoint {
        /// The slice that says so, the first by name.
        slice: SliceId,
        /// The node.
        node: Arc<str>,
    },
    /// It lies in a node's range of pods.
    PodRange {
        /// The range.
        range: IpNet,
        /// The node.
        node: Arc<str>,
    },
    /// Nobody in the cluster is known to have it.
    Unknown,
}

impl Planner {
    /// Who has an address, as seen from a node; `None` when there is no such node. Costs a look at all
    /// endpoints.
    pub fn locate(&self, address: IpAddr, node: &str) -> Option<Located> {
        let here = self.node(node)?;
        let origin = self.origin(address);
        let client = match &origin {
            Origin::Node(name) if *name == here.name => Client::Node,
            Origin::Node(_) | Origin::Unknown => Client::Outside,
            Origin::Endpoint { node, .. } | Origin::PodRange { node, .. } => {
                if *node == here.name {
                    Client::Pod
                } else {
                    Client::OtherPod
                }
            }
        };
        let taken_for = Detection::taken_for(here, client, address);
        Some(Located {
            address,
            origin,
            client,
            taken_for,
        })
    }

    /// A Node's own address says most: pods on its network have it too. Then what an endpoint says,
    /// then what ranges tell.
    fn origin(&self, address: IpAddr) -> Origin {
        let model = self.model();
        if let Some(node) = model.nodes_at(address).next() {
            return Origin::Node(node.clone());
        }
        let mut endpoints = model.slices().filter_map(|slice| {
            let endpoint = slice.endpoints.iter().find(|e| e.address == address)?;
            Some(Origin::Endpoint {
                slice: slice.id.clone(),
                node: endpoint.node.clone()?,
            })
        });
        let range = || {
            let (range, node) = model.pod_range(address)?;
            let node = node.clone();
            Some(Origin::PodRange { range, node })
        };
        endpoints.next().or_else(range).unwrap_or(Origin::Unknown)
    }
}
