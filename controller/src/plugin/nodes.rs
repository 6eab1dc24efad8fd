//! `kubectl proxyplan top`: nodes sorted by need for attention, from their agents' last reports.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::time::SystemTime;

use anyhow::bail;
use clap::Args;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use portolan_crds::{ProxyPlan, ProxyPlanStatus, condition};
use portolan_rollout_policy::Health;
use serde::Serialize;

use super::cluster::ClusterArguments;
use super::output::Output;
use super::{NOT_YET, OK};
use crate::operator::lease::CHECK_LEADER;
use crate::operator::rollout::{is_outdated, report};

/// ProxyPlans in one page of a list.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Args)]
pub(super) struct TopArguments {
    /// Maximum number of nodes in the table; 0 for all. JSON always has all nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

/// State of a node; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum State {
    Failing,
    /// Its agent is connected and owes an answer.
    NotAnswering,
    Disconnected,
    /// No controller writes its status, so its state is unknown.
    Outdated,
    Drifted,
    InForce,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::NotAnswering => "not answering",
            Self::Disconnected => "disconnected",
            Self::Outdated => "outdated",
            Self::Drifted => "drifted",
            Self::InForce => "in force",
        }
    }
}

/// A node according to its agent's last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    node: String,
    zone: Option<String>,
    state: State,
    /// From the creation of the last batch to the agent's report that the kernel has it.
    lag_milliseconds: Option<u64>,
    /// Kernel operations of the last batch.
    operations: Option<i64>,
    /// Kernel entries that other programs changed.
    drift: Option<i64>,
    agent_version: Option<String>,
    /// The first failure, or what else is wrong.
    problem: Option<String>,
}

pub(super) async fn top(arguments: TopArguments) -> anyhow::Result<u8> {
    let client = arguments.cluster.client().await?;
    let plans: Api<ProxyPlan> = Api::all(client);
    let (now, mut rows) = (SystemTime::now(), Vec::new());
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = plans.list(&params).await?;
        rows.extend(page.items.iter().map(|plan| row(plan, now)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    sort(&mut rows);
    let mut out = io::stdout().lock();
    match arguments.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &rows)?;
            writeln!(out)?;
        }
        Output::Table => table(&rows, arguments.limit, &mut out)?,
    }
    code(&rows)
}

/// The exit code for these nodes.
///
/// # Errors
/// There are none, so their state is unknown.
fn code(rows: &[Row]) -> anyhow::Result<u8> {
    if rows.is_empty() {
        bail!("no ProxyPlan exists, so the state of nodes is unknown; {CHECK_LEADER}");
    }
    let is_sound = rows.iter().all(|row| row.state == State::InForce);
    Ok(if is_sound { OK } else { NOT_YET })
}

fn row(plan: &ProxyPlan, now: SystemTime) -> Row {
    let nothing = ProxyPlanStatus::default();
    let status = plan.status.as_ref().unwrap_or(&nothing);
    let report = report(status, now);
    let failure = status.failures.first().cloned();
    let (state, problem) = match report.health {
        // The rest of such a status is no longer current.
        _ if is_outdated(status, now) => (State::Outdated, Some(OUTDATED.to_owned())),
        Health::Failing(words) if owes_answer(status) => {
            (State::NotAnswering, Some(words.to_string()))
        }
        Health::Failing(words) => (State::Failing, failure.or_else(|| Some(words.to_string()))),
        Health::Silent => (State::NotAnswering, failure),
        Health::Disconnected => (State::Disconnected, failure),
        Health::Sound if report.drifted => (State::Drifted, failure),
        Health::Sound => (State::InForce, failure),
    };
    Row {
        node: plan.name_any(),
        zone: plan.spec.zone.clone(),
        state,
        lag_milliseconds: report.lag,
        operations: status.operations,
        drift: status.drift,
        agent_version: status.agent_version.clone(),
        problem,
    }
}

/// The problem of a node with an outdated status.
const OUTDATED: &str =
    "no controller has written this status for 15 minutes; check the logs of the controllers";

/// Whether the condition Applied is False only because the agent does not answer.
fn owes_answer(status: &ProxyPlanStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == condition::APPLIED && one.reason == "AnswerOverdue")
}

fn sort(rows: &mut [Row]) {
    rows.sort_by_cached_key(|row| (row.state, Reverse(row.lag_milliseconds), row.node.clone()));
}

fn table(rows: &[Row], limit: usize, out: &mut impl Write) -> io::Result<()> {
    let shown = match limit {
        0 => rows,
        limit => &rows[..rows.len().min(limit)],
    };
    if rows.is_empty() {
        return Ok(());
    }
    let width = |name: &str, of: fn(&Row) -> &str| {
        let widths = shown.iter().map(|row| of(row).chars().count());
        widths.max().unwrap_or(0).max(name.len())
    };
    let node = width("NODE", |row| &row.node);
    let zone = width("ZONE", |row| row.zone.as_deref().unwrap_or("-"));
    writeln!(
        out,
        "{:node$}  {:zone$}  {:13}  {:>8}  {:>10}  {:>5}  AGENT",
        "NODE", "ZONE", "STATE", "LAG", "OPERATIONS", "DRIFT"
    )?;
    let number = |number: Option<i64>| number.map_or_else(|| "-".into(), |n| n.to_string());
    for row in shown {
        let lag = row.lag_milliseconds;
        writeln!(
            out,
            "{:node$}  {:zone$}  {:13}  {:>8}  {:>10}  {:>5}  {}",
            row.node,
            row.zone.as_deref().unwrap_or("-"),
            row.state.as_str(),
            lag.map_or_else(|| "-".into(), |lag| format!("{lag} ms")),
            number(row.operations),
            number(row.drift),
            row.agent_version.as_deref().unwrap_or("-"),
        )?;
        if let Some(problem) = &row.problem {
            writeln!(out, "    {problem}")?;
        }
    }
    match rows.len() - shown.len() {
        0 => Ok(()),
        more => writeln!(out, "and {more} more; --limit 0 lists all"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn node(name: &str, state: State, lag: Option<u64>) -> Row {
        Row {
            node: name.into(),
            zone: Some("zone-1".into()),
            state,
            lag_milliseconds: lag,
            operations: lag.map(|_| 12),
            drift: None,
            agent_version: lag.map(|_| "0.1.0".into()),
            problem: None,
        }
    }

    #[test]
    fn failing_nodes_come_first_then_the_slowest() {
        let mut rows = vec![
            node("node-1", State::InForce, Some(41)),
            node("node-2", State::InForce, Some(1050)),
            node("node-3", State::Disconnected, None),
            Row {
                drift: Some(3),
                ..node("node-4", State::Drifted, Some(7))
            },
            Row {
                problem: Some("scheduler mh: not in this kernel; load ip_vs_mh".into()),
                ..node("node-10", State::Failing, Some(90))
            },
            Row {
                problem: Some("the agent has not answered".into()),
                ..node("node-5", State::NotAnswering, Some(3))
            },
            node("node-6", State::Outdated, None),
        ];
        sort(&mut rows);
        let mut out = Vec::new();
        table(&rows, 6, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        NODE     ZONE    STATE               LAG  OPERATIONS  DRIFT  AGENT
        node-10  zone-1  failing           90 ms          12      -  0.1.0
            scheduler mh: not in this kernel; load ip_vs_mh
        node-5   zone-1  not answering      3 ms          12      -  0.1.0
            the agent has not answered
        node-3   zone-1  disconnected          -           -      -  -
        node-6   zone-1  outdated              -           -      -  -
        node-4   zone-1  drifted            7 ms          12      3  0.1.0
        node-2   zone-1  in force        1050 ms          12      -  0.1.0
        and 1 more; --limit 0 lists all
        ");
        assert_eq!(code(&rows).unwrap(), NOT_YET);
        assert_eq!(code(&rows[6..]).unwrap(), OK, "{rows:?}");
    }

    #[test]
    fn without_any_plan_the_state_is_unknown() {
        let error = code(&[]).unwrap_err().to_string();
        assert!(error.starts_with("no ProxyPlan exists"), "{error}");
        let mut out = Vec::new();
        table(&[], 20, &mut out).unwrap();
        assert!(out.is_empty(), "standard output has no message");
    }

    /// The status of a node whose condition Applied has this value and reason, written at 1000 s.
    fn plan(applied: &str, reason: &str) -> ProxyPlan {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "node-1"},
            "spec": {
                "settingsRevision": "default-1",
                "counts": {"services": 0, "frontends": 0, "endpoints": 0, "localEndpoints": 0, "warnings": 0},
            },
            "status": {
                "heartbeatTime": "1970-01-01T00:16:40Z",
                "failures": ["of an earlier plan"],
                "conditions": [{
                    "type": "Applied", "status": applied, "reason": reason, "message": "the message",
                    "lastTransitionTime": "1970-01-01T00:16:40Z",
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn an_outdated_status_and_an_agent_that_does_not_answer_are_two_states() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = |applied, reason, now| {
            let row = row(&plan(applied, reason), at(now));
            (row.state, row.problem.unwrap_or_default())
        };
        let overdue = state("False", "AnswerOverdue", 1001);
        assert_eq!(overdue, (State::NotAnswering, "the message".into()));
        assert_eq!(state("Unknown", "NotAnswered", 1001).0, State::NotAnswering);
        let failing = state("False", "OperationsFailed", 1001);
        assert_eq!(failing, (State::Failing, "of an earlier plan".into()));
        assert_eq!(state("Unknown", "AgentGone", 1001).0, State::Disconnected);
        let old = state("False", "AnswerOverdue", 2000);
        assert_eq!(old, (State::Outdated, OUTDATED.into()));
        assert_eq!(state("True", "Applied", 2000).0, State::Outdated);
    }
}
