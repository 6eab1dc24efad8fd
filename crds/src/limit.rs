//! Size limits. The schemas contain these numbers, so that the API server rejects larger objects, and the writers of
//! the objects use the same constants.

/// Warnings in a ProxyPlan.
pub const PLAN_WARNINGS: usize = 20;
/// Warnings in the status of the ProxyConfig.
pub const CONFIG_WARNINGS: usize = 100;
/// Services in one ProxyPlan or ProxyPlanSlice.
pub const SERVICES: usize = 1000;
/// Ports of a Service. Kubernetes itself limits only the size of the object.
pub const PORTS: usize = 256;
/// Frontends of a port. The last entry says how many were omitted.
pub const FRONTENDS: usize = 65;
/// Source ranges of a port. The last entry says how many were omitted.
pub const SOURCE_RANGES: usize = 65;
/// A node's own endpoints of a port. The last entry says how many were omitted.
pub const OWN_ENDPOINTS: usize = 513;
/// Endpoints in one list of a ProxyPlanSlice.
pub const ENDPOINTS: usize = 6000;
/// Lists in one ProxyPlanSlice.
pub const LISTS: usize = 3000;
/// Health check ports in one object.
pub const HEALTH_CHECKS: usize = 1000;
/// Services with ignored hints, in a ProxyPlan.
pub const IGNORED_HINTS: usize = 20;
/// Failures, and undecodable keys, in a status.
pub const FAILURES: usize = 5;
/// Characters of a message.
pub const SENTENCE: usize = 1024;
/// Characters of an object name.
pub const NAME: usize = 253;
/// Characters of the name of a zone, a namespace, a Service or a port.
pub const LABEL: usize = 63;
/// Overrides of settings.
pub const OVERRIDES: usize = 16;
/// Revisions of settings that are kept: the two in force and some earlier ones.
pub const REVISIONS: usize = 12;
/// Characters of the settings of a revision.
pub const REVISION_TEXT: usize = 262_144;
/// Canaries of a rollout.
pub const CANARIES: usize = 100;
/// Zones in the status of a rollout.
pub const ZONES: usize = 256;
/// Excused nodes of a rollout.
pub const EXCUSED: usize = 256;
