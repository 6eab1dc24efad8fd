//! Objects of Kubernetes to our own nouns: one function for each kind, pure and fallible.
//!
//! An object is either read or it is not; [`FieldError`] names the field that stands in the way.
//! What the API lets pass and a proxy has no use for is left out and noted with the object
//! (S-8, S-9, S-111).

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

pub use content::{agents_of, with_agents};
pub use endpoint_slice::endpoint_slice;
pub use field::FieldError;
pub use node::{node, service_cidr};
pub use proxy_config::{proxy_config, proxy_config_at_once, stored_revision};
pub use rollout::{asked, revision_name, revision_number, rollout_state};
pub use service::service;
