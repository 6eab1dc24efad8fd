//! Effect of misbehaving agents on honest ones: the same changes with and without them, in turns, in one run.

use anyhow::Result;
use serde::Serialize;

use super::misbehaving::Report;
use super::objects::PROBE;
use super::process::{Misbehaving, Page};
use super::{Bench, percentile};
use crate::console::{Console, Table};

/// Changes of one endpoint in each turn.
const CHANGES: u32 = 25;
/// Turns of each kind.
const TURNS: u32 = 2;
/// Metrics of the controller that count what it did about them.
const COUNTED: [&str; 6] = [
    "streams_total",
    "stream_refusals_total{reason=\"other_node\"}",
    "whole_plans_total{cause=\"rejected\"}",
    "stream_protocol_errors_total",
    "stream_refusals_total{reason=\"too_many\"}",
    "stream_refusals_total{reason=\"replaced\"}",
];

/// Milliseconds of changes until the last honest agent had each, and until its answer was there.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Times {
    pub(super) written_ms_p50: f64,
    pub(super) written_ms_p99: f64,
    pub(super) acked_ms_p50: f64,
    pub(super) acked_ms_p99: f64,
}

/// Counts of the controller, and the actions that the agents report.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Counts {
    pub(super) streams: f64,
    pub(super) refused_other_node: f64,
    pub(super) plans_resent: f64,
    pub(super) protocol_errors: f64,
    pub(super) refused_too_many: f64,
    pub(super) replaced: f64,
    pub(super) did: Did,
}

/// Sum of their actions over all turns.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Did {
    pub(super) left: u64,
    pub(super) lied: u64,
    pub(super) asked: u64,
    pub(super) crowded: u64,
    pub(super) forged: u64,
}

/// All of it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Beside {
    pub(super) changes: u32,
    pub(super) without: Times,
    pub(super) with: Times,
    /// With them by without them.
    pub(super) ratio: Times,
    pub(super) counted: Counts,
}

/// Measurements, change by change.
#[derive(Default)]
struct Measured {
    written: Vec<f64>,
    acked: Vec<f64>,
}

impl Measured {
    fn times(self) -> Result<Times> {
        Ok(Times {
            written_ms_p50: percentile(self.written.clone(), 0.5)?,
            written_ms_p99: percentile(self.written, 0.99)?,
            acked_ms_p50: percentile(self.acked.clone(), 0.5)?,
            acked_ms_p99: percentile(self.acked, 0.99)?,
        })
    }
}

impl Beside {
    /// Measures by turns.
    pub(super) fn measure(bench: &mut Bench<'_>) -> Result<Self> {
        let (mut without, mut with) = (Measured::default(), Measured::default());
        let mut counted = Counts::default();
        for _ in 0..TURNS {
            changes(bench, &mut without)?;
            let before = counts(&bench.controller.page()?)?;
            let others = Misbehaving::start(bench.controller.place().way(), bench.size.nodes + 1)?;
            changes(bench, &mut with)?;
            let report = others.end()?;
            counted.add(before, counts(&bench.controller.page()?)?, report);
        }
        let (without, with) = (without.times()?, with.times()?);
        Ok(Self {
            changes: CHANGES * TURNS,
            without,
            with,
            ratio: Times {
                written_ms_p50: with.written_ms_p50 / without.written_ms_p50,
                written_ms_p99: with.written_ms_p99 / without.written_ms_p99,
                acked_ms_p50: with.acked_ms_p50 / without.acked_ms_p50,
                acked_ms_p99: with.acked_ms_p99 / without.acked_ms_p99,
            },
            counted,
        })
    }

    /// For people.
    pub(super) fn table(&self, console: Console) {
        let mut table = Table::new(["HONEST AGENTS", "ALONE", "BESIDE", "RATIO"]);
        let (alone, beside, ratio) = (&self.without, &self.with, &self.ratio);
        for (what, of) in [
            (
                "a change is everywhere, median",
                (|t| t.written_ms_p50) as fn(&Times) -> f64,
            ),
            ("… p99", |t| t.written_ms_p99),
            ("… and answered, median", |t| t.acked_ms_p50),
            ("… p99", |t| t.acked_ms_p99),
        ] {
            table.row([
                what.to_owned(),
                format!("{:.1} ms", of(alone)),
                format!("{:.1} ms", of(beside)),
                format!("x {:.2}", of(ratio)),
            ]);
        }
        console.table(&table);
        let Counts {
            streams,
            refused_other_node,
            plans_resent,
            protocol_errors,
            refused_too_many,
            replaced,
            did,
        } = self.counted;
        console.line(&format!(
            "meanwhile one took nothing, one left {} streams, one lied {} times, one asked {} times for another plan, \
             one opened {} streams beside each other, one forged {} reports; the controller counted {streams:.0} \
             streams, {refused_other_node:.0} refused for another node, {refused_too_many:.0} beyond a rate, \
             {replaced:.0} replaced, {plans_resent:.0} plans sent again, {protocol_errors:.0} streams ended",
            did.left, did.lied, did.asked, did.crowded, did.forged
        ));
    }
}

impl Counts {
    fn add(&mut self, before: [f64; 6], now: [f64; 6], report: Report) {
        let of = |place: usize| now[place] - before[place];
        self.streams += of(0);
        self.refused_other_node += of(1);
        self.plans_resent += of(2);
        self.protocol_errors += of(3);
        self.refused_too_many += of(4);
        self.replaced += of(5);
        self.did.left += report.left;
        self.did.lied += report.lied;
        self.did.asked += report.asked;
        self.did.crowded += report.crowded;
        self.did.forged += report.forged;
    }
}

fn counts(page: &Page) -> Result<[f64; 6]> {
    let mut counts = [0.0; 6];
    for (count, name) in counts.iter_mut().zip(COUNTED) {
        *count = page.value(name)?;
    }
    Ok(counts)
}

fn changes(bench: &mut Bench<'_>, measured: &mut Measured) -> Result<()> {
    for _ in 0..CHANGES {
        let (written, acked) = bench.change(PROBE, bench.size.endpoints)?;
        measured.written.push(written);
        measured.acked.push(acked);
    }
    Ok(())
}
