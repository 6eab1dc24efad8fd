//! Counters of a controller at its limits: connections that it cannot accept, and whole plans.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
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

/// Why an agent is sent its whole plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(
    non_camel_case_types,
    reason = "the spelling is that of the metric's label"
)]
pub(crate) enum WholePlanCause {
    /// It has no plan.
    first,
    /// It reconnects with a plan that differs in most parts.
    different,
    /// A batch led to another plan than announced.
    rejected,
    /// It is further behind than the changes that the controller knows.
    outdated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCause {
    cause: WholePlanCause,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Load {
    accept_errors: Family<OfListener, Counter>,
    whole_plans: Family<OfCause, Counter>,
    waiting: Gauge,
    repeated: Counter,
}

/// An agent that waits for its whole plan, for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct WaitingAgent(Gauge);

impl Drop for WaitingAgent {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Load {
    /// Every series exists from the start, so the first count is an increase.
    fn default() -> Self {
        let load = Self {
            accept_errors: Family::default(),
            whole_plans: Family::default(),
            waiting: Gauge::default(),
            repeated: Counter::default(),
        };
        for listener in [ListenerName::agents, ListenerName::admin] {
            drop(load.accept_errors.get_or_create(&OfListener { listener }));
        }
        for cause in [
            WholePlanCause::first,
            WholePlanCause::different,
            WholePlanCause::rejected,
            WholePlanCause::outdated,
        ] {
            drop(load.whole_plans.get_or_create(&OfCause { cause }));
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

    /// Counts a whole plan.
    pub(crate) fn whole_plan(&self, cause: WholePlanCause) {
        self.whole_plans.get_or_create(&OfCause { cause }).inc();
    }

    /// Counts an agent that waits for its whole plan, until the result is dropped.
    pub(crate) fn whole_plan_waits(&self) -> WaitingAgent {
        self.waiting.inc();
        WaitingAgent(self.waiting.clone())
    }

    /// Counts a batch that repeats changed Services.
    pub(crate) fn repeated(&self) {
        self.repeated.inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "portolan_controller_accept_errors",
            "Connections that could not be accepted, by listener: too many open files, or no memory",
            self.accept_errors.clone(),
        );
        registry.register(
            "portolan_controller_whole_plans",
            "Whole plans sent to agents, by cause: no plan (first), mostly another plan after a reconnect (different), a rejected batch, or too many changes since the last batch or another zone of the node (outdated)",
            self.whole_plans.clone(),
        );
        registry.register(
            "portolan_controller_whole_plans_waiting",
            "Agents that wait for their whole plan, because many others are sent theirs",
            self.waiting.clone(),
        );
        registry.register(
            "portolan_controller_batches_without_history",
            "Batches that repeat all entries of changed Services, because the history does not reach the last plan of the agent",
            self.repeated.clone(),
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
