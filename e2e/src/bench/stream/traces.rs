//! Cost of traces: the same cluster with traces off, of 1 % of changes, and of all changes, in turns. Traces go to a
//! real Jaeger on the same processors, which is the worst case.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::super::Form;
use super::objects::{PROBE, Size};
use super::place::Place;
use super::process::{Agents, Controller};
use super::{Bench, CHANGES, percentile, prepare, progress};
use crate::console::{Console, Table};
use crate::jaeger::{Jaeger, Ports};
use crate::stage::Stage;
use crate::work_folder::WorkFolder;

/// How large, how often, and what is printed.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Agents, each of a node.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    agents: u32,
    /// Services of the cluster.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    services: u32,
    /// Endpoints of each.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    endpoints: u32,
    /// How often each is measured; an odd number has a middle.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
}

/// Until the controller has sent the last trace.
const SETTLES: Duration = Duration::from_secs(1);
/// Trace settings, as arguments of the controller.
const WAYS: [Way; 3] = [
    Way {
        name: "off",
        share: None,
    },
    Way {
        name: "1 %",
        share: Some("0.01"),
    },
    Way {
        name: "full",
        share: Some("1"),
    },
];

#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    share: Option<&'static str>,
}

/// Measurements of one setting, one figure per round.
#[derive(Debug, Clone, Default)]
struct Measured {
    cold_sync_s: Vec<f64>,
    change_acked_ms: Vec<f64>,
    controller_cpu_s: Vec<f64>,
}

/// Medians of one way, and each by that of the way without traces.
#[derive(Debug, Clone, Default, Serialize)]
struct Figures {
    traces: &'static str,
    cold_sync_s: f64,
    cold_sync_ratio: f64,
    change_acked_ms: f64,
    change_acked_ratio: f64,
    controller_cpu_s: f64,
    controller_cpu_ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    agents: u32,
    services: u32,
    endpoints: u32,
    rounds: u32,
    ways: &'a [Figures],
}

/// Measures and prints.
///
/// # Errors
/// Something could not be measured, an agent held what it should not, or no trace came to Jaeger.
pub fn run(stage: &Stage, options: &Options) -> Result<()> {
    let size = Size {
        nodes: options.agents,
        services: options.services,
        endpoints: options.endpoints,
    };
    let prepared = prepare(stage, size)?;
    let folder = WorkFolder::private()?;
    let [otlp, query] = prepared.plane.free_ports()?;
    let ports = Ports { otlp, query };
    let _jaeger = Jaeger::start(stage.waits, ports, &folder.path.join("jaeger.log"))?;
    let mut measured = WAYS.map(|_| Measured::default());
    let mut generation = 0;
    for round in 1..=options.rounds {
        // The first one in a round runs with cold caches, so the order rotates.
        for turn in 0..WAYS.len() {
            let place = (turn + round as usize) % WAYS.len();
            let (way, measured) = (&WAYS[place], &mut measured[place]);
            progress(&format!(
                "round {round} of {}: traces {} …",
                options.rounds, way.name
            ));
            let more = words(*way, ports);
            let controller =
                Controller::start(&prepared.kubeconfig, Place::insecure()?, &more, stage.waits)?;
            let begin = Instant::now();
            let agents = Agents::start(controller.place().way(), size.nodes)?;
            let mut one = Bench {
                stage,
                plane: &prepared.plane,
                size,
                runtime: prepared.runtime.handle().clone(),
                client: prepared.client.clone(),
                controller,
                agents,
                generation,
            };
            measure(&mut one, begin, *way, measured)?;
            generation = one.generation;
        }
    }
    let figures = figures(&measured)?;
    match options.output {
        Form::Table => table(stage.console, &figures),
        Form::Json => {
            let report = Report {
                agents: size.nodes,
                services: size.services,
                endpoints: size.endpoints,
                rounds: options.rounds,
                ways: &figures,
            };
            stage.console.line(&serde_json::to_string(&report)?);
        }
    }
    Ok(())
}

fn words(way: Way, ports: Ports) -> Vec<String> {
    way.share.map_or_else(Vec::new, |share| {
        let to = format!("http://127.0.0.1:{}", ports.otlp);
        let words = [
            "--traces",
            &to,
            "--traces-share",
            share,
            "--traces-slow",
            "1h",
        ];
        words.map(str::to_owned).to_vec()
    })
}

fn measure(bench: &mut Bench<'_>, begin: Instant, way: Way, measured: &mut Measured) -> Result<()> {
    bench.agents.whole()?;
    let (all, waits) = (f64::from(bench.size.nodes), bench.stage.waits);
    bench.controller.wait("nodes_in_force", all, waits)?;
    measured.cold_sync_s.push(begin.elapsed().as_secs_f64());
    let mut acked = Vec::new();
    for _ in 0..CHANGES {
        acked.push(bench.change(PROBE, bench.size.endpoints)?.1);
    }
    measured.change_acked_ms.push(percentile(acked, 0.5)?);
    // By then the work for the last change is done with any trace setting.
    std::thread::sleep(SETTLES);
    measured
        .controller_cpu_s
        .push(bench.controller.cpu_seconds()?);
    bench.agents.check()?;
    if way.share == Some("1") {
        let sent = "trace_exports_total{result=\"sent\"}";
        bench.controller.wait(sent, f64::from(CHANGES), waits)?;
    } else if way.share.is_none() {
        let kept = bench.controller.metric("traces_total{kept=\"yes\"}")?;
        ensure!(kept < 0.5, "{kept} traces were kept, and none was wanted");
    }
    Ok(())
}

fn figures(measured: &[Measured; 3]) -> Result<Vec<Figures>> {
    let median = |figures: &[f64]| percentile(figures.to_vec(), 0.5);
    let [off, ..] = measured;
    let (sync, acked, cpu) = (
        median(&off.cold_sync_s)?,
        median(&off.change_acked_ms)?,
        median(&off.controller_cpu_s)?,
    );
    let of = |(way, measured): (&Way, &Measured)| {
        let cold_sync_s = median(&measured.cold_sync_s)?;
        let change_acked_ms = median(&measured.change_acked_ms)?;
        let controller_cpu_s = median(&measured.controller_cpu_s)?;
        Ok(Figures {
            traces: way.name,
            cold_sync_s,
            cold_sync_ratio: cold_sync_s / sync,
            change_acked_ms,
            change_acked_ratio: change_acked_ms / acked,
            controller_cpu_s,
            controller_cpu_ratio: controller_cpu_s / cpu,
        })
    };
    WAYS.iter().zip(measured).map(of).collect()
}

fn table(console: Console, figures: &[Figures]) {
    let mut table = Table::new([
        "TRACES",
        "COLD SYNC",
        "",
        "CHANGE ANSWERED",
        "",
        "CONTROLLER'S TIME",
    ]);
    for of in figures {
        table.row([
            of.traces.to_owned(),
            format!("{:.2} s", of.cold_sync_s),
            format!("x {:.2}", of.cold_sync_ratio),
            format!("{:.1} ms", of.change_acked_ms),
            format!("x {:.2}", of.change_acked_ratio),
            format!("{:.2} s", of.controller_cpu_s),
            format!("x {:.2}", of.controller_cpu_ratio),
        ]);
    }
    table.lines().for_each(|line| console.line(&line));
}
