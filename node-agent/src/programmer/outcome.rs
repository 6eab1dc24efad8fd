//! What a pass did and what it could not do. One cause is told once, however many operations it
//! stopped: what failed only because something else had failed before is counted, and told if nothing
//! else is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{Family, NodeEntry};
use portolan_reconcile::{IpvsOp, Op, VirtualServerKey};

use super::steps::Steps;
use crate::health::{FactsChange, Passed};
use crate::kernel::KernelError;

/// How many failures are told in words.
const FAILURES_TOLD: usize = 5;

/// A pass in figures and words.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Operations that were made.
    pub(super) operations: usize,
    /// Operations that failed or were held back.
    pub(super) failed: usize,
    /// Whether a next pass has to go on at once.
    pub(super) unfinished: bool,
    /// Whether the record could not be written.
    pub(super) unrecorded: bool,
    /// Whether something may have been done or not.
    pub(super) in_doubt: bool,
    /// The families that are not as the plan wants them.
    pub(super) failed_families: BTreeSet<Family>,
    /// How often rules of a family could not be loaded.
    pub(super) unloaded_rules: BTreeMap<Family, u64>,
    causes: Vec<Cause>,
    consequences: Vec<Cause>,
    /// Kernel settings that could not be written, with the reasons.
    pub(super) unwritten: BTreeSet<String>,
    /// Virtual servers that could not be made.
    absent: BTreeSet<VirtualServerKey>,
    /// What took the time.
    pub(super) steps: Steps,
}

/// A failure, and how many others have the same reason.
#[derive(Debug)]
struct Cause {
    first: KernelError,
    more: usize,
}

impl Outcome {
    /// Does a part of the pass, and notes how long it took and what came of it.
    pub(super) fn step<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        let (began, made, failed) = (Instant::now(), self.operations, self.failed);
        let done = work(self);
        let (made, failed) = (self.operations - made, self.failed - failed);
        self.steps.note(name, began, made, failed);
        done
    }

    /// Something failed that is no operation, and these families lack something.
    pub(super) fn fail(&mut self, error: &KernelError, families: &[Family]) {
        self.failed += 1;
        self.in_doubt |= error.in_doubt;
        self.failed_families.extend(families);
        note(&mut self.causes, error);
    }

    /// An operation failed.
    pub(super) fn fail_op(&mut self, op: &Op, error: &KernelError) {
        match op {
            Op::Ipvs(IpvsOp::AddVirtualServer { server, .. }) => drop(self.absent.insert(*server)),
            Op::Ipvs(IpvsOp::AddRealServer { server, .. }) if self.absent.contains(server) => {
                self.hold_back(error);
                return;
            }
            Op::Rules(op) => *self.unloaded_rules.entry(op.family).or_default() += 1,
            // A container may write none, and serves all the same: that is told apart from failures (S-225).
            Op::Sysctl(_) => {
                self.unwritten.insert(error.to_string());
                return;
            }
            _ => {}
        }
        let families = if is_of_one_tenant(op, error) {
            &[]
        } else {
            op.families()
        };
        self.fail(error, families);
    }

    /// An operation was not made, because what it stands on is not there.
    pub(super) fn hold_back(&mut self, error: &KernelError) {
        self.failed += 1;
        self.in_doubt |= error.in_doubt;
        note(&mut self.consequences, error);
    }

    /// What is told of it to whoever asks for the node's health.
    pub(super) fn passed(
        &self,
        generation: u64,
        node: Arc<NodeEntry>,
        facts: FactsChange,
        took: Duration,
    ) -> Passed {
        Passed {
            generation,
            node,
            complete: true,
            facts,
            failed_families: self.failed_families.clone(),
            unloaded_rules: self.unloaded_rules.clone(),
            operations: self.operations,
            failed: self.failed,
            took,
        }
    }

    /// The failures in words.
    pub(super) fn failures(&self) -> Vec<String> {
        let told = if self.causes.is_empty() {
            &self.consequences
        } else {
            &self.causes
        };
        told.iter().take(FAILURES_TOLD).map(Cause::told).collect()
    }
}

/// Whether something was refused that whoever may write one Service or its endpoints can ask for: a
/// scheduler that nobody has, an address that is no host's. That is told and tried again, but it takes
/// no node out of everybody's balancers. What IPVS does not do for another reason is seen elsewhere,
/// too: the look at it that follows each failure fails then.
fn is_of_one_tenant(op: &Op, error: &KernelError) -> bool {
    let named = matches!(
        op,
        Op::Scheduler(_) | Op::Ipvs(IpvsOp::AddRealServer { .. } | IpvsOp::EditRealServer { .. })
    );
    named && !error.in_doubt
}

fn note(causes: &mut Vec<Cause>, error: &KernelError) {
    let same = causes
        .iter_mut()
        .find(|cause| cause.first.reason == error.reason);
    if let Some(cause) = same {
        cause.more += 1;
    } else if causes.len() < FAILURES_TOLD {
        let first = error.clone();
        causes.push(Cause { first, more: 0 });
    }
}

impl Cause {
    fn told(&self) -> String {
        let Self { first, more } = self;
        match more {
            0 => first.to_string(),
            1 => format!("{first} (and one more like this)"),
            _ => format!("{first} (and {more} more like this)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_reconcile::{RealServerKey, Scheduling};

    use portolan_reconcile::{LinkOp, SchedulerOp, SysctlOp};

    use super::*;

    fn server(port: u16) -> VirtualServerKey {
        format!("TCP 10.96.0.1:{port}").parse().unwrap()
    }

    fn add_server(port: u16) -> Op {
        let scheduling = Scheduling {
            scheduler: "rr".into(),
            flags: 0,
            timeout: 0,
        };
        let server = server(port);
        Op::Ipvs(IpvsOp::AddVirtualServer { server, scheduling })
    }

    fn add_backend(port: u16) -> Op {
        let backend = RealServerKey {
            address: [10, 244, 0, 1].into(),
            port: 8080,
        };
        Op::Ipvs(IpvsOp::AddRealServer {
            server: server(port),
            backend,
            weight: 1,
        })
    }

    #[test]
    fn operations_that_fail_for_one_reason_are_told_once() {
        let mut outcome = Outcome::default();
        for port in 1..=64 {
            let op = add_backend(port);
            outcome.fail_op(&op, &KernelError::new(&op, "the answer was lost"));
        }
        let told = "add 10.244.0.1:8080 (weight 1) to TCP 10.96.0.1:1: the answer was lost (and 63 \
                    more like this)";
        assert_eq!(
            (outcome.failed, outcome.failures()),
            (64, vec![told.into()])
        );
    }

    #[test]
    fn a_family_lacks_what_failed_in_it_but_not_what_one_tenant_asked_for_in_vain() {
        let lacks = |op: &Op, error: KernelError| {
            let mut outcome = Outcome::default();
            outcome.fail_op(op, &error);
            outcome.failed_families
        };
        let refused = KernelError::new("do it", "refused");
        let nobody = BTreeSet::new();
        assert_eq!(lacks(&add_backend(80), refused.clone()), nobody);
        let lost = refused.clone().in_doubt_if(true);
        assert_eq!(lacks(&add_backend(80), lost), [Family::Ipv4].into());
        assert_eq!(
            lacks(&add_server(80), refused.clone()),
            [Family::Ipv4].into()
        );
        let scheduler = Op::Scheduler(SchedulerOp {
            scheduler: "none-such".into(),
        });
        assert_eq!(lacks(&scheduler, refused.clone()), nobody);
        let device = Op::Link(LinkOp::RaiseDevice {
            device: "kube-ipvs0".into(),
        });
        assert_eq!(lacks(&device, refused), Family::BOTH.into());
    }

    #[test]
    fn a_kernel_setting_that_cannot_be_written_is_no_failure() {
        let mut outcome = Outcome::default();
        let (name, value) = ("net.ipv4.ip_forward".into(), "1".into());
        let op = Op::Sysctl(SysctlOp { name, value });
        outcome.fail_op(&op, &KernelError::new(&op, "read-only"));
        assert_eq!(
            (outcome.failed, outcome.failures()),
            (0, Vec::new()),
            "S-225"
        );
        let told = BTreeSet::from(["set net.ipv4.ip_forward to 1: read-only".to_owned()]);
        assert_eq!(outcome.unwritten, told);
    }

    #[test]
    fn what_follows_from_a_failure_is_counted_and_told_only_where_nothing_else_is() {
        let mut outcome = Outcome::default();
        outcome.hold_back(&KernelError::new("answer", "held back"));
        assert_eq!(outcome.failures(), ["answer: held back"]);
        let (server, backend) = (add_server(80), add_backend(80));
        outcome.fail_op(&server, &KernelError::new("add it", "refused"));
        outcome.fail_op(&backend, &KernelError::new("add to it", "not there"));
        assert_eq!(outcome.failures(), ["add it: refused"]);
        outcome.fail_op(
            &add_backend(81),
            &KernelError::new("add to another", "refused too"),
        );
        assert_eq!(
            outcome.failures(),
            ["add it: refused", "add to another: refused too"]
        );
        assert_eq!(outcome.failed, 4);
    }
}
