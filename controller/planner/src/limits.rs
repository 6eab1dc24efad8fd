//! What one Service may use. The limits are on products, where the cost arises (S-228). `from_kube` limits what follows
//! from one object alone.

/// Maximum number of frontends times endpoints of a Service: real servers on a node, node ports counted once. Agents
/// write some 60,000 a second, and a pass is not interrupted.
pub(crate) const MAX_REAL_SERVERS: usize = 262_144;
/// Maximum number of endpoints in a list. An encoded list then stays below `portolan_proto::MAX_ENTRY_BYTES`.
pub(crate) const MAX_LIST_ENDPOINTS: usize = 50_000;
/// Maximum number of endpoints in the slices of a Service; further slices are left out.
pub(crate) const MAX_ENDPOINTS: usize = 100_000;
/// Maximum number of endpoints times ports of a Service on one node. They connect to themselves through the Service.
pub(crate) const MAX_LOCAL_ENDPOINTS: usize = 8_192;
/// Maximum number of distinct heads of a Service. Nodes beyond it use the common head.
pub(crate) const MAX_HEADS: usize = 32;

/// The number of endpoints that each list of a Service with this many frontends may contain.
pub(crate) fn endpoints_per_list(frontends: usize) -> usize {
    (MAX_REAL_SERVERS / frontends.max(1)).min(MAX_LIST_ENDPOINTS)
}
