//! The status of a ProxyPlan, derived from the reports of an agent. Pure; the time is an argument.
//!
//! Invariant: `lastTransitionTime` changes only when the status of its condition changes.

use std::time::SystemTime;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use portolan_crds as crds;
use portolan_crds::condition;

use super::content::{lag, sentence, shortened};
use super::previous::{Previous, Since};
use super::troubles;
use crate::agent_registry::{Acked, Delivery, Drift, MAX_LISTED_ITEMS};
use crate::from_kube;

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The condition is met.
    True,
    /// The condition is not met.
    False,
    /// The controller has no current information.
    Unknown,
}

impl Verdict {
    /// The spelling that conditions use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    pub(super) fn read(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// The state of an agent that determines its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    NeverSeen,
    Gone,
    NotAnswered,
    Overdue,
    Failing,
    Unreadable,
    Differs,
    Applied,
}

impl State {
    fn of(delivery: Option<&Delivery>) -> Self {
        let Some(delivery) = delivery else {
            return Self::NeverSeen;
        };
        match &delivery.acked {
            _ if !delivery.connected => Self::Gone,
            _ if delivery.overdue.is_some() => Self::Overdue,
            None => Self::NotAnswered,
            Some((_, acked)) if acked.failed_operations > 0 || !acked.failures.is_empty() => {
                Self::Failing
            }
            Some((_, acked)) if acked.unreadable().is_some() => Self::Unreadable,
            Some((_, acked)) if acked.applied != Some(acked.received) => Self::Differs,
            Some(_) => Self::Applied,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::NeverSeen => "NoAgent",
            Self::Gone => "AgentGone",
            Self::NotAnswered => "NotAnswered",
            Self::Overdue => "AnswerOverdue",
            Self::Failing => "OperationsFailed",
            Self::Unreadable => "EntriesUnreadable",
            Self::Differs => "NotInKernel",
            Self::Applied => "Applied",
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::NeverSeen | Self::Gone | Self::NotAnswered => Verdict::Unknown,
            Self::Overdue | Self::Failing | Self::Unreadable | Self::Differs => Verdict::False,
            Self::Applied => Verdict::True,
        }
    }
}

/// A condition without its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The status of the condition.
    pub verdict: Verdict,
    /// The reason, in CamelCase.
    pub reason: &'static str,
}

/// All conditions of a node, without messages. Cheap enough to compute for each report of each agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// The kernel has the plan that the node was sent last.
    pub applied: Judged,
    /// The agent is connected and no operation fails.
    pub healthy: Judged,
    /// Another program changed kernel entries of this proxy.
    pub drifted: Judged,
    /// The kernel has the settings that the node needs.
    pub settings: Judged,
}

/// Computes the conditions of a node. `None` means that no agent of the node has connected to this controller.
pub fn judge(delivery: Option<&Delivery>) -> Judgement {
    let state = State::of(delivery);
    let (verdict, reason) = (state.verdict(), state.reason());
    let (sound, healthy) = match state {
        State::Applied if !closed_ports(delivery).is_empty() => (Verdict::False, "PortsClosed"),
        State::Applied => (verdict, "Healthy"),
        _ => (verdict, reason),
    };
    let connected = delivery.filter(|delivery| delivery.connected);
    let (drifted, why) = match connected.map(|delivery| delivery.drifted.as_deref()) {
        None => (Verdict::Unknown, reason),
        Some(None) => (Verdict::Unknown, "NotReported"),
        Some(Some(drift)) => match (sum(drift, |d| d.unrepaired), sum(drift, |d| d.found)) {
            (0, 0) => (Verdict::False, "NoDrift"),
            (0, _) => (Verdict::False, "Repaired"),
            _ => (Verdict::True, "ChangedByOthers"),
        },
    };
    let (settings, written) = match connected.map(|delivery| delivery.unwritten_settings.is_empty())
    {
        None => (Verdict::Unknown, reason),
        Some(true) => (Verdict::True, "Written"),
        Some(false) => (Verdict::False, "NotWritable"),
    };
    let judged = |verdict, reason| Judged { verdict, reason };
    Judgement {
        applied: judged(verdict, reason),
        healthy: judged(sound, healthy),
        drifted: judged(drifted, why),
        settings: judged(settings, written),
    }
}

/// Ports on which the agent cannot listen.
fn closed_ports(delivery: Option<&Delivery>) -> &[String] {
    delivery.map_or(&[], |delivery| &delivery.closed_ports)
}

/// When the applied plan was created; `None` if no plan is applied completely, or if that is unknown.
pub(super) fn in_force_since(delivery: Option<&Delivery>) -> Option<SystemTime> {
    let (answered, acked) = delivery?.acked.as_ref()?;
    let whole = State::of(delivery) == State::Applied;
    whole.then(|| answered.checked_sub(acked.lag)).flatten()
}

/// The conditions, in the order of `judged`.
fn conditions(judged: [(Judged, &str); 4], previous: &Previous, now: SystemTime) -> Vec<Condition> {
    let kinds = [
        (condition::APPLIED, previous.applied),
        (condition::DRIFTED, previous.drifted),
        (condition::HEALTHY, previous.healthy),
        (condition::KERNEL_SETTINGS, previous.settings),
    ];
    let all = kinds.into_iter().zip(judged);
    all.map(|((kind, previous), (judged, words))| condition(kind, judged, words, previous, now))
        .collect()
}

/// The status of the ProxyPlan of a node. Conditions whose status is that of `previous` keep their transition time.
pub fn status(
    delivery: Option<&Delivery>,
    now: SystemTime,
    previous: &Previous,
) -> crds::ProxyPlanStatus {
    let judgement = judge(delivery);
    let state = State::of(delivery);
    let acked = delivery.and_then(|delivery| delivery.acked.as_ref());
    let acked = acked.map(|(_, acked)| &**acked);
    let words = words(state, delivery, acked);
    let closed = closed_ports(delivery);
    let closed_words = closed.first().filter(|_| state == State::Applied);
    let closed_words = closed_words.map(|first| {
        format!(
            "the agent cannot open {} ports, the first failure: {first}; the agent retries",
            closed.len()
        )
    });
    let health_words = closed_words.as_deref().unwrap_or(&words);
    let judged = [
        (judgement.applied, &*words),
        (judgement.drifted, &drift_words(delivery)),
        (judgement.healthy, health_words),
        (judgement.settings, &settings_words(delivery)),
    ];
    let conditions = conditions(judged, previous, now);
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let sentences = |texts: &[String]| texts.iter().map(|text| sentence(text)).collect();
    crds::ProxyPlanStatus {
        applied_hash: acked.and_then(|acked| Some(acked.applied?.to_string())),
        settings_revision: previous.revision.map(from_kube::revision_name),
        received_hash: acked.map(|acked| acked.received.to_string()),
        lag: acked.map(|acked| lag(acked.lag)),
        operations: acked.map(|acked| number(acked.operations)),
        drift: delivery
            .and_then(|delivery| delivery.drifted.as_deref())
            .map(|drift| number(sum(drift, |d| d.unrepaired))),
        failures: failures(acked, closed),
        failed_operations: acked
            .map(|acked| number(acked.failed_operations))
            .filter(|failed| *failed > 0),
        failing_services: troubles::failing(delivery),
        troubles: troubles::shown(delivery),
        undecodable: acked.map_or_else(Vec::new, |acked| sentences(&acked.undecodable)),
        schedulers: delivery.map_or_else(Vec::new, |delivery| delivery.schedulers.to_vec()),
        agent_version: delivery.map(agent_version),
        agent_pod: delivery.and_then(agent_pod),
        heartbeat_time: Some(heartbeat(now)),
        conditions,
    }
}

/// The agent version, shortened to what the status allows.
pub(super) fn agent_version(delivery: &Delivery) -> String {
    shortened(&delivery.agent_version, 64)
}

/// The name of the agent's pod, shortened to what the status allows.
pub(super) fn agent_pod(delivery: &Delivery) -> Option<String> {
    let pod = delivery.agent_pod.as_deref()?;
    Some(shortened(pod, portolan_crds::limit::NAME_CHARS))
}

/// A condition. It keeps its transition time while its status is unchanged.
pub(crate) fn condition(
    kind: &str,
    judged: Judged,
    words: &str,
    previous: Option<Since>,
    now: SystemTime,
) -> Condition {
    let since = previous
        .filter(|previous| previous.verdict == judged.verdict)
        .map_or(now, |previous| previous.time);
    Condition {
        type_: kind.to_owned(),
        status: judged.verdict.as_str().to_owned(),
        reason: judged.reason.to_owned(),
        message: sentence(words),
        last_transition_time: moment(since),
        observed_generation: None,
    }
}

/// The failures, those in the kernel first.
fn failures(acked: Option<&Acked>, closed: &[String]) -> Vec<String> {
    let kernel = acked.map_or(&[][..], |acked| &acked.failures);
    let all = kernel.iter().chain(closed).take(MAX_LISTED_ITEMS);
    all.map(|text| sentence(text)).collect()
}

fn words(state: State, delivery: Option<&Delivery>, acked: Option<&Acked>) -> String {
    let acked = acked.cloned().unwrap_or_default();
    let first = |texts: &[String]| texts.first().cloned().unwrap_or_default();
    match state {
        State::NeverSeen => {
            "no agent of this node has connected since the controller that writes this status started; check that \
             the agent's pod on the node is running, and its log"
                .into()
        }
        State::Gone => {
            let since = delivery.map_or(SystemTime::UNIX_EPOCH, |delivery| delivery.since);
            format!(
                "the agent has been disconnected since {}; the node keeps its last plan; check that the agent's pod \
                 on the node is running, and its log",
                moment(since).0
            )
        }
        State::NotAnswered => {
            "the agent is connected and has not answered its first batch yet; if that lasts, its log on the node \
             names the cause"
                .into()
        }
        State::Overdue => {
            let sent = delivery.and_then(|delivery| delivery.overdue);
            format!(
                "the agent has not answered the batch of {}; the node keeps its last plan; check its log for a \
                 stuck thread that programs the kernel",
                moment(sent.unwrap_or(SystemTime::UNIX_EPOCH)).0
            )
        }
        State::Failing => format!(
            "{} kernel operations failed, the first: {}; the agent retries them",
            acked.failed_operations,
            first(&acked.failures)
        ),
        State::Unreadable => format!(
            "the agent cannot read {}; its last readable form stays in force; check whether the agent is \
             older than the controller",
            acked.unreadable().unwrap_or_default()
        ),
        State::Differs => {
            "the plan in the kernel is not the one that the agent received; the agent retries; its log on the node \
             names the cause"
                .into()
        }
        State::Applied => format!(
            "the kernel has the last plan that was sent to the node{}",
            troubles::exceptions(delivery)
        ),
    }
}

fn drift_words(delivery: Option<&Delivery>) -> String {
    let connected = delivery.filter(|delivery| delivery.connected);
    let Some(connected) = connected else {
        return "the agent is not connected, so drift is unknown; see the condition Applied".into();
    };
    let Some(drift) = connected.drifted.as_deref() else {
        return "the agent has not compared the kernel with the plan yet".into();
    };
    if sum(drift, |d| d.unrepaired) > 0 {
        let persisting = by_kind(drift, |d| d.unrepaired);
        return format!(
            "another program changed kernel entries of Portolan, and the changes persist ({persisting}): \
             spec.settings.drift of the ProxyConfig decides whether they are corrected; check for another \
             proxy or a script on the node"
        );
    }
    if sum(drift, |d| d.found) > 0 {
        let found = by_kind(drift, |d| d.found);
        return format!(
            "another program changed kernel entries of Portolan, and none of the changes persists; found \
             since the agent started: {found}; check for another proxy or a script on the node"
        );
    }
    "no other program changed kernel entries of Portolan".into()
}

fn settings_words(delivery: Option<&Delivery>) -> String {
    let connected = delivery.filter(|delivery| delivery.connected);
    let Some(unwritten) = connected.map(|delivery| &delivery.unwritten_settings) else {
        return "the agent is not connected, so kernel settings are unknown; see the condition Applied".into();
    };
    match unwritten.first() {
        None => "the kernel has the settings that the node needs".into(),
        Some(first) => format!(
            "the agent could not write {} kernel settings, the first: {first}; the node serves traffic \
             nevertheless; write them on the node (/etc/sysctl.d), or delete the agent's pod, whose init \
             container writes them",
            unwritten.len()
        ),
    }
}

fn sum(drift: &[Drift], of: fn(&Drift) -> u64) -> u64 {
    drift.iter().map(of).fold(0, u64::saturating_add)
}

/// `weight 2, route 1`: the kinds with a count above zero.
fn by_kind(drift: &[Drift], of: fn(&Drift) -> u64) -> String {
    let counted = drift.iter().filter(|drift| of(drift) > 0);
    let words: Vec<_> = counted.map(|d| format!("{} {}", d.kind, of(d))).collect();
    words.join(", ")
}

/// A time as the API represents it: whole seconds.
pub(super) fn moment(time: SystemTime) -> Time {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since_epoch.map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A heartbeat. Its microseconds distinguish those of different controllers.
fn heartbeat(time: SystemTime) -> MicroTime {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
    let microseconds = since_epoch.map_or(0, |since| since.as_micros());
    let microseconds = i64::try_from(microseconds).unwrap_or(i64::MAX);
    MicroTime(Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::UNIX_EPOCH))
}
