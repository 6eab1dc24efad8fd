//! `kubectl proxyplan rollout`: shows, pauses, resumes and undoes a change of settings or agents. Like a manual edit,
//! it writes only to the spec of the ProxyConfig.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use kube::Api;
use kube::api::{Patch, PatchParams};
use portolan_crds::{ProxyConfig, RevisionRecord, RolloutPhase, RolloutStatus};
use portolan_planner::model::ProxyConfig as Config;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::ClusterArguments;
use super::output::Output;
use super::{NOT_YET, OK};
use crate::operator::lease::CHECK_LEADER;

/// Timeout for the leader to notice a pause. The leader checks every few seconds.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two checks whether the leader noticed the pause.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct RolloutArguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the progress, and what the rollout waits for.
    Status {
        /// Output format.
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
        output: Output,
    },
    /// Lists the revisions that can be restored, newest first.
    History {
        /// Output format.
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
        output: Output,
    },
    /// Stops giving the change to further nodes until `resume`; nodes that have received it keep it.
    Pause,
    /// Continues, and retries a change that was rolled back or has halted.
    Resume,
    /// Makes nodes use an earlier revision instead of the spec, in the same waves, until `redo`.
    Undo {
        /// Revision as named by `history`. Default: the one in force before the current or last change.
        #[arg(long, value_name = "REVISION")]
        to: Option<String>,
    },
    /// Ends an undo: nodes use the spec again, in the same waves.
    Redo,
}

pub(super) async fn run(arguments: RolloutArguments) -> anyhow::Result<u8> {
    let configs: Api<ProxyConfig> = Api::all(arguments.cluster.client().await?);
    let config = configs.get_opt(Config::DEFAULT).await?;
    let config = config.with_context(|| {
        format!("there is no ProxyConfig `default`, which the leading controller creates; {CHECK_LEADER}")
    })?;
    let status = config.status.as_ref();
    let nothing = RolloutStatus::default();
    let rollout = status.and_then(|status| status.rollout.as_ref());
    let rollout = rollout.unwrap_or(&nothing);
    let mut out = io::stdout().lock();
    let change = match arguments.command {
        Command::Status { output } => {
            match output {
                Output::Json => json_line(rollout, &mut out)?,
                Output::Table => {
                    write_status(rollout, &mut out)?;
                    if let Some(to) = held(&config) {
                        writeln!(
                            out,
                            "  undone   {to} applies instead of the spec until `redo`"
                        )?;
                    }
                }
            }
            return Ok(code(rollout.phase));
        }
        Command::History { output } => {
            match output {
                Output::Json => json_line(&rollout.history, &mut out)?,
                Output::Table => history(rollout, &mut out)?,
            }
            return Ok(OK);
        }
        Command::Pause => json!({"paused": true}),
        Command::Resume => json!({"paused": false}),
        Command::Redo => json!({"rollbackTo": ""}),
        Command::Undo { to } => json!({"rollbackTo": former(rollout, to)?}),
    };
    if config.spec.rollout.is_none() {
        bail!(
            "ProxyConfig default: spec.rollout is not set, so all nodes receive a change at once; \
             set it to {{}} for waves"
        );
    }
    if change["paused"] == false && waits_for_a_look(rollout) {
        store(&configs, &json!({"paused": true})).await?;
        noticed(&configs).await?;
    }
    store(&configs, &change).await?;
    writeln!(out, "{}", done(&change))?;
    Ok(OK)
}

/// Whether the rollout resumes only after the leader has seen it paused.
fn waits_for_a_look(rollout: &RolloutStatus) -> bool {
    match rollout.phase {
        RolloutPhase::Halted => true,
        RolloutPhase::RolledBack => !rollout.try_again,
        _ => false,
    }
}

/// Waits until the leader has seen the pause.
async fn noticed(configs: &Api<ProxyConfig>) -> anyhow::Result<()> {
    let asked = Instant::now();
    while asked.elapsed() < PAUSE_TIMEOUT {
        let config = configs.get(Config::DEFAULT).await?;
        let status = config.status.and_then(|status| status.rollout);
        if !status.is_some_and(|status| waits_for_a_look(&status)) {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    }
    bail!(
        "the rollout is paused, and no controller has noticed for {} s; {CHECK_LEADER}, then resume again",
        PAUSE_TIMEOUT.as_secs()
    )
}

async fn store(configs: &Api<ProxyConfig>, change: &Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"rollout": change}}));
    let params = PatchParams {
        field_manager: Some("kubectl-proxyplan".into()),
        ..PatchParams::default()
    };
    let stored = configs.patch(Config::DEFAULT, &params, &patch).await;
    stored
        .context("write spec.rollout of the ProxyConfig; check that you may patch proxyconfigs")?;
    Ok(())
}

/// The revision that applies instead of the spec.
fn held(config: &ProxyConfig) -> Option<&str> {
    let to = config.spec.rollout.as_ref()?.rollback_to.as_deref();
    to.filter(|to| !to.is_empty())
}

fn done(change: &Value) -> String {
    match (&change["paused"], change["rollbackTo"].as_str()) {
        (Value::Bool(true), _) => "paused: no further node receives the change".into(),
        (Value::Bool(false), _) => "resumed".into(),
        (_, Some("")) => "nodes use the spec again, in waves".into(),
        (_, Some(revision)) => format!(
            "nodes use {revision} instead of the spec, in waves, until `kubectl proxyplan rollout redo`"
        ),
        _ => String::new(),
    }
}

/// The revision to restore.
fn former(rollout: &RolloutStatus, to: Option<String>) -> anyhow::Result<String> {
    let names = || {
        let names = rollout.history.iter().rev().map(|one| &*one.revision);
        names.collect::<Vec<_>>().join(", ")
    };
    if let Some(to) = to {
        if rollout.history.iter().any(|one| one.revision == to) {
            return Ok(to);
        }
        bail!(
            "--to {to}: no such revision in the history (there are: {})",
            names()
        );
    }
    let is_on_its_way = rollout.current_revision != rollout.target_revision;
    if is_on_its_way {
        return Ok(rollout.current_revision.clone());
    }
    let mut older = rollout.history.iter().rev();
    older.find(|one| one.revision == rollout.current_revision);
    let before = older.next().with_context(|| {
        format!(
            "nothing to restore: the history has no revision before {}",
            rollout.current_revision
        )
    })?;
    Ok(before.revision.clone())
}

fn code(phase: RolloutPhase) -> u8 {
    match phase {
        RolloutPhase::Complete | RolloutPhase::Progressing | RolloutPhase::Soaking => OK,
        RolloutPhase::Paused | RolloutPhase::Halted | RolloutPhase::RolledBack => NOT_YET,
    }
}

fn json_line(value: &impl serde::Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

fn write_status(rollout: &RolloutStatus, out: &mut impl Write) -> io::Result<()> {
    let (current, target) = (&rollout.current_revision, &rollout.target_revision);
    match rollout.phase {
        _ if current.is_empty() => {
            writeln!(out, "no rollout is recorded yet; {CHECK_LEADER}")?;
        }
        RolloutPhase::Complete => writeln!(out, "complete: all nodes have {current}")?,
        RolloutPhase::RolledBack => writeln!(out, "rolled back: all nodes have {current} again")?,
        phase => {
            let phase = match phase {
                RolloutPhase::Soaking => "is soaking",
                RolloutPhase::Paused => "is paused",
                RolloutPhase::Halted => "has halted and needs attention",
                _ => "is in progress",
            };
            writeln!(out, "{current} -> {target} {phase}")?;
        }
    }
    if let (Some(touched), Some(total)) = (rollout.touched_nodes, rollout.total_nodes) {
        writeln!(out, "  nodes    {touched} of {total} have received it")?;
    }
    let fields = [
        ("wave", &rollout.wave),
        ("waits", &rollout.waiting_for),
        ("reason", &rollout.reason),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            writeln!(out, "  {name:8} {value}")?;
        }
    }
    if let Some(since) = &rollout.soaking_since {
        writeln!(out, "  soaking  since {}", since.0)?;
    }
    if !rollout.excused_nodes.is_empty() {
        let nodes = rollout.excused_nodes.join(", ");
        writeln!(out, "  excused  {nodes} (disconnected or failing before)")?;
    }
    Ok(())
}

fn history(rollout: &RolloutStatus, out: &mut impl Write) -> io::Result<()> {
    let mark = |one: &RevisionRecord| match (&one.revision, rollout.phase) {
        (name, _) if *name == rollout.current_revision => "in force",
        (name, RolloutPhase::RolledBack) if *name == rollout.target_revision => "rolled back",
        (name, _) if *name == rollout.target_revision => "pending",
        _ => "",
    };
    let width = rollout.history.iter().map(|one| one.revision.len()).max();
    let width = width.unwrap_or(0).max("REVISION".len());
    let mut row = |revision: &str, since: &str, state: &str, agents: &str| {
        let line = format!("{revision:width$}  {since:20}  {state:11}  {agents}");
        writeln!(out, "{}", line.trim_end())
    };
    // The column is empty if the controller does not manage agents.
    let kept = rollout.history.iter().any(|one| image(one).is_some());
    row(
        "REVISION",
        "SINCE",
        "STATE",
        if kept { "AGENTS" } else { "" },
    )?;
    for one in rollout.history.iter().rev() {
        let since = one.since.as_ref().map(|since| since.0.to_string());
        let since = since.unwrap_or_else(|| "-".into());
        let agents = image(one).unwrap_or_default();
        row(&one.revision, &since, mark(one), &agents)?;
    }
    Ok(())
}

/// The image of the agents in a revision; `None` if the controller does not manage agents.
fn image(one: &RevisionRecord) -> Option<String> {
    let content: Value = serde_json::from_str(&one.content).ok()?;
    Some(content["agents"]["image"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(phase: RolloutPhase, current: &str, target: &str) -> RolloutStatus {
        let record = |revision: &str| RevisionRecord {
            revision: revision.into(),
            ..RevisionRecord::default()
        };
        RolloutStatus {
            phase,
            current_revision: current.into(),
            target_revision: target.into(),
            history: ["default-1", "default-4", "default-7"].map(record).into(),
            ..RolloutStatus::default()
        }
    }

    #[test]
    fn undo_restores_the_previous_revision() {
        let moving = rollout(RolloutPhase::Progressing, "default-4", "default-7");
        assert_eq!(former(&moving, None).unwrap(), "default-4");
        let complete = rollout(RolloutPhase::Complete, "default-7", "default-7");
        assert_eq!(former(&complete, None).unwrap(), "default-4");
        assert_eq!(
            former(&complete, Some("default-1".into())).unwrap(),
            "default-1"
        );
        let first = rollout(RolloutPhase::Complete, "default-1", "default-1");
        insta::assert_snapshot!(former(&first, None).unwrap_err(), @"nothing to restore: the history has no revision before default-1");
        insta::assert_snapshot!(former(&first, Some("default-2".into())).unwrap_err(), @"--to default-2: no such revision in the history (there are: default-7, default-4, default-1)");
    }

    #[test]
    fn a_person_reads_how_far_it_is() {
        let mut status = RolloutStatus {
            wave: Some("zone zone-b".into()),
            touched_nodes: Some(21),
            total_nodes: Some(60),
            waiting_for: Some("node-31 has not answered for 12 s".into()),
            excused_nodes: vec!["node-9".into()],
            ..rollout(RolloutPhase::Progressing, "default-4", "default-7")
        };
        let agents = json!({"sha256": "0".repeat(64), "image": "r/portolan-agent:2"});
        status.history[2].content = json!({"agents": agents}).to_string();
        let mut out = Vec::new();
        write_status(&status, &mut out).unwrap();
        history(&status, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        default-4 -> default-7 is in progress
          nodes    21 of 60 have received it
          wave     zone zone-b
          waits    node-31 has not answered for 12 s
          excused  node-9 (disconnected or failing before)
        REVISION   SINCE                 STATE        AGENTS
        default-7  -                     pending      r/portolan-agent:2
        default-4  -                     in force
        default-1  -
        ");
        assert_eq!(code(RolloutPhase::Halted), NOT_YET);
        assert_eq!(code(RolloutPhase::Soaking), OK);
    }
}
