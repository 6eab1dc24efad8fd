//! Why a node serves a Service as it does, for people who have to find out.
//!
//! Pure, and nothing is decided here: lists are the plan's own, reasons come from the functions that
//! made them, and a law holds that who is said to be in a list is in it.

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

/// What a node makes of a Service, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The node.
    pub node: Arc<NodeEntry>,
    /// The Service.
    pub service: ServiceId,
    /// How it is served, or why it is not.
    pub outcome: Result<Served, NotProxied>,
    /// What its owner should hear about it and its slices, each once, in order.
    pub warnings: Vec<Warning>,
}

/// How a node serves a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Programmed before others at start.
    pub boot_critical: bool,
    /// The scheduler that picks among backends.
    pub scheduler: Arc<str>,
    /// Who asked for it.
    pub scheduler_from: SchedulerSource,
    /// What the health check port tells balancers, if there is one.
    pub health: Option<LocalHealth>,
    /// How many EndpointSlices name the Service. Without any it has no endpoint at all.
    pub slices: usize,
    /// Its ports in its own order.
    pub ports: Vec<PortExplanation>,
}

/// Who asked for a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerSource {
    /// The Service, by the annotation `proxy.portolan.dev/scheduler`.
    Annotation,
    /// The settings of the node.
    Settings,
}

/// There is nothing to explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// No such node is known.
    Node,
    /// No such Service is known.
    Service,
}

impl Planner {
    /// Why a node serves a Service as it does. Costs a look at all nodes.
    ///
    /// # Errors
    /// [`Unknown`] says which of the two is not there.
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
