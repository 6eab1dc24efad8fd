//! Counters of a controller at its limits: connections that it cannot accept.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// A listener of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(
    non_camel_case_types,
    reason = "the spelling is that of the metric's label"
)]
pub(crate) enum ListenerName {
    /// For agents.
    agents,
    /// For the admin pages.
    admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfListener {
    listener: ListenerName,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Load {
    accept_errors: Family<OfListener, Counter>,
}

impl Default for Load {
    /// Every series exists from the start, so the first count is an increase.
    fn default() -> Self {
        let load = Self {
            accept_errors: Family::default(),
        };
        for listener in [ListenerName::agents, ListenerName::admin] {
            drop(load.accept_errors.get_or_create(&OfListener { listener }));
        }
        load
    }
}

impl Load {
    /// Counts a connection that could not be accepted.
    pub(crate) fn accept_failed(&self, listener: ListenerName) {
        self.accept_errors
            .get_or_create(&OfListener { listener })
            .inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "portolan_controller_accept_errors",
            "Connections that could not be accepted, by listener: too many open files, or no memory",
            self.accept_errors.clone(),
        );
    }
}

#[cfg(test)]
impl Load {
    /// Number of connections that could not be accepted.
    pub(crate) fn accept_errors(&self, listener: ListenerName) -> u64 {
        self.accept_errors
            .get_or_create(&OfListener { listener })
            .get()
    }
}
