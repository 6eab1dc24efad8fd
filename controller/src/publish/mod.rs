//! What the controller writes into the cluster's store for people to read: ProxyPlans,
//! ProxyPlanSlices and the status of the ProxyConfig.
//!
//! Most of it is pure: what an object says (`plan`, `slices`, `status`, `config_status`), what is
//! written next and when (`reconcilers`, with `budget`, `queue` and `pauses`). Only `calls` and `publisher`
//! touch anything. Nodes do not read these objects: nothing here can hold up a plan on its way.

pub mod budget;
pub mod queue;

mod calls;
mod catalog;
mod config_status;
mod content;
mod figures;
mod news;
mod notes;
mod pauses;
mod plan;
mod ports;
mod previous;
mod publisher;
mod reconcilers;
mod slices;
mod status;
mod write;

pub use config_status::{ConfigJudged, config_status};
pub use figures::Figures;
pub use notes::Notes;
pub use plan::{NodeObjects, SettingsRevision, proxy_plan_spec};
pub(crate) use previous::since;
pub use previous::{Previous, Since};
pub use publisher::Publisher;
pub use slices::{bucket, bucket_slices, name, shared_slices};
pub(crate) use status::condition;
pub use status::{Judged, Judgement, Verdict, judge, status};
