//! The report: JSON for tools, and a table with the budgets for readers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use portolan_agent::programmer::Step;
use portolan_reconcile::OpKind;
use serde::Serialize;

use super::figure::Figure;
use super::netlink_operations;
use super::process::Cost;
use super::scale::Scale;
use super::{Asked, Outcome};
use crate::console::{Colour, Console, Table};

/// Steps of a pass that take less are not printed.
const SHOWN_STEP: Duration = Duration::from_millis(5);

/// For tools: one object, times with their spread.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    services: u32,
    endpoints: u32,
    raw_s: Figure,
    agent_s: Figure,
    ratio: Figure,
    raw_ops_per_s: f64,
    change_messages: u64,
    change_bytes: u64,
    change_agent_us: Figure,
    restart_writes: u64,
    rss_mb: f64,
    cpu_s: Figure,
}

/// Where the time of the agent went when it programmed the whole plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    netlink: Duration,
    rules: Duration,
    ground: Duration,
    reading: Duration,
    computing: Duration,
}

impl Parts {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let asked = &outcome.asked;
        let writing = |kinds: &[OpKind]| {
            kinds
                .iter()
                .filter_map(|kind| asked.writing.get(kind))
                .sum::<Duration>()
        };
        let netlink = writing(&[OpKind::Ipvs, OpKind::Scheduler, OpKind::Set]);
        let rules = writing(&[OpKind::Rules]);
        let ground = writing(&[OpKind::Link, OpKind::Sysctl]);
        let kernel = netlink + rules + ground + asked.reading;
        Self {
            netlink,
            rules,
            ground,
            reading: asked.reading,
            computing: outcome.applied.took.saturating_sub(kernel),
        }
    }
}

/// All measurements of one scale.
#[derive(Debug)]
pub(super) struct Measured {
    scale: Scale,
    whole: Asked,
    change: Asked,
    restart: Asked,
    raw: Vec<Duration>,
    agent: Vec<Duration>,
    parts: Vec<Parts>,
    changes: Vec<Duration>,
    /// The steps of the latest run.
    steps: Arc<[Step]>,
    pub(super) processes: Vec<Cost>,
}

impl Measured {
    pub(super) fn new(scale: Scale, whole: &Asked, change: &Asked, restart: &Asked) -> Self {
        Self {
            scale,
            whole: whole.clone(),
            change: change.clone(),
            restart: restart.clone(),
            raw: Vec::new(),
            agent: Vec::new(),
            parts: Vec::new(),
            changes: Vec::new(),
            steps: Arc::default(),
            processes: Vec::new(),
        }
    }

    pub(super) fn add_raw(&mut self, took: Duration) {
        self.raw.push(took);
    }

    pub(super) fn add_agent(&mut self, took: Duration, parts: Parts) {
        self.agent.push(took);
        self.parts.push(parts);
    }

    /// The steps of the run added last.
    pub(super) fn set_steps(&mut self, steps: Arc<[Step]>) {
        self.steps = steps;
    }

    pub(super) fn add_change(&mut self, took: Duration) {
        self.changes.push(took);
    }

    /// Messages of a recording that the kernel refuses on purpose.
    pub(super) fn probes(&self) -> u64 {
        self.whole.of(OpKind::Scheduler)
    }

    /// The latest run as text.
    pub(super) fn last(&self) -> String {
        let seconds = |list: &[Duration]| list.last().map_or(0.0, Duration::as_secs_f64);
        let (raw, agent) = (seconds(&self.raw), seconds(&self.agent));
        let change = self.changes.last().map_or(0.0, Duration::as_secs_f64);
        format!(
            "raw {raw:.3} s, agent {agent:.3} s ({:.2} times raw; {}), a change {:.1} ms",
            agent / raw,
            long_steps(&self.steps),
            change * 1e3
        )
    }

    fn ratio(&self) -> Vec<f64> {
        let pairs = self.agent.iter().zip(&self.raw);
        pairs
            .map(|(agent, raw)| agent.as_secs_f64() / raw.as_secs_f64())
            .collect()
    }

    fn rss_mb(&self) -> Option<Figure> {
        Figure::of(self.processes.iter().map(|cost| cost.rss_mb).collect())
    }

    fn restart_writes(&self) -> u64 {
        let programs = self.processes.iter().map(|cost| cost.restart_operations);
        programs.max().unwrap_or(0).max(self.restart.writes())
    }

    pub(super) fn report(&self) -> Result<Report> {
        let seconds = |list: &[Duration], factor: f64| {
            let all = list.iter().map(|took| took.as_secs_f64() * factor);
            Figure::of(all.collect()).context("nothing was measured")
        };
        let raw_s = seconds(&self.raw, 1.0)?;
        let operations = u32::try_from(netlink_operations(&self.whole))?;
        let cpu = self.processes.iter().map(|cost| cost.cpu_s).collect();
        let nothing = "no program was measured";
        Ok(Report {
            services: self.scale.services,
            endpoints: self.scale.endpoints,
            raw_s: raw_s.rounded(4),
            agent_s: seconds(&self.agent, 1.0)?.rounded(4),
            ratio: Figure::of(self.ratio())
                .context("nothing was measured")?
                .rounded(3),
            raw_ops_per_s: (f64::from(operations) / raw_s.median).round(),
            change_messages: self.change.messages(),
            change_bytes: self.change.sent.bytes,
            change_agent_us: seconds(&self.changes, 1e6)?.rounded(0),
            restart_writes: self.restart_writes(),
            rss_mb: self.rss_mb().context(nothing)?.rounded(1).median,
            cpu_s: Figure::of(cpu).context(nothing)?.rounded(2),
        })
    }

    /// The median of a part.
    fn part(&self, part: impl Fn(&Parts) -> Duration) -> Option<Figure> {
        Figure::of(
            self.parts
                .iter()
                .map(|all| part(all).as_secs_f64())
                .collect(),
        )
    }
}

/// Budgets of DESIGN at a scale.
fn budgets(scale: Scale) -> (f64, Option<f64>) {
    let ratio = if scale.services >= 10_000 { 1.5 } else { 2.0 };
    let memory = match u64::from(scale.services) * u64::from(scale.endpoints) {
        0..=10_000 => Some(12.0),
        10_001..=150_000 => Some(40.0),
        _ => None,
    };
    (ratio, memory)
}

/// Prints for people.
pub(super) fn table(console: Console, measured: &Measured) -> Result<()> {
    let report = measured.report()?;
    let (ratio, memory) = budgets(measured.scale);
    let mut rows = Rows::new(console);
    times(&mut rows, measured, &report);
    rows.judged(
        "agent / raw",
        &spread(report.ratio, 2, ""),
        &format!("at most {ratio}"),
        report.ratio.median <= ratio,
    );
    let messages = report.change_messages;
    rows.judged(
        "one endpoint moves: messages",
        &messages.to_string(),
        "at most 10",
        messages <= 10,
    );
    rows.figure("  bytes", &report.change_bytes.to_string());
    rows.figure("  agent", &spread(report.change_agent_us, 0, " µs"));
    let writes = report.restart_writes;
    rows.judged(
        "restart, all right: writes",
        &writes.to_string(),
        "0",
        writes == 0,
    );
    let rss = measured.rss_mb().context("no program was measured")?;
    let shown = spread(rss, 1, " MB");
    match memory {
        Some(most) => rows.judged(
            "resident memory",
            &shown,
            &format!("at most {most} MB"),
            rss.median <= most,
        ),
        None => rows.figure("resident memory", &shown),
    }
    let of_processes = |read: fn(&Cost) -> f64| {
        let figures = measured.processes.iter().map(read).collect();
        Figure::of(figures).context("no program was measured")
    };
    let own = of_processes(|cost| cost.own_mb)?;
    rows.figure("  without the program's text", &spread(own, 1, " MB"));
    let peak = of_processes(|cost| cost.peak_mb)?;
    rows.figure("  at its peak", &spread(peak, 1, " MB"));
    rows.figure("processor time to in force", &spread(report.cpu_s, 2, " s"));
    let Scale {
        services,
        endpoints,
    } = measured.scale;
    console.heading(&format!(
        "{services} Services x {endpoints} endpoints, median (least to most) of {} runs",
        measured.raw.len()
    ));
    console.table(&rows.table);
    Ok(())
}

/// Picks one part.
type Part = fn(&Parts) -> Duration;

/// The times of the whole plan.
fn times(rows: &mut Rows, measured: &Measured, report: &Report) {
    let seconds = |figure: Figure| spread(figure, 3, " s");
    let rate = format!("{:.0} operations a second", report.raw_ops_per_s);
    rows.figure(
        "raw: the agent's own messages from memory",
        &seconds(report.raw_s),
    );
    rows.figure("  of them", &rate);
    rows.figure(
        "agent: from having the plan to in force",
        &seconds(report.agent_s),
    );
    let parts: [(&str, Part); 5] = [
        ("  IPVS and sets over netlink", |parts| parts.netlink),
        ("  rules, by iptables-restore", |parts| parts.rules),
        ("  settings, device, route", |parts| parts.ground),
        ("  looking at the kernel", |parts| parts.reading),
        ("  computing, record on disk", |parts| parts.computing),
    ];
    for (name, part) in parts {
        rows.figure(name, &measured.part(part).map_or(String::new(), seconds));
    }
}

struct Rows {
    console: Console,
    table: Table,
}

impl Rows {
    fn new(console: Console) -> Self {
        Self {
            console,
            table: Table::new(["WHAT", "MEASURED", "BUDGET", ""]),
        }
    }

    fn figure(&mut self, name: &str, measured: &str) {
        self.table.row([name, measured, "", ""]);
    }

    fn judged(&mut self, name: &str, measured: &str, budget: &str, holds: bool) {
        let verdict = if holds {
            self.console.paint(Colour::Green, "ok")
        } else {
            self.console.paint(Colour::Red, "over")
        };
        self.table.row([name, measured, budget, &verdict]);
    }
}

/// The steps of a pass that took a while, as text.
pub(super) fn long_steps(steps: &[Step]) -> String {
    let long = steps.iter().filter(|step| step.took >= SHOWN_STEP);
    let steps = long.map(|step| format!("{} {:.3} s", step.name, step.took.as_secs_f64()));
    steps.collect::<Vec<_>>().join(", ")
}

fn spread(figure: Figure, places: usize, unit: &str) -> String {
    let Figure { median, min, max } = figure;
    format!("{median:.places$}{unit} ({min:.places$} to {max:.places$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_those_of_the_next_larger_scale() {
        let at = |services, endpoints| {
            budgets(Scale {
                services,
                endpoints,
            })
        };
        assert_eq!(at(1000, 10), (2.0, Some(12.0)));
        assert_eq!(at(10_000, 10), (1.5, Some(40.0)));
        assert_eq!(at(10_000, 15), (1.5, Some(40.0)));
        assert_eq!(at(20_000, 15), (1.5, None));
    }

    #[test]
    fn the_report_has_every_key_and_times_with_their_spread() {
        let mut measured = Measured::new(
            Scale {
                services: 10,
                endpoints: 2,
            },
            &Asked::default(),
            &Asked::default(),
            &Asked::default(),
        );
        assert!(measured.report().is_err(), "nothing was measured");
        let nothing = Duration::ZERO;
        for milliseconds in [30, 10, 20] {
            measured.add_raw(Duration::from_millis(milliseconds));
            let parts = Parts {
                netlink: nothing,
                rules: nothing,
                ground: nothing,
                reading: nothing,
                computing: nothing,
            };
            measured.add_agent(Duration::from_millis(2 * milliseconds), parts);
            measured.add_change(Duration::from_micros(500));
            measured.processes.push(Cost {
                rss_mb: 11.04,
                own_mb: 6.0,
                peak_mb: 12.0,
                cpu_s: 0.25,
                restart_operations: 0,
            });
        }
        let text = serde_json::to_value(measured.report().unwrap()).unwrap();
        assert_eq!(
            text,
            serde_json::json!({
                "services": 10, "endpoints": 2,
                "raw_s": {"median": 0.02, "min": 0.01, "max": 0.03},
                "agent_s": {"median": 0.04, "min": 0.02, "max": 0.06},
                "ratio": {"median": 2.0, "min": 2.0, "max": 2.0},
                "raw_ops_per_s": 0.0,
                "change_messages": 0, "change_bytes": 0,
                "change_agent_us": {"median": 500.0, "min": 500.0, "max": 500.0},
                "restart_writes": 0, "rss_mb": 11.0,
                "cpu_s": {"median": 0.25, "min": 0.25, "max": 0.25},
            })
        );
    }
}
