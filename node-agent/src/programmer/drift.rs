//! Drift: changes by other programs since the last pass. They are counted, logged, and repaired or left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::Drift as Mode;
use portolan_reconcile::{
    Desired, Drift, DriftLedger, Drifted, Network, Observed, ObservedScope, Op, Owned, Subject,
    drift, drift_of_network, in_words, leave,
};
use tracing::warn;

type Settings = BTreeMap<Arc<str>, Arc<str>>;

/// The state that is needed to distinguish drift from changes of the plan.
#[derive(Debug, Default)]
pub(super) struct DriftWatch {
    mode: Mode,
    ledger: DriftLedger,
    /// The shadow that was discarded before a complete read.
    left: Option<Observed>,
    /// The network in the shadow before a read of only the network.
    left_network: Option<(Network, Settings)>,
    /// Subjects of failed operations since the last complete read: differences there may be the agent's own.
    doubtful: BTreeSet<Subject>,
}

impl DriftWatch {
    /// Sets the mode from `settings.drift`.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Keeps a discarded shadow for the comparison with the next complete read.
    pub(super) fn keep_discarded(&mut self, mut shadow: Observed) {
        if let Some((network, settings)) = self.left_network.take() {
            shadow.set_network(network);
            shadow.sysctls = settings;
        }
        self.left = Some(shadow);
    }

    /// Resets the state as after a start: the next read is compared only with the plan.
    pub(super) fn reset(&mut self) {
        self.left = None;
        self.left_network = None;
        self.ledger
            .note(ObservedScope::Everything, &BTreeSet::new(), BTreeSet::new());
    }

    /// Keeps the network of this shadow before it is updated with a different one.
    pub(super) fn network_differs(&mut self, shadow: &Observed) {
        let before = || (shadow.network(), shadow.sysctls.clone());
        self.left_network.get_or_insert_with(before);
    }

    /// Records a failed operation.
    pub(super) fn failed(&mut self, op: &Op) {
        self.doubtful.extend(Subject::of(op));
    }

    /// Whether some drift is left alone. It has to be read again before a change of the plan.
    pub(super) fn leaves_alone(&self) -> bool {
        self.ledger.leaves_alone()
    }

    /// Whether there is nothing to compare, count or leave alone.
    pub(super) fn is_quiet(&self) -> bool {
        self.left.is_none() && self.left_network.is_none() && self.ledger.is_quiet()
    }

    /// After a read, compares the result with the state that the last pass left, and counts and logs differences. If
    /// drift is only reported, `shadow` afterwards contains the state that the last pass left.
    pub(super) fn judge(&mut self, shadow: &mut Observed, owned: &Owned, desired: &Desired) {
        let (scope, left, mut drifted) = if let Some(left) = self.left.take() {
            let drifted = drift(&left, shadow, owned, desired);
            (ObservedScope::Everything, left, drifted)
        } else if let Some((network, settings)) = self.left_network.take() {
            let drifted = drift_of_network(&network, &settings, shadow, desired);
            let mut left = Observed::default();
            left.set_network(network);
            left.sysctls = settings;
            (ObservedScope::Network, left, drifted)
        } else {
            return;
        };
        drifted.retain(|what| !self.doubtful.contains(&what.subject()));
        if scope == ObservedScope::Everything {
            self.doubtful.clear();
        }
        let alone = match self.mode {
            Mode::Repair => BTreeSet::new(),
            Mode::Report => leave(shadow, &left, &drifted, desired),
        };
        let unrepaired = alone.len();
        let fresh = self.ledger.note(scope, &drifted, alone);
        log_drift(&fresh, unrepaired);
    }

    /// Counts the drift that a pass repaired.
    pub(super) fn settle(&mut self, shadow: &Observed, desired: &Desired) {
        self.ledger.settle(shadow, desired);
    }

    /// Counters of drift since the start, by kind.
    pub(super) fn counts(&self) -> Drift {
        self.ledger.counts()
    }
}

/// Logs new drift. Drift that is left alone is logged once, and counted as long as it exists.
fn log_drift(fresh: &BTreeSet<Drifted>, unrepaired: usize) {
    let found = in_words(fresh);
    if fresh.is_empty() {
    } else if unrepaired > 0 {
        warn!(
            %found, unrepaired,
            "another program changed kernel entries of the agent; not repairing them because of settings.drift"
        );
    } else {
        warn!(%found, "another program changed kernel entries of the agent; repairing them");
    }
}
