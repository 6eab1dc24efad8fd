//! Converts Kubernetes objects to the planner's model: one pure, fallible function for each kind.
//!
//! An invalid object is rejected as a whole, and [`FieldError`] names the field. Values that the API accepts but a
//! proxy cannot use are left out and recorded with the object (S-8, S-9, S-111).

mod agents;
mod annotations;
mod content;
mod detection;
mod endpoint_slice;
mod external;
mod field;
mod guard;
mod node;
mod proxy_config;
mod rollout;
mod service;
mod settings;

pub use agents::{AgentsRecord, Sha256};
pub use content::{agents_in, agents_of, with_agents};
pub use endpoint_slice::endpoint_slice;
pub use field::FieldError;
pub use node::{node, service_cidr};
pub use proxy_config::{proxy_config, proxy_config_at_once, stored_revision};
pub use rollout::{asked, revision_name, revision_number, rollout_state};
pub use service::service;
pub(crate) use settings::MAX_IPVS_TIMEOUT_SECONDS;
pub use settings::default_spec;
