//! Maps virtual servers to the Services of the plan, with or without endpoints.

use portolan_plan::{FrontendKind, NodePlan, ServiceId};
use portolan_reconcile::{HostNetwork, VirtualServerKey, node_port_addresses};

/// A virtual server of a Service.
pub(crate) struct Owned<'a> {
    /// The virtual server.
    pub(crate) place: VirtualServerKey,
    /// The Service.
    pub(crate) service: &'a ServiceId,
    /// The kind of its address.
    pub(crate) kind: FrontendKind,
}

/// All virtual servers of the plan on a node with this network. A virtual server on another address of the node
/// belongs to another program, even if it has the number of a node port (S-32).
pub(crate) fn owned<'a>(plan: &'a NodePlan, host: &HostNetwork) -> Vec<Owned<'a>> {
    let own = plan.node().map(|node| node_port_addresses(node, host));
    let own = own.unwrap_or_default();
    let mut all = Vec::new();
    for (service, head) in plan.heads() {
        for port in &head.ports {
            for frontend in &port.frontends {
                let given = frontend.address.into_iter();
                let of_node = own.iter().copied().filter(|_| frontend.address.is_none());
                all.extend(given.chain(of_node).map(|address| Owned {
                    place: VirtualServerKey {
                        address,
                        port: frontend.port,
                        protocol: port.protocol,
                    },
                    service,
                    kind: frontend.kind,
                }));
            }
        }
    }
    all
}
