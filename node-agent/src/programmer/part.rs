//! Scope of a pass: the complete plan, or only the changes since the previous pass.

use portolan_plan::PlanHash;
use portolan_proto::TraceContext;
use portolan_reconcile::{Desired, HostNetwork, Part};

use super::{Outcome, Programmer};
use crate::health::FactsChange;
use crate::kernel::Kernel;
use crate::plan_watch::{Taken, TakenPlan};

/// A plan and the work for it.
pub(super) struct Job {
    pub(super) generation: u64,
    pub(super) hash: PlanHash,
    pub(super) facts: FactsChange,
    /// The trace of the plan's last change.
    pub(super) trace: Option<TraceContext>,
    pub(super) work: Work,
}

impl Job {
    /// A job for this plan, without its work.
    fn of(taken: &Taken) -> Self {
        Self {
            generation: taken.generation,
            hash: taken.hash,
            facts: FactsChange::of(&taken.what),
            trace: taken.trace,
            work: Work::Whole(None),
        }
    }
}

/// The work of a pass.
pub(super) enum Work {
    /// The complete plan; `None` if it has no entry for the node.
    Whole(Option<Box<Desired>>),
    /// The changes of this number of Services.
    Part(usize, Box<Part>),
}

impl Work {
    /// The desired state of a complete pass.
    pub(super) fn desired(&self) -> Option<&Desired> {
        match self {
            Self::Whole(desired) => desired.as_deref(),
            Self::Part(..) => None,
        }
    }

    /// The number of Services; `None` for a complete pass.
    pub(super) fn services(&self) -> Option<usize> {
        match self {
            Self::Part(services, _) => Some(*services),
            Self::Whole(_) => None,
        }
    }
}

impl<K: Kernel> Programmer<K> {
    /// Takes the plan and determines the work. If only the plan has changed since a successful pass (`in_step`), the
    /// work is limited to the changes.
    pub(super) fn take(&mut self, in_step: bool) -> Job {
        let in_step = in_step
            && self.shared.is_some()
            && self.owned.is_some()
            && !self.unrecorded
            && self.drift.is_quiet()
            && self.flows.is_quiet();
        if in_step {
            let taken = self.plans.take_changed();
            let job = Job::of(&taken);
            self.source = taken.source;
            if let Some(work) = self.work(taken.what) {
                return Job { work, ..job };
            }
        }
        let taken = self.plans.take();
        let job = Job::of(&taken);
        self.source = taken.source;
        let work = self.work(taken.what).unwrap_or(Work::Whole(None));
        Job { work, ..job }
    }

    /// `None` if the changes cannot be separated from the rest.
    fn work(&mut self, taken: TakenPlan) -> Option<Work> {
        let nothing = HostNetwork::default();
        let host = self.host().unwrap_or(&nothing);
        match taken {
            TakenPlan::Whole(plan) => Some(Work::Whole(Desired::new(&plan, host).map(Box::new))),
            TakenPlan::Part {
                services,
                before,
                after,
            } => {
                let before = Desired::new(&before, host)?;
                let after = Desired::new(&after, host)?;
                let (shared, shadow) = (self.shared.as_mut()?, self.shadow.as_mut()?);
                let part = shared.narrow(shadow, &before, after)?;
                Some(Work::Part(services, Box::new(part)))
            }
        }
    }

    /// Reconciles a part of the kernel with the plan.
    pub(super) fn follow(&mut self, part: Part, outcome: &mut Outcome) {
        let Part {
            mut observed,
            desired,
            scope,
        } = part;
        let Some(mut owned) = self.owned.take() else {
            return;
        };
        let sound = self.carry_out(&mut observed, &desired, &mut owned, &scope, outcome);
        self.owned = Some(owned);
        if let Some(shadow) = &mut self.shadow {
            shadow.join(observed);
        }
        if !sound {
            self.discard_shadow();
        }
    }
}
