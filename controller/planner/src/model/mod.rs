//! The cluster in our own nouns: addresses, ports and policies are parsed, nothing of the
//! Kubernetes API is left.

mod claims;
mod cluster;
mod endpoint;
mod event;
mod guard;
mod kept;
mod names;
mod node;
mod owners;
mod residents;
mod service;
mod settings;

pub(crate) use claims::Claim;
pub use cluster::{ClusterModel, Touched};
pub use endpoint::{AddressType, Endpoint, EndpointSlice, SliceId, SlicePort};
pub use event::{Event, ObjectChange};
pub use guard::{GuardMode, GuardPolicy, Guarding, Loss, Moment, StoredLoss};
pub use kept::Object;
pub use node::{Node, ServiceCidr};
pub use service::{External, NoClusterIp, Service, ServicePort};
pub use settings::{Override, ProxyConfig, Revision, SettingsPatch, Staged};
