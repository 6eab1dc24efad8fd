//! Keeps the kernel equal to the latest plan: observe, compare, write, verify, retry.
//!
//! One blocking thread runs this. It knows the kernel by a shadow that it keeps up with every
//! operation that succeeded; after a failure, and once in every sync period, it looks again. When
//! the node's network changed it looks at links, addresses and routes at once, and at nothing else.

mod applied;
mod drain;
mod drift;
mod flows;
mod look;
mod outcome;
mod pace;
mod part;
mod pieces;
mod schedule;
mod steps;
mod told;
mod traffic;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{Family, NodePlan};
use portolan_reconcile::{
    Desired, Ipv6Off, Network, Observed, Op, Owned, Phase, Scope, Shared, diff, puts_off, ready,
};
use tokio::sync::watch;
use tracing::{debug, warn};

pub use self::applied::Applied;
use self::drain::Drains;
use self::drift::DriftWatch;
pub use self::flows::{FlowCounter, FlowCounters};
use self::look::{Begun, Ground, News};
use self::outcome::Outcome;
use self::pace::Pace;
use self::part::{Job, Work};
use self::pieces::InPieces;
use self::schedule::{Pass, Schedule};
pub use self::steps::Step;
use self::told::{Why, tell};
use crate::drains::Drain;
use crate::health::{Health, Passed};
use crate::kernel::{Kernel, KernelError};
use crate::record::Record;
use crate::slot::{PlanSlot, Source, Woken};

/// Keeps a kernel equal to a plan.
#[derive(Debug)]
pub struct Programmer<K> {
    kernel: K,
    slot: Arc<PlanSlot>,
    record: Record,
    /// What may be touched; `None` until there was a first plan and there is no record.
    owned: Option<Owned>,
    /// Whether the record on disk is behind `owned`.
    unrecorded: bool,
    shadow: Option<Observed>,
    /// What a look has seen that did not end yet.
    begun: Option<Begun>,
    /// The network as it was known before the shadow was given up.
    last_network: Option<Network>,
    /// The device that both tell of.
    device: Option<Arc<str>>,
    /// Devices that settings named before and that are still there.
    retired: BTreeSet<Arc<str>>,
    drains: Drains,
    drift: DriftWatch,
    applied: watch::Sender<Applied>,
    health: Arc<Health>,
    flows: flows::Flows,
    /// What Services want together; `None` unless the shadow is as the plan taken last wants it.
    shared: Option<Shared>,
    /// Where the plan is from that was taken last.
    source: Source,
    pace: Pace,
    /// What Services have carried, where somebody wants to know.
    traffic: Option<traffic::Reading>,
    /// Why the node had no IPv6 when that was told last.
    ipv6_off: Option<Ipv6Off>,
}

impl<K: Kernel> Programmer<K> {
    /// A programmer that tells what it did through `applied`, through `draining` the addresses of
    /// backends that drain, and `health` what came of each pass.
    pub fn new(
        kernel: K,
        slot: Arc<PlanSlot>,
        record: Record,
        applied: watch::Sender<Applied>,
        draining: watch::Sender<BTreeSet<IpAddr>>,
        health: Arc<Health>,
    ) -> Self {
        let owned = record.read().unwrap_or_else(|problem| {
            warn!(%problem, "going on without the record: what stands where Services of the plan do is taken for ours");
            None
        });
        let owned = owned.map(|recorded| Owned {
            recorded,
            ..Owned::default()
        });
        Self {
            kernel,
            slot,
            record,
            owned,
            unrecorded: false,
            shadow: None,
            begun: None,
            last_network: None,
            device: None,
            retired: BTreeSet::new(),
            drains: Drains::new(draining),
            drift: DriftWatch::default(),
            applied,
            health,
            flows: flows::Flows::default(),
            shared: None,
            source: Source::default(),
            pace: Pace::default(),
            traffic: None,
            ipv6_off: None,
        }
    }

    /// What is done about stale UDP flows, from now on.
    pub fn flow_counters(&self) -> watch::Receiver<FlowCounters> {
        self.flows.counters()
    }

    /// What drains and why, from now on.
    pub fn drains(&self) -> watch::Receiver<Vec<Drain>> {
        self.drains.listed()
    }

    /// Runs until the slot is stopped. What is in the kernel then stays there (S-199).
    pub fn run(mut self) {
        let mut schedule = Schedule::default();
        let mut failed = false;
        let mut unfinished = false;
        loop {
            // A newer plan goes first, what was put off next, and nothing waits.
            let now = Instant::now();
            let wait = if unfinished {
                Duration::ZERO
            } else {
                schedule.left(now).min(self.drains.left(now))
            };
            let pace = &self.pace;
            let pause = |plan: &NodePlan| pace.left(plan, Instant::now());
            let woken = self.slot.wait_paced(wait, pause);
            if woken == Woken::Stopped {
                return;
            }
            self.look_at_drains();
            // Changes that come one after the other must not put off looking at the kernel.
            let late = schedule.is_due(Instant::now());
            // What is left alone is known as it was left, and the plan may want it otherwise now.
            if late || (woken == Woken::Changed && self.drift.leaves_alone()) {
                self.forget();
            }
            // It was only time to count connections.
            if woken == Woken::TimedOut && !late && !unfinished && self.shadow.is_some() {
                continue;
            }
            // A look that finds everything as it was known costs no pass.
            if woken == Woken::Disturbed && !late {
                let (network, rules) = (self.network_changed(), self.rules_changed());
                if !(network || rules) {
                    continue;
                }
            }
            let why = match woken {
                Woken::Changed => Why::Changed,
                _ if failed => Why::Failed,
                _ if unfinished => Why::PutOff,
                Woken::Disturbed if !late => Why::Disturbed,
                _ => Why::Due,
            };
            let looks = self.shadow.is_none();
            let pass = self.pass(why);
            failed = pass.failed;
            unfinished = pass.unfinished && !failed;
            schedule.note(Instant::now(), looks, pass);
        }
    }

    /// Makes the kernel equal to the plan, and tells what came of it.
    fn pass(&mut self, why: Why) -> Pass {
        let mut outcome = Outcome::default();
        let started = outcome.steps.began();
        let ground = self.slot.peek(Ground::of);
        let period = ground
            .as_ref()
            .map_or(Duration::MAX, |ground| ground.period);
        let news = outcome.step("look", |outcome| {
            let look = |ground| self.look(ground, outcome);
            ground.as_ref().map_or(News::Some, look)
        });
        let in_step = why == Why::Changed && news == News::None && outcome.failed == 0;
        let Job {
            generation,
            hash,
            facts,
            trace,
            work,
        } = outcome.step("desired state", |_| self.take(in_step));
        self.finish_look(work.desired(), &mut outcome);
        // Nothing is written before a first complete plan (S-183).
        if generation == 0 {
            return Pass::nothing(period, started.elapsed());
        }
        let (seen, before) = {
            let applied = self.applied.borrow();
            (applied.generation, applied.hash)
        };
        let why = if generation > seen { Why::Changed } else { why };
        if generation > seen && self.source == Source::Controller {
            self.pace.begin(started);
        }
        let services = work.services();
        self.work_on(work, &mut outcome);
        let failed = outcome.failed > 0;
        let took = started.elapsed();
        let mut unwritten = std::mem::take(&mut outcome.unwritten);
        unwritten.extend(self.forwards_no_ipv6());
        self.health.set_unwritten(unwritten);
        if let Some(Ground { node, .. }) = ground {
            self.passed(outcome.passed(generation, node, facts, took));
        }
        let applied = Applied {
            generation,
            hash: if failed { before } else { hash },
            services,
            operations: outcome.operations,
            took,
            failures: outcome.failures(),
            failed: outcome.failed,
            drift: self.drift.counts(),
            began: Some(started),
            steps: outcome.steps.done().into(),
        };
        tell(&applied, why, self.source, trace);
        // Schedulers that are still to be changed do not hold back the acknowledgement, or the next
        // plan would wait for all of them: what is served, and by whom, is in force.
        self.applied.send_replace(applied);
        Pass {
            failed,
            unfinished: outcome.unfinished,
            period,
            took: started.elapsed(),
        }
    }

    fn passed(&self, passed: Passed) {
        let complete = self.source != Source::BootCritical;
        self.health.passed(Passed { complete, ..passed });
    }

    fn work_on(&mut self, work: Work, outcome: &mut Outcome) {
        match work {
            Work::Part(_, part) => self.follow(*part, outcome),
            Work::Whole(Some(desired)) => self.write(*desired, outcome),
            Work::Whole(None) => {
                let reason = "it does not say what this node is; is the controller newer?";
                outcome.fail(&KernelError::new("read the plan", reason), &Family::BOTH);
            }
        }
        if outcome.failed > 0 || outcome.unfinished {
            self.shared = None;
        }
    }

    /// Makes the kernel as all of a plan wants it. Without a shadow there is nothing to compare with,
    /// and the look that failed is told.
    fn write(&mut self, desired: Desired, outcome: &mut Outcome) {
        self.shared = None;
        let Some(mut shadow) = self.shadow.take() else {
            return;
        };
        let adopts = self.owned.is_none();
        self.unrecorded |= adopts;
        let mut owned = self
            .owned
            .take()
            .unwrap_or_else(|| Owned::adopt(&shadow, &desired));
        owned.excluded.clone_from(&desired.excluded);
        self.drift.judge(&mut shadow, &owned, &desired);
        let scope = Scope::Everything;
        let sound = self.carry_out(&mut shadow, &desired, &mut owned, &scope, outcome);
        self.drift.settle(&shadow, &desired);
        self.retire_devices(outcome);
        // A plan from disk may be a part of one: what is ours is judged again by a controller's.
        self.owned = (self.source == Source::Controller || !adopts).then_some(owned);
        self.shadow = Some(shadow);
        self.shared = Some(Shared::from(desired));
        if !sound {
            self.forget();
        }
    }

    /// Makes what is in scope of the kernel as the plan wants it; false when the kernel was not as it
    /// was known.
    fn carry_out(
        &mut self,
        shadow: &mut Observed,
        desired: &Desired,
        owned: &mut Owned,
        scope: &Scope,
        outcome: &mut Outcome,
    ) -> bool {
        for rules in &desired.rules {
            if let Some(reason) = shadow.unread_rules.get(&rules.family) {
                let action = format!("read {} rules", rules.family);
                outcome.fail(&KernelError::new(&action, reason), &[rules.family]);
            }
        }
        if let Some(off) = desired.lacks_ipv6 {
            outcome.fail(&look::without_ipv6(off), &[Family::Ipv6]);
        }
        self.unrecorded |= owned.claim(desired);
        self.put_on_record(owned, outcome);
        let phases = outcome.step("diff", |_| diff(shadow, desired, owned));
        let may_take_away = self.source == Source::Controller;
        let phases = phases
            .into_iter()
            .filter(|(phase, _)| may_take_away || !phase.takes_away());
        let mut phases = phases.peekable();
        while let Some((phase, ops)) = phases.next() {
            debug!(?phase, operations = ops.len(), "writing");
            if let (Phase::Hidden, Some((Phase::Rules, rules))) = (phase, phases.peek()) {
                // What rules stand on is there or has failed: sets come before.
                self.kernel
                    .foresee(&ready(rules.clone(), shadow, desired).0);
            }
            outcome.unfinished |= puts_off(phase, &ops);
            // One that stands on another that failed would open or take away too much.
            let (ops, held_back) = ready(ops, shadow, desired);
            for (op, reason) in held_back {
                outcome.hold_back(&KernelError::new(&op, reason));
            }
            outcome.step(phase.name(), |outcome| {
                for ops in InPieces::of(ops) {
                    self.apply(&ops, shadow, desired, outcome);
                }
            });
        }
        shadow.share(desired);
        let sound = self.begin_drains(shadow, desired, owned, scope);
        self.unrecorded |= owned.release(shadow, desired, scope);
        self.put_on_record(owned, outcome);
        // Before the rest is written, the next datagram would make the same flow again (S-128).
        if self.source == Source::Controller {
            outcome.step("flows", |_| self.flows.clean(&mut self.kernel, desired));
        }
        sound && !outcome.in_doubt
    }

    fn apply(
        &mut self,
        ops: &[Op],
        shadow: &mut Observed,
        desired: &Desired,
        outcome: &mut Outcome,
    ) {
        let results = ops.iter().zip(self.kernel.apply(ops));
        // What was done since something was not.
        let mut done = 0..0;
        for (place, (op, result)) in results.enumerate() {
            match result {
                Ok(()) => {
                    outcome.operations += 1;
                    self.flows.note(op, desired);
                    done.end = place + 1;
                }
                Err(error) => {
                    shadow.note_all(&ops[done], desired);
                    done = place + 1..place + 1;
                    self.drift.failed(op);
                    outcome.fail_op(op, &error);
                }
            }
        }
        shadow.note_all(&ops[done], desired);
    }

    /// Saves the record if it changed. A disk that cannot be written does not keep Services from
    /// working; it is a failure all the same, and tried again with the next pass.
    fn put_on_record(&mut self, owned: &Owned, outcome: &mut Outcome) {
        if self.unrecorded && !outcome.unrecorded {
            match self.record.write(&owned.recorded) {
                Ok(()) => self.unrecorded = false,
                Err(problem) => {
                    outcome.unrecorded = true;
                    // No client meets less for it.
                    let error = KernelError::new("put virtual servers on record", &problem);
                    outcome.fail(&error, &[]);
                }
            }
        }
    }
}
