//! Size limits. The schemas contain these numbers, so that the API server rejects larger objects, and the writers of
//! the objects use the same constants.

/// Maximum number of warnings in a ProxyPlan.
pub const PLAN_WARNINGS: usize = 20;
/// Maximum number of warnings in the status of the ProxyConfig.
pub const CONFIG_WARNINGS: usize = 100;
/// Maximum number of Services in one ProxyPlan or ProxyPlanSlice.
pub const SERVICES: usize = 1000;
/// Maximum number of ports of a Service. Kubernetes itself limits only the size of the object.
pub const PORTS: usize = 256;
/// Maximum number of frontends of a port. The last entry says how many were omitted.
pub const FRONTENDS: usize = 65;
/// Maximum number of source ranges of a port. The last entry says how many were omitted.
pub const SOURCE_RANGES: usize = 65;
/// Maximum number of a node's own endpoints of a port. The last entry says how many were omitted.
pub const OWN_ENDPOINTS: usize = 513;
/// Maximum number of endpoints in one list of a ProxyPlanSlice.
pub const ENDPOINTS: usize = 6000;
/// Maximum number of lists in one ProxyPlanSlice.
pub const LISTS: usize = 3000;
/// Maximum number of health check ports in one object.
pub const HEALTH_CHECKS: usize = 1000;
/// Maximum number of Services with ignored hints that are named in a ProxyPlan.
pub const IGNORED_HINTS: usize = 20;
/// Maximum number of failures, and of undecodable keys, in a status.
pub const FAILURES: usize = 5;
/// Maximum number of Services in a status that are not on the node as their objects ask.
pub const TROUBLES: usize = 8;
/// Maximum number of schedulers in a status.
pub const SCHEDULERS: usize = 32;
/// Maximum length of the name of a scheduler, in characters: that of the kernel.
pub const SCHEDULER_CHARS: usize = 15;
/// Maximum length of a message, in characters.
pub const MESSAGE_CHARS: usize = 1024;
/// Maximum length of an object name, in characters.
pub const NAME_CHARS: usize = 253;
/// Maximum length of the name of a zone, a namespace, a Service or a port, in characters.
pub const LABEL_CHARS: usize = 63;
/// Maximum number of overrides of settings.
pub const OVERRIDES: usize = 16;
/// Maximum number of stored revisions of settings: the two in force and some earlier ones.
pub const REVISIONS: usize = 12;
/// Maximum length of the settings of a revision, in characters.
pub const REVISION_SETTINGS_CHARS: usize = 262_144;
/// Maximum number of canaries of a rollout.
pub const CANARIES: usize = 100;
/// Maximum number of zones in the status of a rollout.
pub const ZONES: usize = 256;
/// Maximum number of excused nodes of a rollout.
pub const EXCUSED: usize = 256;
