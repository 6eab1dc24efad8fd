//! EndpointSlices. They are kept one by one and merged when a Service is planned.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Protocol, ServiceId};

use super::Object;
use crate::Reason;

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
    /// The Service it belongs to, by its label; the namespace is its own (S-54).
    pub service: Option<Arc<str>>,
    /// `metadata.generation`: of two slices that disagree, the newer one is believed (S-51).
    pub generation: i64,
    /// What kind of addresses it holds.
    pub address_type: AddressType,
    /// The ports that all its endpoints have.
    pub ports: Vec<SlicePort>,
    /// Its endpoints; empty for names (S-53).
    pub endpoints: Vec<Endpoint>,
    /// What was ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl EndpointSlice {
    /// The Service it belongs to.
    pub fn service_id(&self) -> Option<ServiceId> {
        let service = self.service.clone()?;
        Some(ServiceId::new(self.id.namespace.clone(), service))
    }

    /// What its owner should hear: what was ignored, and why it may serve nobody (S-53, S-54).
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        let nameless = self
            .service
            .is_none()
            .then_some(Reason::SliceWithoutService);
        let names = (self.address_type == AddressType::Fqdn).then_some(Reason::SliceOfNames);
        self.ignored.iter().cloned().chain(nameless).chain(names)
    }
}

impl Object for EndpointSlice {
    type Id = SliceId;

    fn id(&self) -> SliceId {
        self.id.clone()
    }
}

/// The kind of addresses in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Names, which no proxy serves (S-53).
    Fqdn,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service port it serves.
    pub name: Arc<str>,
    /// The protocol of the Service port it serves.
    pub protocol: Protocol,
    /// Where the endpoints listen, 1 to 65535.
    pub port: u16,
}

/// An endpoint: usually a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its first address; the others do not count (S-52).
    pub address: IpAddr,
    /// It takes new connections; true where nothing is said (S-40).
    pub ready: bool,
    /// It answers, perhaps while it ends; true where nothing is said (S-40).
    pub serving: bool,
    /// It is ending.
    pub terminating: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The zone it runs in.
    pub zone: Option<Arc<str>>,
    /// The nodes it is meant for; empty without such a hint.
    pub for_nodes: Vec<Arc<str>>,
    /// The zones it is meant for; empty without such a hint.
    pub for_zones: Vec<Arc<str>>,
}
