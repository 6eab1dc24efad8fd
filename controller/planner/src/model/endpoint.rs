//! EndpointSlices. They are stored separately and merged when a Service is planned.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Protocol, ServiceId};

use super::ClusterObject;
use super::Reason;

/// Namespace and name of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceId {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for SliceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A part of a Service's endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its namespace and name.
    pub id: SliceId,
    /// Its Service, from its label; it is in the same namespace (S-54).
    pub service: Option<Arc<str>>,
    /// `metadata.generation`: if slices disagree, the newer one has precedence (S-51).
    pub generation: i64,
    /// The address type.
    pub address_type: AddressType,
    /// The ports of all its endpoints.
    pub ports: Vec<SlicePort>,
    /// Its endpoints; empty for address type FQDN (S-53).
    pub endpoints: Vec<Endpoint>,
    /// Fields that were ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl EndpointSlice {
    /// Its Service.
    pub fn service_id(&self) -> Option<ServiceId> {
        let service = self.service.clone()?;
        Some(ServiceId::new(self.id.namespace.clone(), service))
    }

    /// Warnings: ignored fields, and why it may serve no Service (S-53, S-54).
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        let nameless = self
            .service
            .is_none()
            .then_some(Reason::SliceWithoutService);
        let names = (self.address_type == AddressType::Fqdn).then_some(Reason::SliceOfNames);
        self.ignored.iter().cloned().chain(nameless).chain(names)
    }
}

impl ClusterObject for EndpointSlice {
    type Id = SliceId;

    fn id(&self) -> SliceId {
        self.id.clone()
    }

    fn id_of(namespace: &str, name: &str) -> SliceId {
        SliceId {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn ignored(&self) -> &[Reason] {
        &self.ignored
    }

    fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
        Some(&mut self.ignored)
    }
}

/// The kind of addresses in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Host names, which are not served (S-53).
    Fqdn,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service port it serves.
    pub name: Arc<str>,
    /// The protocol of the Service port it serves.
    pub protocol: Protocol,
    /// The port number of the endpoints, 1 to 65535.
    pub port: u16,
}

/// An endpoint: usually a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its first address; others are ignored (S-52).
    pub address: IpAddr,
    /// The condition ready; true if not set (S-40).
    pub ready: bool,
    /// The condition serving, also while terminating; true if not set (S-40).
    pub serving: bool,
    /// The condition terminating.
    pub terminating: bool,
    /// Its node.
    pub node: Option<Arc<str>>,
    /// Its zone.
    pub zone: Option<Arc<str>>,
    /// The nodes in its hints; empty without node hints.
    pub for_nodes: Vec<Arc<str>>,
    /// The zones in its hints; empty without zone hints.
    pub for_zones: Vec<Arc<str>>,
}
