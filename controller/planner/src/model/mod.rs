//! The cluster in our own nouns: addresses, ports and policies are parsed, nothing of the
//! Kubernetes API is left.

mod cluster;
mod endpoint;
mod event;
mod kept;
mod names;
mod node;
mod service;
mod settings;

pub use cluster::{ClusterModel, Touched};
pub use endpoint::{AddressType, Endpoint, EndpointSlice, SliceId, SlicePort};
pub use event::{Event, ObjectChange};
pub use kept::Object;
pub use node::{Node, ServiceCidr};
pub use service::{NotPlanned, Service, ServicePort};
pub use settings::ProxyConfig;
