//! Collects the results and failures of a pass. Each cause is reported once, regardless of the number of operations
//! that it stopped. Consequences of other failures are counted, and reported only if there is no other failure.
//!
//! What a value of a single Service caused is kept apart: it is no failure of the node, and nothing is retried sooner
//! because of it (S-229).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{Family, NodeEntry, ServiceId};
use portolan_reconcile::{IpvsOp, Op, RealServerKey, SetOp, SetRole, VirtualServerKey};

use super::Trouble;
use super::log::PassReason;
use super::steps::Steps;
use crate::health::{FactsChange, PassReport};
use crate::heartbeat;
use crate::kernel::KernelError;

/// Maximum number of failures with a message.
const MAX_FAILURES: usize = 5;

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Number of successful operations.
    pub(super) operations: usize,
    /// Number of operations that failed or were skipped.
    pub(super) failed: usize,
    /// Whether another pass has to continue at once.
    pub(super) unfinished: bool,
    /// Whether writing the record failed.
    pub(super) unrecorded: bool,
    /// Whether the effect of some operation is unknown.
    pub(super) in_doubt: bool,
    /// The families that differ from the plan.
    pub(super) failed_families: BTreeSet<Family>,
    /// Number of failures to load the rules of a family.
    pub(super) unloaded_rules: BTreeMap<Family, u64>,
    /// Real servers that the kernel refused because of their values, one of each virtual server.
    pub(super) refused: BTreeMap<VirtualServerKey, Refused>,
    /// What is wrong with Services in the tables of nftables.
    pub(super) of_services: BTreeMap<ServiceId, Trouble>,
    causes: Vec<Cause>,
    consequences: Vec<Cause>,
    /// Kernel settings that could not be written, with the reasons.
    pub(super) unwritten: BTreeSet<String>,
    /// Virtual servers that could not be added.
    absent: BTreeSet<VirtualServerKey>,
    /// Whether Services are again as their objects ask.
    pub(super) resolved: bool,
    /// The duration of each step.
    pub(super) steps: Steps,
}

/// A real server that the kernel refused, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) backend: RealServerKey,
    pub(super) reason: String,
}

/// A failure, and the number of others with the same reason.
#[derive(Debug)]
struct Cause {
    first: KernelError,
    more: usize,
}

impl Outcome {
    /// Runs a step of the pass, and records its duration and results.
    pub(super) fn step<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        let (began, made, failed) = (Instant::now(), self.operations, self.failed);
        let done = work(self);
        let (made, failed) = (self.operations - made, self.failed - failed);
        self.steps.note(name, began, made, failed);
        heartbeat::beat();
        done
    }

    /// Records a failure other than an operation, with the affected families.
    pub(super) fn fail(&mut self, error: &KernelError, families: &[Family]) {
        self.failed += 1;
        self.in_doubt |= error.in_doubt;
        self.failed_families.extend(families);
        note(&mut self.causes, error);
    }

    /// Records a failed operation.
    pub(super) fn fail_op(&mut self, op: &Op, error: &KernelError) {
        if error.of_service
            && let Op::Ipvs(IpvsOp::AddRealServer {
                server, backend, ..
            }) = op
        {
            self.refuse(*server, *backend, &error.reason);
            return;
        }
        match op {
            Op::Ipvs(IpvsOp::AddVirtualServer { server, .. }) => drop(self.absent.insert(*server)),
            Op::Ipvs(IpvsOp::AddRealServer { server, .. }) if self.absent.contains(server) => {
                self.hold_back(op, error);
                return;
            }
            Op::Rules(op) => *self.unloaded_rules.entry(op.family).or_default() += 1,
            // A container may not write settings, but serves regardless: reported separately from failures (S-225).
            Op::Sysctl(_) => {
                self.unwritten.insert(error.to_string());
                return;
            }
            _ => {}
        }
        let families = match op {
            // Virtual servers keep their scheduler, so the families are as complete as before. Without this, a wrong
            // setting could remove every node from the load balancers.
            Op::Scheduler(_) => &[],
            _ => op.families(),
        };
        self.fail(error, families);
    }

    /// Records a refused real server. Of several, the smallest is kept: the order of operations differs between nodes,
    /// and the report should not.
    fn refuse(&mut self, server: VirtualServerKey, backend: RealServerKey, reason: &str) {
        let refused = || Refused {
            backend,
            reason: reason.to_owned(),
        };
        let held = self.refused.entry(server).or_insert_with(refused);
        if backend < held.backend {
            *held = refused();
        }
    }

    /// Records an operation that was skipped because its precondition failed. What follows from a refused real server
    /// is part of that.
    pub(super) fn hold_back(&mut self, op: &Op, error: &KernelError) {
        if server_of(op).is_some_and(|server| self.refused.contains_key(&server)) {
            return;
        }
        self.failed += 1;
        self.in_doubt |= error.in_doubt;
        note(&mut self.consequences, error);
    }

    /// The reason for the pass, as far as its results show it.
    pub(super) fn reason(&self, why: PassReason) -> PassReason {
        match why {
            PassReason::Due if self.resolved => PassReason::Resolved,
            why => why,
        }
    }

    /// The report for the node's health.
    pub(super) fn passed(
        &self,
        generation: u64,
        node: Arc<NodeEntry>,
        facts: FactsChange,
        took: Duration,
    ) -> PassReport {
        PassReport {
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

    /// The messages of the failures.
    pub(super) fn failures(&self) -> Vec<String> {
        let reported = if self.causes.is_empty() {
            &self.consequences
        } else {
            &self.causes
        };
        let reported = reported.iter().take(MAX_FAILURES);
        reported.map(Cause::message).collect()
    }
}

/// The virtual server that an operation changes or lets through.
fn server_of(op: &Op) -> Option<VirtualServerKey> {
    match op {
        Op::Ipvs(op) => op.server().copied(),
        Op::Set(SetOp::AddEntry { set, entry }) if set.role == SetRole::Frontend => entry.server(),
        _ => None,
    }
}

fn note(causes: &mut Vec<Cause>, error: &KernelError) {
    let same = causes
        .iter_mut()
        .find(|cause| cause.first.reason == error.reason);
    if let Some(cause) = same {
        cause.more += 1;
    } else if causes.len() < MAX_FAILURES {
        let first = error.clone();
        causes.push(Cause { first, more: 0 });
    }
}

impl Cause {
    fn message(&self) -> String {
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
    use portolan_reconcile::{LinkOp, SchedulerOp, Scheduling, SetEntry, SetId, SysctlOp};

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
        add(port, 1)
    }

    /// Adds the backend with this last byte of its address.
    fn add(port: u16, backend: u8) -> Op {
        let backend = RealServerKey {
            address: [10, 244, 0, backend].into(),
            port: 8080,
        };
        Op::Ipvs(IpvsOp::AddRealServer {
            server: server(port),
            backend,
            weight: 1,
        })
    }

    #[test]
    fn operations_that_fail_for_the_same_reason_are_reported_once() {
        let mut outcome = Outcome::default();
        for port in 1..=64 {
            let op = add_backend(port);
            outcome.fail_op(&op, &KernelError::new(&op, "the answer was lost"));
        }
        let message = "add 10.244.0.1:8080 (weight 1) to TCP 10.96.0.1:1: the answer was lost (and 63 \
                       more like this)";
        assert_eq!(
            (outcome.failed, outcome.failures()),
            (64, vec![message.into()])
        );
    }

    /// S-229: what a single Service causes is not a failure of the node, and names the same backend on every node.
    #[test]
    fn a_refused_real_server_is_no_failure_and_neither_is_what_follows_from_it() {
        let mut outcome = Outcome::default();
        for backend in [9, 3, 7] {
            let op = add(80, backend);
            let error = KernelError::new(&op, "no host").of_service_if(true);
            outcome.fail_op(&op, &error);
        }
        let set = SetId {
            role: SetRole::Frontend,
            family: Family::Ipv4,
        };
        let entry = |port| SetEntry::of(server(port));
        let let_through = |port| {
            Op::Set(SetOp::AddEntry {
                set,
                entry: entry(port),
            })
        };
        let held_back = KernelError::new("let it through", "held back");
        outcome.hold_back(&let_through(80), &held_back);
        assert_eq!((outcome.failed, outcome.failures()), (0, Vec::new()));
        assert_eq!(outcome.failed_families, BTreeSet::new());
        let refused = Refused {
            backend: RealServerKey {
                address: [10, 244, 0, 3].into(),
                port: 8080,
            },
            reason: "no host".into(),
        };
        assert_eq!(outcome.refused, [(server(80), refused)].into());
        outcome.hold_back(&let_through(81), &held_back);
        assert_eq!(outcome.failed, 1, "another virtual server");
    }

    #[test]
    fn a_failure_affects_its_family_unless_a_single_tenant_can_cause_it() {
        let lacks = |op: &Op, error: KernelError| {
            let mut outcome = Outcome::default();
            outcome.fail_op(op, &error);
            outcome.failed_families
        };
        let refused = KernelError::new("do it", "refused");
        let none = BTreeSet::new();
        let of_service = refused.clone().of_service_if(true);
        assert_eq!(lacks(&add_backend(80), of_service), none);
        assert_eq!(
            lacks(&add_backend(80), refused.clone()),
            [Family::Ipv4].into()
        );
        let lost = refused.clone().in_doubt_if(true);
        assert_eq!(lacks(&add_backend(80), lost), [Family::Ipv4].into());
        assert_eq!(
            lacks(&add_server(80), refused.clone()),
            [Family::Ipv4].into()
        );
        let scheduler = Op::Scheduler(SchedulerOp {
            scheduler: "none-such".into(),
        });
        assert_eq!(lacks(&scheduler, refused.clone()), none);
        let device = Op::Link(LinkOp::RaiseDevice {
            device: "kube-ipvs0".into(),
        });
        assert_eq!(lacks(&device, refused), Family::BOTH.into());
    }

    #[test]
    fn a_kernel_setting_that_cannot_be_written_is_not_a_failure() {
        let mut outcome = Outcome::default();
        let (name, value) = ("net.ipv4.ip_forward".into(), "1".into());
        let op = Op::Sysctl(SysctlOp { name, value });
        outcome.fail_op(&op, &KernelError::new(&op, "read-only"));
        assert_eq!(
            (outcome.failed, outcome.failures()),
            (0, Vec::new()),
            "S-225"
        );
        let messages = BTreeSet::from(["set net.ipv4.ip_forward to 1: read-only".to_owned()]);
        assert_eq!(outcome.unwritten, messages);
    }

    #[test]
    fn consequences_of_a_failure_are_counted_and_reported_only_without_a_cause() {
        let mut outcome = Outcome::default();
        outcome.hold_back(&add_server(79), &KernelError::new("answer", "held back"));
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
