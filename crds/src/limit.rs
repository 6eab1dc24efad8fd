//! How much fits where. The schemas carry these numbers and the API server refuses more; whoever
//! writes the objects counts with the same ones.

/// Warnings in a ProxyPlan.
pub const PLAN_WARNINGS: usize = 20;
/// Warnings in the status of the ProxyConfig.
pub const CONFIG_WARNINGS: usize = 100;
/// Services in one ProxyPlan or ProxyPlanSlice.
pub const SERVICES: usize = 1000;
/// Ports of a Service; Kubernetes itself has no lower limit than the size of the object.
pub const PORTS: usize = 256;
/// Frontends of a port: the last text says how many more there are.
pub const FRONTENDS: usize = 65;
/// Source ranges of a port: the last text says how many more there are.
pub const SOURCE_RANGES: usize = 65;
/// A node's own endpoints of a port: the last text says how many more there are.
pub const OWN_ENDPOINTS: usize = 513;
/// Endpoints in one list of a ProxyPlanSlice.
pub const ENDPOINTS: usize = 6000;
/// Lists in one ProxyPlanSlice.
pub const LISTS: usize = 3000;
/// Health check ports in one object.
pub const HEALTH_CHECKS: usize = 1000;
/// Services whose hints are ignored, in a ProxyPlan.
pub const IGNORED_HINTS: usize = 20;
/// Failures, and keys that could not be read, in a status.
pub const FAILURES: usize = 5;
/// Characters of a sentence.
pub const SENTENCE: usize = 1024;
/// Characters of the name of an object.
pub const NAME: usize = 253;
/// Characters of the name of a zone, of a namespace, of a Service, of a port.
pub const LABEL: usize = 63;
/// Overrides of settings.
pub const OVERRIDES: usize = 16;
/// Revisions of settings that are remembered: the two in force, and some.
pub const REVISIONS: usize = 12;
/// Characters of the settings of a revision.
pub const REVISION_TEXT: usize = 262_144;
/// Canaries of a rollout.
pub const CANARIES: usize = 100;
/// Zones that a rollout names.
pub const ZONES: usize = 256;
/// Nodes that are not held against a rollout.
pub const EXCUSED: usize = 256;
