//! What the status of a ProxyPlan says about Services that are not on the node as their objects ask. Pure.
//!
//! Invariant: nothing here determines a condition. A user of a single Service could otherwise cause a write for each
//! node with every change, and stop rollouts (S-229).

use portolan_crds as crds;

use super::content::{sentence, shortened};
use crate::agent_registry::Delivery;
use crate::troubled::ServiceTrouble;

/// Maximum length of a Service with its namespace, in characters.
const MAX_SERVICE_CHARS: usize = 2 * portolan_crds::limit::LABEL_CHARS + 1;

/// The number of Services that are not completely in force; `None` if there are none.
pub(super) fn failing(delivery: Option<&Delivery>) -> Option<i64> {
    let failing = delivery.map_or(0, Delivery::failing_services);
    Some(i64::from(failing)).filter(|failing| *failing > 0)
}

/// The first few Services, with reasons.
pub(super) fn shown(delivery: Option<&Delivery>) -> Vec<crds::ServiceTrouble> {
    let troubled = delivery.and_then(|delivery| delivery.troubled.as_ref());
    let shown = troubled.into_iter().flat_map(|troubled| &troubled.shown);
    shown.map(trouble).collect()
}

fn trouble(trouble: &ServiceTrouble) -> crds::ServiceTrouble {
    crds::ServiceTrouble {
        service: shortened(&trouble.service.to_string(), MAX_SERVICE_CHARS),
        reason: trouble.reason.as_str().into(),
        message: sentence(&trouble.message),
        in_force: trouble.in_force,
    }
}

/// The end of a sentence that says that the plan is in force.
pub(super) fn exceptions(delivery: Option<&Delivery>) -> String {
    match failing(delivery) {
        None => String::new(),
        Some(1) => ", except for one Service; see status.troubles".into(),
        Some(failing) => format!(", except for {failing} Services; see status.troubles"),
    }
}
