//! Objects of all kinds together, wherever they were read.

use std::fmt;
use std::sync::Arc;

use portolan_plan::ServiceId;
use portolan_planner::Reason;
use portolan_planner::model::{
    EndpointSlice, Event, Node, ObjectChange, ProxyConfig, Service, ServiceCidr, SliceId,
};

/// The name of an object, with its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectId {
    /// Of a Node.
    Node(Arc<str>),
    /// Of a ServiceCIDR.
    ServiceCidr(Arc<str>),
    /// Of a ProxyConfig.
    ProxyConfig(Arc<str>),
    /// Of a Service.
    Service(ServiceId),
    /// Of an EndpointSlice.
    EndpointSlice(SliceId),
}

impl ObjectId {
    /// The event of its end.
    pub fn removed(&self) -> Event {
        match self.clone() {
            Self::Node(id) => Event::Node(ObjectChange::Remove(id)),
            Self::ServiceCidr(id) => Event::ServiceCidr(ObjectChange::Remove(id)),
            Self::ProxyConfig(id) => Event::ProxyConfig(ObjectChange::Remove(id)),
            Self::Service(id) => Event::Service(ObjectChange::Remove(id)),
            Self::EndpointSlice(id) => Event::EndpointSlice(ObjectChange::Remove(id)),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "Node {name}"),
            Self::ServiceCidr(name) => write!(f, "ServiceCIDR {name}"),
            Self::ProxyConfig(name) => write!(f, "ProxyConfig {name}"),
            Self::Service(id) => write!(f, "Service {id}"),
            Self::EndpointSlice(id) => write!(f, "EndpointSlice {id}"),
        }
    }
}

/// An object that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A Node.
    Node(Node),
    /// A ServiceCIDR.
    ServiceCidr(ServiceCidr),
    /// A ProxyConfig.
    ProxyConfig(ProxyConfig),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    EndpointSlice(EndpointSlice),
}

impl Found {
    /// Its name.
    pub fn id(&self) -> ObjectId {
        match self {
            Self::Node(object) => ObjectId::Node(object.name.clone()),
            Self::ServiceCidr(object) => ObjectId::ServiceCidr(object.name.clone()),
            Self::ProxyConfig(object) => ObjectId::ProxyConfig(object.name.clone()),
            Self::Service(object) => ObjectId::Service(object.id.clone()),
            Self::EndpointSlice(object) => ObjectId::EndpointSlice(object.id.clone()),
        }
    }

    /// The event of its presence.
    pub fn present(&self) -> Event {
        self.clone().into_event()
    }

    /// The same, without keeping the object.
    pub fn into_event(self) -> Event {
        match self {
            Self::Node(object) => object.into(),
            Self::ServiceCidr(object) => object.into(),
            Self::ProxyConfig(object) => object.into(),
            Self::Service(object) => object.into(),
            Self::EndpointSlice(object) => object.into(),
        }
    }

    /// What was passed over when it was read.
    pub fn ignored(&self) -> &[Reason] {
        match self {
            Self::Node(object) => &object.ignored,
            Self::Service(object) => &object.ignored,
            Self::EndpointSlice(object) => &object.ignored,
            Self::ServiceCidr(_) | Self::ProxyConfig(_) => &[],
        }
    }

    /// The same; kinds that are read whole or not at all have none.
    pub(crate) fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
        match self {
            Self::Node(object) => Some(&mut object.ignored),
            Self::Service(object) => Some(&mut object.ignored),
            Self::EndpointSlice(object) => Some(&mut object.ignored),
            Self::ServiceCidr(_) | Self::ProxyConfig(_) => None,
        }
    }
}
