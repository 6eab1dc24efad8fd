//! Cost of the node agent with the nftables dataplane, measured beside the kernel's own limit as in the parent module. It
//! needs no IPVS, so it also runs on the kernel of this machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use portolan_agent::kernel::TablesKernel as _;
use portolan_agent::kernel::linux::{NftTables, TableChanges};
use portolan_agent::programmer::Step;
use serde::Serialize;

use super::figure::Figure;
use super::process::Controller;
use super::recording::{Recorder, Recording};
use super::report::long_steps;
use super::{Agent, Bench, CHANGES, Form, MANIFESTS, NO_TAP, Nodes, Options};
use crate::console::Table;
use crate::namespace::Namespace;
use crate::stage::Stage;
use crate::stop;

/// Budgets of DESIGN: times the raw writer, milliseconds, and operations.
const RATIO: f64 = 1.3;
const CHANGE_MS: f64 = 5.0;
const CHANGE_OPERATIONS: usize = 6;
const RESIDENT_MB: f64 = 45.0;

/// All measurements of one scale.
#[derive(Debug, Default)]
struct Measured {
    raw: Vec<f64>,
    agent: Vec<f64>,
    changes_ms: Vec<f64>,
    change_operations: usize,
    restart_operations: usize,
    resident_mb: Vec<f64>,
    processor_s: Vec<f64>,
    /// The steps of the latest run.
    steps: Vec<Step>,
}

/// For tools: one object.
#[derive(Debug, Serialize)]
struct Report {
    services: u32,
    endpoints: u32,
    raw_s: Figure,
    agent_s: Figure,
    ratio: Figure,
    change_ms: Figure,
    change_operations: usize,
    restart_operations: usize,
    resident_mb: Figure,
    processor_s: Figure,
}

pub(super) fn run(stage: &Stage, options: Options) -> Result<()> {
    let quiet = options.output == Form::Json;
    let say = |text: &str| {
        if !quiet {
            stage.console.line(text);
        }
    };
    let bench = Bench::prepare(stage, options.scale(), "nftables")?;
    let mut nodes = Nodes::new(stage.waits);
    let mut measured = Measured::default();
    let recording = record(&bench, &mut nodes, &mut measured)?;
    let (datagrams, bytes) = recording.size();
    say(&format!(
        "the agent sent {datagrams} datagrams, {bytes} bytes, to nf_tables"
    ));
    for run in 1..=options.runs {
        stop::check()?;
        measured
            .raw
            .push(raw(&bench, &mut nodes, &recording)?.as_secs_f64());
        agent(&bench, &mut nodes, &mut measured)?;
        say(&format!(
            "run {run} of {}: {}",
            options.runs,
            measured.last()
        ));
    }
    // Frees the memory of this process's plans: a guest is small.
    drop(recording);
    let mut controller = Controller::start(&bench.folder.path.join(MANIFESTS), stage.waits)?;
    for run in 1..=options.runs {
        stop::check()?;
        let node = nodes.fresh()?;
        let cost = controller.measure(node.namespace(), run)?;
        say(&format!(
            "program {run} of {}: {:.1} MB, {:.2} s of processor",
            options.runs, cost.rss_mb, cost.cpu_s
        ));
        measured.resident_mb.push(cost.rss_mb);
        measured.processor_s.push(cost.cpu_s);
    }
    let report = measured.report(options)?;
    if quiet {
        stage.console.line(&serde_json::to_string(&report)?);
    } else {
        report.print(stage);
    }
    Ok(())
}

/// The first run, which loads modules and is not measured: keeps what the agent sends, and what it writes after a restart.
fn record(bench: &Bench<'_>, nodes: &mut Nodes, measured: &mut Measured) -> Result<Recording> {
    let node = nodes.fresh()?;
    let state = bench.state()?;
    let recorder = Recorder::default();
    let mut plan = bench.plan()?;
    let (space, waits) = (node.namespace(), bench.stage.waits);
    let agent = Agent::start(space, &state, waits, Some(recorder.tap()))?;
    agent.program(plan.whole())?;
    let recording = recorder.take();
    let moved = agent.program(plan.move_endpoints([bench.scale.services / 2])?)?;
    measured.change_operations = moved.applied.operations;
    holds(space, bench.scale.servers())?;
    agent.stop()?;
    let agent = Agent::start(space, &state, waits, NO_TAP)?;
    measured.restart_operations = agent.program(plan.whole())?.applied.operations;
    agent.stop()?;
    Ok(recording)
}

fn raw(bench: &Bench<'_>, nodes: &mut Nodes, recording: &Recording) -> Result<Duration> {
    let node = nodes.fresh()?;
    let (took, refused) = node.namespace().inside(|| recording.replay())?;
    ensure!(
        refused == 0,
        "the kernel refused {refused} messages that the agent had sent before"
    );
    holds(node.namespace(), bench.scale.servers()).context("after the raw writer")?;
    Ok(took)
}

fn agent(bench: &Bench<'_>, nodes: &mut Nodes, measured: &mut Measured) -> Result<()> {
    let node = nodes.fresh()?;
    let mut plan = bench.plan()?;
    let whole = plan.whole();
    let agent = Agent::start(node.namespace(), &bench.state()?, bench.stage.waits, NO_TAP)?;
    let outcome = agent.program(whole)?;
    measured.agent.push(outcome.applied.took.as_secs_f64());
    measured.steps = outcome.applied.steps.to_vec();
    for change in 0..CHANGES {
        let service = bench.scale.services / CHANGES * change;
        let outcome = agent.program(plan.move_endpoints([service])?)?;
        measured
            .changes_ms
            .push(outcome.applied.took.as_secs_f64() * 1e3);
    }
    agent.stop()
}

/// Checks that the tables of a namespace have this number of frontends and backends.
fn holds(namespace: &Namespace, (servers, backends): (u64, u64)) -> Result<()> {
    let found = namespace.inside(|| {
        let mut tables = NftTables::open(TableChanges::default())?;
        Ok(tables.read()?.virtual_servers())
    })?;
    let held: usize = found.values().map(|server| server.real_servers.len()).sum();
    let wanted = (usize::try_from(servers)?, usize::try_from(backends)?);
    ensure!(
        (found.len(), held) == wanted,
        "the tables have {} frontends and {held} backends, not {servers} and {backends}",
        found.len()
    );
    Ok(())
}

impl Measured {
    fn last(&self) -> String {
        let last = |list: &[f64]| list.last().copied().unwrap_or(0.0);
        let (raw, agent) = (last(&self.raw), last(&self.agent));
        format!(
            "raw {raw:.3} s, agent {agent:.3} s ({:.2} times raw; {}), a change {:.1} ms",
            agent / raw,
            long_steps(&self.steps),
            last(&self.changes_ms)
        )
    }

    fn report(&self, options: Options) -> Result<Report> {
        let figure = |list: &[f64]| Figure::of(list.to_vec()).context("nothing was measured");
        let pairs = self.agent.iter().zip(&self.raw);
        let ratio: Vec<_> = pairs.map(|(agent, raw)| agent / raw).collect();
        Ok(Report {
            services: options.services,
            endpoints: options.endpoints,
            raw_s: figure(&self.raw)?.rounded(4),
            agent_s: figure(&self.agent)?.rounded(4),
            ratio: figure(&ratio)?.rounded(3),
            change_ms: figure(&self.changes_ms)?.rounded(3),
            change_operations: self.change_operations,
            restart_operations: self.restart_operations,
            resident_mb: figure(&self.resident_mb)?.rounded(1),
            processor_s: figure(&self.processor_s)?.rounded(2),
        })
    }
}

/// A line of the table: what, measured, and the budget with the verdict.
type Row = (&'static str, String, Option<(String, &'static str)>);

fn within(holds: bool, most: String) -> Option<(String, &'static str)> {
    Some((most, if holds { "ok" } else { "over" }))
}

fn spread(figure: Figure, unit: &str) -> String {
    let Figure { median, min, max } = figure;
    format!("{median:.3}{unit} ({min:.3} to {max:.3})")
}

impl Report {
    fn print(&self, stage: &Stage) {
        let mut table = Table::new(["WHAT", "MEASURED", "BUDGET", ""]);
        for (what, measured, budget) in self.times().into_iter().chain(self.counts()) {
            let (budget, verdict) = budget.unwrap_or_default();
            table.row([what.to_owned(), measured, budget, verdict.to_owned()]);
        }
        let (services, endpoints) = (self.services, self.endpoints);
        stage.console.heading(&format!(
            "nftables: {services} Services x {endpoints} endpoints, median (least to most)"
        ));
        stage.console.table(&table);
    }

    fn times(&self) -> [Row; 5] {
        let (ratio, change) = (self.ratio, self.change_ms);
        [
            (
                "raw: the agent's own messages from memory",
                spread(self.raw_s, " s"),
                None,
            ),
            (
                "agent: from having the plan to in force",
                spread(self.agent_s, " s"),
                None,
            ),
            (
                "agent / raw",
                spread(ratio, ""),
                within(ratio.median <= RATIO, format!("at most {RATIO}")),
            ),
            (
                "one endpoint moves",
                spread(change, " ms"),
                within(
                    change.median <= CHANGE_MS,
                    format!("at most {CHANGE_MS} ms"),
                ),
            ),
            (
                "program: processor time until in force",
                spread(self.processor_s, " s"),
                None,
            ),
        ]
    }

    fn counts(&self) -> [Row; 3] {
        let (operations, resident) = (self.change_operations, self.resident_mb);
        [
            (
                "one endpoint moves: operations on elements",
                operations.to_string(),
                within(
                    operations <= CHANGE_OPERATIONS,
                    format!("at most {CHANGE_OPERATIONS}"),
                ),
            ),
            (
                "restart, all right: operations",
                self.restart_operations.to_string(),
                within(self.restart_operations == 0, "0".into()),
            ),
            (
                "program: resident memory",
                spread(resident, " MB"),
                within(
                    resident.median <= RESIDENT_MB,
                    format!("at most {RESIDENT_MB} MB"),
                ),
            ),
        ]
    }
}
