//! Finds the owner of an address.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::client::{Client, Detection};
use crate::Planner;
use crate::model::SliceId;

/// The owner of an address, from the view of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The address.
    pub address: IpAddr,
    /// The object with the address.
    pub origin: Origin,
    /// The kind of client that it is.
    pub client: Client,
    /// The kind of client that the node assumes. It may treat its own pod as an external client if the settings do
    /// not fit the network.
    pub taken_for: Client,
}

/// The object with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A Node.
    Node(Arc<str>),
    /// An endpoint, with the node that it runs on.
    Endpoint {
        /// The first slice by name that contains it.
        slice: SliceId,
        /// The node.
        node: Arc<str>,
    },
    /// It is in the pod range of a node.
    PodRange {
        /// The range.
        range: IpNet,
        /// The node.
        node: Arc<str>,
    },
    /// No object of the cluster has it.
    Unknown,
}

impl Planner {
    /// The owner of an address, from the view of a node; `None` if the node does not exist. Visits all endpoints.
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

    /// Node addresses have precedence, because pods in the host network have them too; then endpoints; then pod
    /// ranges.
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
