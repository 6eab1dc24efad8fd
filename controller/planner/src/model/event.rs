//! What happens to objects.

use super::kept::Object;
use super::{EndpointSlice, Node, ProxyConfig, Service, ServiceCidr};

/// Something happened in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// To a Node.
    Node(ObjectChange<Node>),
    /// To a Service.
    Service(ObjectChange<Service>),
    /// To an EndpointSlice.
    EndpointSlice(ObjectChange<EndpointSlice>),
    /// To a ServiceCIDR.
    ServiceCidr(ObjectChange<ServiceCidr>),
    /// To a ProxyConfig.
    ProxyConfig(ObjectChange<ProxyConfig>),
}

/// What happened to an object, or to all of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectChange<T: Object> {
    /// It is now this.
    Upsert(T),
    /// It is gone.
    Remove(T::Id),
    /// These are all there are; what is not among them is gone (S-191).
    Replace(Vec<T>),
}

/// An object is there, new or changed.
macro_rules! upsert {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Event {
            fn from(object: $kind) -> Self {
                Self::$kind(ObjectChange::Upsert(object))
            }
        }
    )*};
}

upsert!(Node, Service, EndpointSlice, ServiceCidr, ProxyConfig);
