//! Explains how a node serves a Service, and why.
//!
//! Pure. Nothing is decided here: lists are those of the plan, and reasons come from the functions that made them. A
//! law checks that an endpoint reported as in a list is in it.

mod apart;
mod client;
mod elsewhere;
mod endpoint;
mod group;
mod origin;
mod port;

use std::sync::Arc;

use portolan_plan::{LocalHealth, NodeEntry, ServiceId};

use crate::proxied::not_proxied;
use crate::{NotProxied, Planner, Warning};

pub use apart::{Apart, ApartReason, NotBelieved};
pub use client::{Client, Kept, Masqueraded, Reach, SourceAddress, Treatment};
pub use elsewhere::{Elsewhere, ElsewhereList};
pub use endpoint::{ExplainedEndpoint, In, Out, Verdict};
pub use group::{Group, GroupExplanation, ListReason};
pub use origin::{Located, Origin};
pub use port::{Absent, Admission, PortExplanation};

/// How a node serves a Service, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The node.
    pub node: Arc<NodeEntry>,
    /// The Service.
    pub service: ServiceId,
    /// How it is served, or why it is not.
    pub outcome: Result<Served, NotProxied>,
    /// Warnings about it and its slices, each once, in order.
    pub warnings: Vec<Warning>,
}

/// How a node serves a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Whether it is programmed before others at start.
    pub boot_critical: bool,
    /// The IPVS scheduler.
    pub scheduler: Arc<str>,
    /// The source of the scheduler.
    pub scheduler_from: SchedulerSource,
    /// The response of the health check port, if there is one.
    pub health: Option<LocalHealth>,
    /// Number of EndpointSlices of the Service. Without any it has no endpoints.
    pub slices: usize,
    /// Its ports, in the order of the Service.
    pub ports: Vec<PortExplanation>,
}

/// The source of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerSource {
    /// The Service, by the annotation `proxy.portolan.dev/scheduler`.
    Annotation,
    /// The settings of the node.
    Settings,
}

/// The Node or the Service does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The Node does not exist.
    Node,
    /// The Service does not exist.
    Service,
}

impl Planner {
    /// Explains how a node serves a Service. Visits all nodes.
    ///
    /// # Errors
    /// [`Unknown`] if the Node or the Service does not exist.
    pub fn explain(&self, node: &str, service: &ServiceId) -> Result<Explanation, Unknown> {
        let node = self.node(node).ok_or(Unknown::Node)?;
        let object = self.model().service(service).ok_or(Unknown::Service)?;
        let slices = self.model().slices_of(service);
        let warnings = slices.flat_map(|slice| {
            let reasons = slice.reasons();
            reasons.map(|reason| Warning::new("EndpointSlice", &slice.id, reason))
        });
        let mut warnings: Vec<_> = warnings.collect();
        let outcome = match self.services().get(service) {
            Some(planned) => {
                warnings.extend(planned.warnings.iter().cloned());
                Ok(self.served(node, object, planned))
            }
            None => {
                let reasons = object.ignored.iter().cloned();
                warnings.extend(reasons.map(|reason| Warning::new("Service", service, reason)));
                let proxy_name = self.model().settings().service_proxy_name;
                Err(not_proxied(object, &proxy_name).unwrap_or(NotProxied::NoPorts))
            }
        };
        warnings.sort();
        warnings.dedup();
        Ok(Explanation {
            node: node.clone(),
            service: service.clone(),
            outcome,
            warnings,
        })
    }
}
