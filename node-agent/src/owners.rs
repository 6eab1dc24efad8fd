//! Which Service answers where, whether or not it has endpoints.

use portolan_plan::{FrontendKind, NodePlan, ServiceId};
use portolan_reconcile::{HostNetwork, VirtualServerKey, node_port_addresses};

/// A place where a Service of the plan answers.
pub(crate) struct Owned<'a> {
    /// The place.
    pub(crate) place: VirtualServerKey,
    /// The Service.
    pub(crate) service: &'a ServiceId,
    /// What the place is for it.
    pub(crate) kind: FrontendKind,
}

/// All of them, on a node with this network. What stands on other addresses of the node is somebody
/// else's, whatever its port (S-32).
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
