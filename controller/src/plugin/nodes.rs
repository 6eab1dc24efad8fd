//! `kubectl proxyplan top`: nodes sorted by need for attention, from their agents' last reports.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::time::SystemTime;

use clap::Args;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use portolan_crds::{ProxyPlan, ProxyPlanStatus};
use portolan_rollout::Health;
use serde::Serialize;

use super::cluster::ClusterArguments;
use super::output::Output;
use super::{NOT_YET, OK};
use crate::rollout::report;

/// Page size of the list of ProxyPlans, objects.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(super) struct TopArguments {
    /// Number of nodes to list; 0 for all.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// State of a node; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum State {
    Failing,
    NotAnswering,
    Away,
    Drifted,
    InForce,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::NotAnswering => "not answering",
            Self::Away => "away",
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
    /// From the end of planning to the end of programming.
    lag_milliseconds: Option<u64>,
    /// Kernel operations of the last batch.
    operations: Option<i64>,
    /// Kernel entries that differ from the plan.
    drift: Option<i64>,
    agent_version: Option<String>,
    /// The first failure.
    problem: Option<String>,
}

pub(super) async fn top(arguments: TopArguments) -> anyhow::Result<u8> {
    let client = arguments.cluster.client().await?;
    let plans: Api<ProxyPlan> = Api::all(client);
    let (now, mut rows) = (SystemTime::now(), Vec::new());
    let mut params = ListParams::default().limit(PAGE);
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
    let sound = rows.iter().all(|row| row.state == State::InForce);
    Ok(if sound { OK } else { NOT_YET })
}

fn row(plan: &ProxyPlan, now: SystemTime) -> Row {
    let nothing = ProxyPlanStatus::default();
    let status = plan.status.as_ref().unwrap_or(&nothing);
    let report = report(status, now);
    let (state, said) = match report.health {
        Health::Failing(words) => (State::Failing, Some(words.to_string())),
        Health::Silent => (State::NotAnswering, None),
        Health::Away => (State::Away, None),
        Health::Sound if report.drifted => (State::Drifted, None),
        Health::Sound => (State::InForce, None),
    };
    Row {
        node: plan.name_any(),
        zone: plan.spec.zone.clone(),
        state,
        lag_milliseconds: report.lag,
        operations: status.operations,
        drift: status.drift,
        agent_version: status.agent_version.clone(),
        problem: status.failures.first().cloned().or(said),
    }
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
        return writeln!(
            out,
            "no ProxyPlan exists; check that a controller runs and that there are Nodes"
        );
    }
    let width = |name: &str, of: fn(&Row) -> &str| {
        let widths = shown.iter().map(|row| of(row).chars().count());
        widths.max().unwrap_or(0).max(name.len())
    };
    let node = width("NODE", |row| &row.node);
    let zone = width("ZONE", |row| row.zone.as_deref().unwrap_or("-"));
    writeln!(
        out,
        "{:node$}  {:zone$}  {:13}  {:>8}  {:>8}  {:>5}  AGENT",
        "NODE", "ZONE", "STATE", "LAG", "CHANGES", "DRIFT"
    )?;
    let number = |number: Option<i64>| number.map_or_else(|| "-".into(), |n| n.to_string());
    for row in shown {
        let lag = row.lag_milliseconds;
        writeln!(
            out,
            "{:node$}  {:zone$}  {:13}  {:>8}  {:>8}  {:>5}  {}",
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
        more => writeln!(out, "and {more} more; -n 0 lists all"),
    }
}

#[cfg(test)]
mod tests {
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
    fn what_fails_comes_first_then_what_takes_longest() {
        let mut rows = vec![
            node("node-1", State::InForce, Some(41)),
            node("node-2", State::InForce, Some(1050)),
            node("node-3", State::Away, None),
            Row {
                drift: Some(3),
                ..node("node-4", State::Drifted, Some(7))
            },
            Row {
                problem: Some("scheduler mh: not in this kernel; load ip_vs_mh".into()),
                ..node("node-10", State::Failing, Some(90))
            },
        ];
        sort(&mut rows);
        let mut out = Vec::new();
        table(&rows, 4, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        NODE     ZONE    STATE               LAG   CHANGES  DRIFT  AGENT
        node-10  zone-1  failing           90 ms        12      -  0.1.0
            scheduler mh: not in this kernel; load ip_vs_mh
        node-3   zone-1  away                  -         -      -  -
        node-4   zone-1  drifted            7 ms        12      3  0.1.0
        node-2   zone-1  in force        1050 ms        12      -  0.1.0
        and 1 more; -n 0 lists all
        ");
    }
}
