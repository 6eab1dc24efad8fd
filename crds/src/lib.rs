//! The custom resources of proxy.portolan.dev: what users write and read with kubectl.
//!
//! Contains the types and their CustomResourceDefinitions. The code that reads an object decides what a value means
//! and whether it is valid; the rules in the schemas only report errors earlier.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod definition;
mod guard;
pub mod limit;
mod planned;
mod proxy_config;
mod proxy_plan;
mod proxy_plan_slice;
mod proxy_plan_status;
mod rollout;
mod rollout_status;
mod schema;
mod settings;
mod warning;

pub use definition::{Definition, DefinitionError, definitions};
pub use guard::{GuardMode, GuardSpec, GuardStatus};
pub use planned::{
    Because, ExternalClients, FamilyCounts, FamilyUse, HealthCheck, ListUse, PlannedPort,
    PlannedService, Protocol,
};
pub use proxy_config::{
    ConfigCounts, ProxyConfig, ProxyConfigSpec, ProxyConfigStatus, PublishSpec, SharedSlices,
};
pub use proxy_plan::{IgnoredHints, Overflow, PlanCounts, ProxyPlan, ProxyPlanSpec, Topology};
pub use proxy_plan_slice::{
    Family, ProxyPlanSlice, ProxyPlanSliceSpec, SliceHead, SliceList, SliceScope, SliceScopeKind,
};
pub use proxy_plan_status::{ProxyPlanStatus, ServiceTrouble, condition};
pub use rollout::{
    CanarySpec, GatesSpec, NodeSelectorSpec, OnFailure, OverrideSpec, RolloutSpec, WavesBy,
};
pub use rollout_status::{ReachedNodes, RevisionRecord, RolloutPhase, RolloutStatus, WaveKind};
pub use settings::{
    CaptureSpec, ConntrackSpec, DataplaneMode, DetectionMode, DiskSpec, DrainSpec, DriftMode,
    ExternalIpsSpec, HostFirewallMode, ListenSpec, LocalDetectionSpec, MasqueradeSpec,
    SettingsSpec, SyncSpec, TimeoutsSpec,
};
pub use warning::Warning;
