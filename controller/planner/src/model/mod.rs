//! The domain model of the cluster: addresses, ports and policies are parsed, and no types of the Kubernetes API
//! remain.

mod claims;
mod cluster;
mod endpoint;
mod event;
mod guard;
mod kept;
mod kind;
mod names;
mod node;
mod owners;
mod reason;
mod residents;
mod service;
mod settings;

pub(crate) use claims::Claim;
pub use cluster::{ClusterModel, Touched};
pub use endpoint::{AddressType, Endpoint, EndpointSlice, SliceId, SlicePort};
pub use event::ObjectChange;
pub use guard::{GuardMode, GuardPolicy, Guarding, Loss, Moment, StoredLoss};
pub use kept::ClusterObject;
pub use kind::{Event, Kind, Object, ObjectId};
pub use node::{Node, ServiceCidr};
pub use reason::{AddressOwner, NodeOutsideRanges, Reason};
pub use service::{External, NoClusterIp, Service, ServicePort};
pub use settings::{Override, ProxyConfig, Revision, Staged};
