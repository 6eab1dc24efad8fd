//! Writes the differences between the kernel and the desired state, phase by phase.

use portolan_plan::{Dataplane, Family};
use portolan_reconcile::{
    Desired, Observed, Op, Owned, Phase, PhaseWork, Scope, Shared, compare, postpones, ready,
};
use tracing::debug;

use super::chunks::{CHUNK_SIZE, Chunks};
use super::outcome::Outcome;
use super::{Programmer, observe};
use crate::heartbeat;
use crate::kernel::{Kernel, KernelError};
use crate::pipeline;
use crate::plan_watch::Source;
use crate::record::RecordError;

impl<K: Kernel> Programmer<K> {
    /// Reconciles the kernel with the complete plan. Without a shadow there is nothing to compare with; the failed
    /// read is reported elsewhere.
    pub(super) fn write(&mut self, desired: Desired, outcome: &mut Outcome) {
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
        self.note_absence(&shadow, &owned, &desired, outcome);
        self.retire_devices(outcome);
        // A saved plan may be incomplete, so ownership is determined again with the first plan from a controller.
        self.owned = (self.source == Source::Controller || !adopts).then_some(owned);
        self.shadow = Some(shadow);
        self.shared = Some(Shared::from(desired));
        if !sound {
            self.discard_shadow();
        }
    }

    /// Reconciles the part of the kernel in scope. Returns false if the kernel differed from the shadow.
    pub(super) fn carry_out(
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
            outcome.fail(&observe::without_ipv6(off), &[Family::Ipv6]);
        }
        self.unrecorded |= owned.claim(desired);
        let phases = outcome.step("diff", |outcome| {
            // Neither needs the other, and the record waits for the disk.
            let (record, kept) = (&self.record, &owned.recorded);
            let write = self.is_record_due(outcome).then_some(|| record.write(kept));
            let compare = || compare(shadow, desired, owned);
            let (phases, written) = match write {
                Some(write) => pipeline::both(compare, write),
                None => return compare(),
            };
            self.note_record(written, outcome);
            phases
        });
        // Without complete tables, IPVS may still serve Services.
        let needs_tables = desired.dataplane != Dataplane::Ipvs;
        let may_remove =
            self.source == Source::Controller && (!needs_tables || self.tables.is_ready());
        let mut phases = phases;
        phases.retain(|phase, _| may_remove || !phase.is_removal());
        // Where nothing is captured yet, rules may be loaded before the entries that keep clients out.
        let is_cold = phases.contains_key(&Phase::AddFirstPolicyRules);
        let early = phases.get(&Phase::LoadRules).filter(|_| is_cold);
        let mut early = early.map(|rules| rules.ops.clone());
        for (phase, PhaseWork { ops, mut new }) in phases {
            debug!(?phase, operations = ops.len(), new = new.len(), "writing");
            // The sets that the rules need exist already or have failed: their phase comes before.
            let is_time = Phase::CreateSets < phase && phase < Phase::LoadRules;
            if let Some(rules) = early.take_if(|_| is_time) {
                self.kernel.prepare(&ready(rules, shadow, desired).0);
            }
            outcome.unfinished |= postpones(phase, &ops);
            // An operation whose precondition failed could open or remove too much.
            let (ops, held_back) = ready(ops, shadow, desired);
            let new_held_back = new.hold_back(shadow, desired);
            for (op, reason) in held_back.into_iter().chain(new_held_back) {
                outcome.hold_back(&op, &KernelError::new(&op, reason));
            }
            let chunks = Chunks::of(ops).chain(new.operations(desired, CHUNK_SIZE));
            outcome.step(phase.name(), |outcome| {
                self.apply(chunks, shadow, desired, outcome);
            });
        }
        shadow.share(desired);
        let sound = self.begin_drains(shadow, desired, owned, scope);
        self.unrecorded |= owned.release(shadow, desired, scope);
        self.save_record(owned, outcome);
        // Only after all writes: before, the next datagram would create the same flow again (S-128).
        if self.source == Source::Controller {
            let draining = self.drains.all();
            outcome.step("flows", |_| {
                self.flows.clean(&mut self.kernel, desired, draining);
            });
        }
        sound && !outcome.in_doubt
    }

    /// Applies the operations of a phase. While the kernel executes a chunk, the next one is made and the results of the one
    /// before are recorded.
    fn apply(
        &mut self,
        chunks: impl Iterator<Item = Vec<Op>>,
        shadow: &mut Observed,
        desired: &Desired,
        outcome: &mut Outcome,
    ) {
        let Self {
            kernel,
            flows,
            drift,
            ..
        } = self;
        let apply = |ops: &Vec<Op>| kernel.apply(ops);
        pipeline::run(chunks, apply, |ops, results| {
            // The range of successful operations since the last failure.
            let mut done = 0..0;
            for (place, (op, result)) in ops.iter().zip(results).enumerate() {
                match result {
                    Ok(()) => {
                        outcome.operations += 1;
                        flows.note(op, desired);
                        done.end = place + 1;
                    }
                    Err(error) => {
                        shadow.note_all(&ops[done], desired);
                        done = place + 1..place + 1;
                        drift.failed(op);
                        outcome.fail_op(op, &error);
                    }
                }
            }
            shadow.note_all(&ops[done], desired);
            heartbeat::beat();
        });
    }

    /// Saves the record if it changed. Services work without it, but a failure is reported and retried in the next
    /// pass.
    fn save_record(&mut self, owned: &Owned, outcome: &mut Outcome) {
        if self.is_record_due(outcome) {
            let written = self.record.write(&owned.recorded);
            self.note_record(written, outcome);
        }
    }

    fn is_record_due(&self, outcome: &Outcome) -> bool {
        self.unrecorded && !outcome.unrecorded
    }

    fn note_record(&mut self, written: Result<(), RecordError>, outcome: &mut Outcome) {
        match written {
            Ok(()) => self.unrecorded = false,
            Err(problem) => {
                outcome.unrecorded = true;
                // No family is affected: Services work without it.
                let error = KernelError::new("record virtual servers", &problem);
                outcome.fail(&error, &[]);
            }
        }
    }
}
