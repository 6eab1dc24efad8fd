//! The custom resources of proxy.portolan.dev: what users write and read with kubectl.
//!
//! Types only. What a value means, and whether it is allowed, is decided where it is read.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod defaults;
mod proxy_config;
mod settings;

pub use proxy_config::{ProxyConfig, ProxyConfigSpec};
pub use settings::{
    ConntrackSpec, DetectionMode, DiskSpec, DrainSpec, DriftMode, ExternalIpsSpec, ListenSpec,
    LocalDetectionSpec, MasqueradeSpec, SettingsSpec, SyncSpec, TimeoutsSpec,
};
