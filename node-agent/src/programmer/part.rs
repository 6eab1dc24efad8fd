//! Scope of a pass: the complete plan, or only the changes since the previous pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{NodePlan, PlanHash, ServiceId};
use portolan_proto::TraceContext;
use portolan_reconcile::{Desired, Facts, HostNetwork, Part};

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
    Whole(Option<Whole>),
    /// The changes of these Services.
    Part(BTreeSet<ServiceId>, Box<Part>),
    /// The changes of these Services in the tables of nftables: the facts of only these, before and after.
    TablesPart(BTreeSet<ServiceId>, Box<(Facts, Facts)>),
}

/// What a complete plan demands.
pub(super) struct Whole {
    pub(super) desired: Box<Desired>,
    pub(super) tables: TablesWork,
}

/// What a complete plan demands of the tables of nftables.
pub(super) enum TablesWork {
    /// The node's network is not known yet, so nothing is.
    Unknown,
    /// They serve Services.
    Serve(Box<Facts>),
    /// IPVS serves Services. Until it does, tables that serve follow the plan.
    HandOver {
        /// The bits of packet marks that lead to IPVS.
        ipvs_marks: u32,
        /// `None` if the tables do not serve.
        facts: Option<Box<Facts>>,
    },
}

/// What a pass covers, as far as its results are assigned to Services.
pub(super) struct Covered {
    /// `None` for all Services.
    pub(super) services: Option<BTreeSet<ServiceId>>,
    /// Those whose scheduler the kernel lacks, with that scheduler.
    pub(super) fallbacks: BTreeMap<ServiceId, Arc<str>>,
}

impl Work {
    /// The desired state of a complete pass.
    pub(super) fn desired(&self) -> Option<&Desired> {
        match self {
            Self::Whole(whole) => whole.as_ref().map(|whole| &*whole.desired),
            Self::Part(..) | Self::TablesPart(..) => None,
        }
    }

    /// The number of Services; `None` for a complete pass.
    pub(super) fn services(&self) -> Option<usize> {
        match self {
            Self::Part(services, _) | Self::TablesPart(services, _) => Some(services.len()),
            Self::Whole(_) => None,
        }
    }

    /// Takes what the pass covers out of the work; `None` if there is nothing that it could do.
    pub(super) fn take_covered(&mut self) -> Option<Covered> {
        let (services, desired) = match self {
            Self::Whole(whole) => (None, Some(&mut *whole.as_mut()?.desired)),
            Self::Part(services, part) => (Some(std::mem::take(services)), Some(&mut part.desired)),
            Self::TablesPart(services, _) => (Some(std::mem::take(services)), None),
        };
        let fallbacks = desired.map(|desired| std::mem::take(&mut desired.fallbacks));
        Some(Covered {
            services,
            fallbacks: fallbacks.unwrap_or_default(),
        })
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
            && self.flows.is_quiet()
            && (!self.tables.is_active() || self.tables.is_in_step());
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
        let plan = match &taken {
            TakenPlan::Whole(plan) => &**plan,
            TakenPlan::Part { after, .. } => after,
        };
        if let Some(node) = plan.node() {
            self.tables.select(node.settings.dataplane);
        }
        if !self.tables.is_active() {
            if matches!(taken, TakenPlan::Whole(_)) {
                self.lacking.clear();
            }
            self.ask_for_schedulers(plan);
        }
        let nothing = HostNetwork::default();
        let known = self.host();
        let host = known.unwrap_or(&nothing);
        match taken {
            TakenPlan::Whole(plan) => {
                let facts = Facts::new(&plan, host);
                let balancers = facts.as_ref().map(|facts| facts.balancers.clone());
                let whole = facts.map(|facts| Whole {
                    desired: Box::new(Desired::of(&facts, host, &self.lacking)),
                    tables: match known {
                        None => TablesWork::Unknown,
                        Some(_) => self.tables.work(facts),
                    },
                });
                self.balancers = balancers.unwrap_or_default();
                Some(Work::Whole(whole))
            }
            TakenPlan::Part {
                services,
                before,
                after,
            } if self.tables.is_active() => {
                let facts = (Facts::new(&before, host)?, Facts::new(&after, host)?);
                self.balancers.extend(&facts.1.balancers);
                Some(Work::TablesPart(services, Box::new(facts)))
            }
            TakenPlan::Part {
                services,
                before,
                after,
            } => {
                // Only its objects matter, not their schedulers.
                let before = Desired::new(&before, host)?;
                let facts = Facts::new(&after, host)?;
                let after = Desired::of(&facts, host, &self.lacking);
                self.balancers.extend(&facts.balancers);
                let (shared, shadow) = (self.shared.as_mut()?, self.shadow.as_mut()?);
                let part = shared.narrow(shadow, &before, after)?;
                Some(Work::Part(services, Box::new(part)))
            }
        }
    }

    /// Asks the kernel for the schedulers that Services of this plan ask for. Nothing is remembered of those that it
    /// has, because a module can be removed at any time (ADR 18); one that a virtual server uses cannot.
    fn ask_for_schedulers(&mut self, plan: &NodePlan) {
        let of_settings = plan.node().map(|node| &node.settings.scheduler);
        let asked = plan.heads().filter_map(|(_, head)| head.scheduler.as_ref());
        let asked: BTreeSet<_> = asked.filter(|name| Some(*name) != of_settings).collect();
        for name in asked {
            if self.kernel.has_scheduler(name) {
                self.lacking.remove(name);
            } else {
                self.lacking.insert(name.clone());
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
