//! What somebody else changed since the kernel was left: counted, told, and put right or left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::Drift as Mode;
use portolan_reconcile::{
    Desired, Drift, DriftLedger, Drifted, Look, Network, Observed, Op, Owned, Subject, drift,
    drift_of_network, in_words, leave,
};
use tracing::warn;

type Settings = BTreeMap<Arc<str>, Arc<str>>;

/// What has to be remembered to tell drift from work.
#[derive(Debug, Default)]
pub(super) struct DriftWatch {
    mode: Mode,
    ledger: DriftLedger,
    /// The shadow as it was given up, to look at everything again.
    left: Option<Observed>,
    /// What was known of the network before it was looked at alone.
    left_network: Option<(Network, Settings)>,
    /// Where operations failed since everything was looked at: what is found there may be ours.
    doubtful: BTreeSet<Subject>,
}

impl DriftWatch {
    /// What the settings say is done about drift.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The shadow is given up: everything is looked at again.
    pub(super) fn give_up(&mut self, mut shadow: Observed) {
        if let Some((network, settings)) = self.left_network.take() {
            shadow.set_network(network);
            shadow.sysctls = settings;
        }
        self.left = Some(shadow);
    }

    /// What is known does not count any more, as after a start: whatever is found is compared with
    /// the plan alone.
    pub(super) fn begin_anew(&mut self) {
        self.left = None;
        self.left_network = None;
        self.ledger
            .note(Look::Everything, &BTreeSet::new(), BTreeSet::new());
    }

    /// The network is otherwise than in this shadow, which is about to learn it.
    pub(super) fn network_differs(&mut self, shadow: &Observed) {
        let before = || (shadow.network(), shadow.sysctls.clone());
        self.left_network.get_or_insert_with(before);
    }

    /// An operation failed.
    pub(super) fn failed(&mut self, op: &Op) {
        self.doubtful.extend(Subject::of(op));
    }

    /// Whether something is left alone. Before the plan changes it, it has to be looked at.
    pub(super) fn leaves_alone(&self) -> bool {
        self.ledger.leaves_alone()
    }

    /// Whether nothing is to be compared, counted or left alone.
    pub(super) fn is_quiet(&self) -> bool {
        self.left.is_none() && self.left_network.is_none() && self.ledger.is_quiet()
    }

    /// Compares what a look found with what was left, if there was one since, and counts and tells
    /// what differs. Where drift is only reported, `shadow` says afterwards what was left.
    pub(super) fn judge(&mut self, shadow: &mut Observed, owned: &Owned, desired: &Desired) {
        let (look, left, mut drifted) = if let Some(left) = self.left.take() {
            let drifted = drift(&left, shadow, owned, desired);
            (Look::Everything, left, drifted)
        } else if let Some((network, settings)) = self.left_network.take() {
            let drifted = drift_of_network(&network, &settings, shadow, desired);
            let mut left = Observed::default();
            left.set_network(network);
            left.sysctls = settings;
            (Look::Network, left, drifted)
        } else {
            return;
        };
        drifted.retain(|what| !self.doubtful.contains(&what.subject()));
        if look == Look::Everything {
            self.doubtful.clear();
        }
        let alone = match self.mode {
            Mode::Repair => BTreeSet::new(),
            Mode::Report => leave(shadow, &left, &drifted, desired),
        };
        let stands = alone.len();
        let fresh = self.ledger.note(look, &drifted, alone);
        tell(&fresh, stands);
    }

    /// Counts what a pass put right.
    pub(super) fn settle(&mut self, shadow: &Observed, desired: &Desired) {
        self.ledger.settle(shadow, desired);
    }

    /// All that drifted since the start, by kind.
    pub(super) fn counts(&self) -> Drift {
        self.ledger.counts()
    }
}

/// What is left alone is told once, and counted as long as it stands.
fn tell(fresh: &BTreeSet<Drifted>, stands: usize) {
    let found = in_words(fresh);
    if fresh.is_empty() {
    } else if stands > 0 {
        warn!(%found, stands, "somebody changed the kernel; left alone, as settings.drift says");
    } else {
        warn!(%found, "somebody changed the kernel; putting it right");
    }
}
