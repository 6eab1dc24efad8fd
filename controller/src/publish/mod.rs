//! The objects that the controller writes for operators to read: ProxyPlans, ProxyPlanSlices and the status of the
//! ProxyConfig.
//!
//! Most of it is pure: the content of objects (`plan`, `slices`, `status`, `config_status`), and what is written next
//! and when (`reconcilers`, with `budget`, `queue` and `pauses`). Only `calls` and `publisher` do I/O. Nodes do not
//! read these objects, so nothing here can delay a plan.

pub mod budget;
pub mod queue;

mod calls;
mod catalog;
mod config_status;
mod content;
mod events;
mod figures;
mod pauses;
mod plan;
mod ports;
mod previous;
mod publisher;
mod reconcilers;
mod slices;
mod status;
mod troubles;
mod updates;
mod write;

pub use config_status::{ConfigJudged, config_status};
pub use figures::Figures;
pub use plan::{NodeObjects, SettingsRevision, proxy_plan_spec};
pub(crate) use previous::since;
pub use previous::{Previous, Since};
pub use publisher::Publisher;
pub use slices::{bucket, bucket_slices, name, shared_slices};
pub(crate) use status::condition;
pub use status::{Judged, Judgement, Verdict, judge, status};
pub use updates::UpdateSender;
