//! The plan of one node: its entries, their hashes, and how changes are applied.
//!
//! Everything here is a plain value: nothing reads a file, a socket or a clock. The controller's planner creates
//! these values, the wire carries them, and the node agent turns them into kernel state. All three use these types.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod backend;
mod bucket;
mod document;
mod entry;
mod failing;
mod head;
mod key;
mod node;
mod plan;
mod settings;
#[cfg(feature = "strategies")]
pub mod strategies;
mod terms;

pub use backend::{Backend, BackendList};
pub use bucket::{BUCKETS, BucketHashes, Buckets};
pub use document::{
    DocumentError, EndpointDocument, FamilyCounts, FrontendDocument, HealthCheckDocument,
    ListDocument, LocalEndpointDocument, PlanDocument, PortDocument, ServiceDocument,
    WarningDocument,
};
pub use entry::{Entry, Local, LocalEndpoint, LocalEndpoints, LocalHealth};
pub use failing::{Failing, MAX_FAILING};
pub use head::{Frontend, FrontendKind, Head, HeadPort, ListChoice, ListUse};
pub use key::{
    EntryHash, EntryHasher, EntryKey, KeyError, ListKey, PlanHash, Scope, ScopeKind, ServiceId,
};
pub use node::NodeEntry;
pub use plan::{Change, HashMismatch, NodePlan, StagedChanges};
pub use settings::{
    CaptureSettings, ConntrackSettings, Dataplane, DiskSettings, DrainSettings, Drift,
    ExternalIpSettings, HostFirewall, ListenSettings, LocalDetection, MasqueradeSettings, Period,
    PeriodError, PortRange, PortRangeError, Settings, SettingsPatch, SyncSettings, TimeoutSettings,
};
pub use terms::{ExternalClients, Family, Policy, Protocol, WhenEmpty};
